"""An editor as the language server sees one: pygls' own client, which talks to a real process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from lsprotocol import types
from pygls.lsp.client import LanguageClient

from tests.conftest import ROOT, present

_T = TypeVar("_T")
PATIENCE = 60.0
"""Seconds until an answer that does not come is a failure."""

CAPABILITIES = types.ClientCapabilities(
    workspace=types.WorkspaceClientCapabilities(
        workspace_edit=types.WorkspaceEditClientCapabilities(document_changes=True)
    ),
    text_document=types.TextDocumentClientCapabilities(
        hover=types.HoverClientCapabilities(content_format=[types.MarkupKind.Markdown]),
        code_action=types.CodeActionClientCapabilities(
            resolve_support=types.ClientCodeActionResolveOptions(["edit"])
        ),
    ),
)


class Editor:
    """A client with texts open in it; each of its methods waits for the answer."""

    def __init__(
        self, encoding: str = "utf-16", capabilities: types.ClientCapabilities = CAPABILITIES
    ) -> None:
        self.loop = asyncio.new_event_loop()
        self.client = LanguageClient("editor", "1")
        self.published: dict[str, types.PublishDiagnosticsParams] = {}
        self.messages: list[str] = []
        self.texts: dict[str, str] = {}
        self.versions: dict[str, int] = {}

        def publish(params: types.PublishDiagnosticsParams) -> None:
            self.published[params.uri] = params

        def show(params: types.ShowMessageParams) -> None:
            self.messages.append(params.message)

        self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(publish)
        self.client.feature(types.WINDOW_SHOW_MESSAGE)(show)

        general = types.GeneralClientCapabilities(position_encodings=[encoding])
        capable = types.ClientCapabilities(
            capabilities.workspace, capabilities.text_document, general=general
        )
        self.started = self.wait(self._start(types.InitializeParams(capabilities=capable)))

    async def _start(self, params: types.InitializeParams) -> types.InitializeResult:
        await self.client.start_io(sys.executable, "-m", "hlo_lint", "server", cwd=ROOT)
        result = await self.client.initialize_async(params)
        self.client.initialized(types.InitializedParams())
        return result

    def wait(self, answer: Coroutine[Any, Any, _T]) -> _T:
        """The answer."""
        return self.loop.run_until_complete(asyncio.wait_for(answer, PATIENCE))

    def close(self) -> int | None:
        """Ends the server; its exit status."""
        self.wait(self.client.shutdown_async(None))
        process = present(self.client._server)
        self.client.exit(None)
        status = self.wait(process.wait())
        self.wait(self.client.stop())  # type: ignore[no-untyped-call]  # pygls says no type
        self.loop.close()
        return status

    # Texts

    def open(self, text: str, path: str = "/nowhere/a.hlo") -> str:
        """Opens a text under a path and gives its URI."""
        uri = Path(path).as_uri() if path.startswith("/") else path
        self.texts[uri], self.versions[uri] = text, 1
        self.published.pop(uri, None)
        item = types.TextDocumentItem(uri=uri, language_id="hlo", version=1, text=text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return uri

    def change(self, uri: str, *changes: types.TextDocumentContentChangeEvent) -> None:
        """Sends edits of a text as its next version."""
        self.versions[uri] += 1
        named = types.VersionedTextDocumentIdentifier(version=self.versions[uri], uri=uri)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(named, changes))

    def findings(self, uri: str) -> Sequence[types.Diagnostic]:
        """The server's diagnostics for the version that was sent last."""

        async def told() -> Sequence[types.Diagnostic]:
            while True:
                found = self.published.get(uri)
                if found is not None and found.version == self.versions.get(uri):
                    return found.diagnostics
                await asyncio.sleep(0.005)

        return self.wait(told())

    def close_text(self, uri: str) -> None:
        """Closes a text, and waits until what was said of it is taken back."""
        self.published.pop(uri, None)
        del self.versions[uri]
        named = types.TextDocumentIdentifier(uri)
        self.client.text_document_did_close(types.DidCloseTextDocumentParams(named))

        async def taken_back() -> None:
            while uri not in self.published:
                await asyncio.sleep(0.005)

        self.wait(taken_back())

    # Questions

    def at(self, uri: str, needle: str, inside: int = 0, nth: int = 0) -> types.Position:
        """The position of a piece of a text, so many characters inside; for ASCII lines."""
        text, start = self.texts[uri], -1
        for _ in range(nth + 1):
            start = text.index(needle, start + 1)
        line = text.count("\n", 0, start)
        return types.Position(line, start + inside - (text.rfind("\n", 0, start) + 1))

    def hover(self, uri: str, position: types.Position) -> str | None:
        """The text that is shown under the mouse."""
        named = types.TextDocumentIdentifier(uri)
        found = self.wait(self.client.text_document_hover_async(types.HoverParams(named, position)))
        if found is None:
            return None
        assert isinstance(found.contents, types.MarkupContent)
        return found.contents.value

    def definition(self, uri: str, position: types.Position) -> types.Range | None:
        """The places where a name is given."""
        params = types.DefinitionParams(types.TextDocumentIdentifier(uri), position)
        found = self.wait(self.client.text_document_definition_async(params))
        assert found is None or isinstance(found, types.Location)
        return None if found is None else found.range

    def references(
        self, uri: str, position: types.Position, *, declaration: bool = True
    ) -> list[types.Range]:
        """The places where a name is read, and where it is given."""
        named, context = types.TextDocumentIdentifier(uri), types.ReferenceContext(declaration)
        params = types.ReferenceParams(context, named, position)
        found = self.wait(self.client.text_document_references_async(params))
        return [place.range for place in found or ()]

    def actions(
        self, uri: str, where: types.Range, only: Sequence[str] | None = None
    ) -> list[types.CodeAction]:
        """The code actions that the editor offers for a range, every edit filled in."""
        context = types.CodeActionContext(diagnostics=[], only=only)
        named = types.TextDocumentIdentifier(uri)
        params = types.CodeActionParams(named, where, context)
        found = self.wait(self.client.text_document_code_action_async(params))
        resolve = self.client.code_action_resolve_async
        actions = (each for each in found or () if isinstance(each, types.CodeAction))
        return [each if each.edit is not None else self.wait(resolve(each)) for each in actions]
