"""The server: its features, its threads, the times at which texts are checked.

Requests are answered on one thread, texts are parsed on a second and checked on a third, so a
request about a name never waits for the rules. A change of a text restarts parsing and checking;
work on the previous version is dropped.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from lsprotocol import types
from pygls.exceptions import JsonRpcContentModified, JsonRpcException
from pygls.lsp.server import LanguageServer

from hlo_lint import __version__
from hlo_lint.apps.lsp.checking import Checked, OutdatedError, check
from hlo_lint.apps.lsp.documents import Document
from hlo_lint.apps.lsp.fixing import FIX_ALL, allowances, fix_all, quick_fixes
from hlo_lint.apps.lsp.hover import hover
from hlo_lint.apps.lsp.outline import folds, symbols
from hlo_lint.apps.lsp.texts import Text, Texts
from hlo_lint.engine.memo import RunMemo
from hlo_lint.hlo.parser.module import Memo
from hlo_lint.hlo.symbols import Symbol
from hlo_lint.text.errors import HloLintError
from hlo_lint.text.source import shown

DELAY = 0.2
"""Seconds between the last keystroke and a check."""
MAX_DELAY = 2.0
"""Seconds between the last keystroke and a check that takes long."""
GARBAGE = 100_000_000
"""Characters of replaced versions before a garbage collection. A version is a few large objects, so
Python's own thresholds are reached late."""

log = logging.getLogger("hlo_lint.apps.lsp")
_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass
class _OpenText:
    text: Text
    serial: int = 0
    """The number of versions so far; version numbers of a client may restart."""
    memo: Memo = field(default_factory=Memo)
    run_memo: RunMemo = field(default_factory=RunMemo)
    reading: tuple[int, asyncio.Future[Document]] | None = None
    checking: tuple[int, asyncio.Task[Checked | None]] | None = None
    logged: set[str] = field(default_factory=set)
    """Errors of checks that were already logged."""
    replaced: int = 0
    """Characters of replaced versions since the last garbage collection."""
    took: float = 0.0
    """The duration of the last check in seconds."""


class HloServer(LanguageServer):
    """A language server for HLO."""

    def __init__(self) -> None:
        super().__init__("hlo-lint", __version__)
        self.opened: dict[str, _OpenText] = {}
        self._readers = ThreadPoolExecutor(1, "read")
        self._checkers = ThreadPoolExecutor(1, "check")

    # Texts

    def open(self, uri: str) -> None:
        """Register an opened text."""
        text = self.workspace.get_text_document(uri)
        assert isinstance(text, Text)
        self.opened[uri] = _OpenText(text)
        self.check_soon(uri, 0)

    def changed(self, uri: str) -> None:
        """Register a new version of a text."""
        opened = self.opened[uri]
        opened.serial += 1
        self.check_soon(uri, min(MAX_DELAY, max(DELAY, opened.took)))

    def close(self, uri: str) -> None:
        """Forget a closed text, and clear its diagnostics."""
        opened = self.opened.pop(uri, None)
        if opened is not None:
            opened.serial += 1
            if opened.checking is not None:
                opened.checking[1].cancel()
            self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))
            self._readers.submit(gc.collect)

    def stop(self) -> None:
        """Cancel all work: the client is gone."""
        for opened in self.opened.values():
            opened.serial += 1

    def check_all(self) -> None:
        """Check every text again after a change of a settings file."""
        for uri, opened in self.opened.items():
            opened.serial += 1
            self.check_soon(uri, 0)

    async def document(self, uri: str) -> Document | None:
        """The current version of a text, parsed; None if it is not open.

        Raises:
            OutdatedError: the text changed before it could be parsed.
        """
        opened = self.opened.get(uri)
        if opened is None:
            return None
        if opened.reading is None or opened.reading[0] != opened.serial:
            loop = asyncio.get_running_loop()
            text = opened.text.frozen()
            future = loop.run_in_executor(self._readers, _read, opened, text, opened.serial)
            opened.reading = opened.serial, future
        # Several requests share a parse: cancelling one of them must not stop it.
        return await asyncio.shield(opened.reading[1])

    def check_soon(self, uri: str, delay: float) -> None:
        """Check a text after `delay` seconds, unless it changes before."""
        opened = self.opened[uri]
        if opened.checking is not None:
            opened.checking[1].cancel()
        task = asyncio.ensure_future(self._check(uri, opened, delay))
        opened.checking = opened.serial, task

    async def checked(self, uri: str) -> Checked | None:
        """The findings in the current text."""
        opened = self.opened.get(uri)
        if opened is None:
            return None
        if opened.checking is None or opened.checking[0] != opened.serial:
            self.check_soon(uri, 0)
        assert opened.checking is not None
        return await asyncio.shield(opened.checking[1])

    async def _check(self, uri: str, opened: _OpenText, delay: float) -> Checked | None:
        await asyncio.sleep(delay)
        serial, loop = opened.serial, asyncio.get_running_loop()
        try:
            document = await self.document(uri)
            if document is None:
                return None
            begun = time.monotonic()
            result = await loop.run_in_executor(
                self._checkers, check, document, lambda: opened.serial != serial, opened.run_memo
            )
        except OutdatedError:
            return None
        except Exception as error:
            self._log_error(opened, error)
            return None
        opened.logged.clear()
        opened.took = time.monotonic() - begun
        if opened.serial != serial:
            return None
        diagnostics = [published.diagnostic for published in result.published]
        self.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(uri, diagnostics, document.text.version)
        )
        return result

    def _log_error(self, opened: _OpenText, error: Exception) -> None:
        """Log why a text cannot be checked, once until a check succeeds."""
        message = f"hlo-lint: {error}"
        if not isinstance(error, HloLintError):
            log.error("%s cannot be checked", opened.text.uri, exc_info=error)
            message = f"hlo-lint: internal error: {type(error).__name__}: {error}"
        if message not in opened.logged:
            opened.logged.add(message)
            shown_error = types.ShowMessageParams(types.MessageType.Error, shown(message))
            self.window_show_message(shown_error)

    async def fixed(self, uri: str) -> types.WorkspaceEdit | None:
        """The edits of all fixes."""
        document = await self.document(uri)
        if document is None:
            return None
        loop = asyncio.get_running_loop()
        edit = await loop.run_in_executor(self._checkers, fix_all, document)
        if await self.document(uri) is not document:
            raise OutdatedError
        return edit


def _read(opened: _OpenText, text: Text, serial: int) -> Document:
    if opened.serial != serial:
        raise OutdatedError
    opened.replaced += len(text.source)
    if opened.replaced > GARBAGE:
        opened.replaced = 0
        gc.collect()
    return Document(text, opened.memo)


def _answers(handler: Callable[_P, Awaitable[_T]]) -> Callable[_P, Awaitable[_T]]:
    """Tell a client whose text has changed since its request that it has."""

    @wraps(handler)
    async def answer(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return await handler(*args, **kwargs)
        except OutdatedError:
            raise JsonRpcContentModified("the text has changed") from None

    return answer


def make_server() -> HloServer:
    """Make a server with all features, not yet started."""
    logging.getLogger("pygls.protocol.json_rpc").addFilter(
        lambda record: not record.exc_info or not isinstance(record.exc_info[1], JsonRpcException)
    )
    server = HloServer()
    _offer_texts(server)
    _offer_answers(server)
    _offer_fixes(server)
    return server


def _offer_texts(server: HloServer) -> None:
    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        server.protocol._workspace = Texts.like(server.workspace)  # pygls has no way to say which

    def notice(feature: str, react: Callable[[str], None]) -> None:
        @server.feature(feature)
        def handle(params: Any) -> None:
            react(params.text_document.uri)

    notice(types.TEXT_DOCUMENT_DID_OPEN, server.open)
    notice(types.TEXT_DOCUMENT_DID_CHANGE, server.changed)
    notice(types.TEXT_DOCUMENT_DID_CLOSE, server.close)

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def settings_changed(params: types.DidChangeWatchedFilesParams) -> None:
        server.check_all()


def _offer_answers(server: HloServer) -> None:
    """Offer the features that need only the parsed text; the answer is None for a closed text."""

    def offer(feature: str, answer: Callable[[Document, Any], Any]) -> None:
        @server.feature(feature)
        @_answers
        async def handle(params: Any) -> Any:
            document = await server.document(params.text_document.uri)
            return None if document is None else answer(document, params)

    def offer_of_symbol(feature: str, answer: Callable[[Document, Symbol, Any], Any]) -> None:
        """Offer a feature for the name at a position; without a name the answer is None."""

        def answer_for_name(document: Document, params: Any) -> Any:
            symbol = document.symbol_at(document.text.offset(params.position))
            return None if symbol is None else answer(document, symbol, params)

        offer(feature, answer_for_name)

    def show(document: Document, params: types.HoverParams) -> types.Hover | None:
        hovered = hover(document, document.text.offset(params.position))
        if hovered is None:
            return None
        content = types.MarkupContent(types.MarkupKind.Markdown, hovered.text)
        return types.Hover(content, document.text.range(hovered.span))

    offer(types.TEXT_DOCUMENT_HOVER, show)
    offer_of_symbol(types.TEXT_DOCUMENT_DEFINITION, _definition)
    offer_of_symbol(types.TEXT_DOCUMENT_REFERENCES, _references)
    offer(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL, lambda document, _: symbols(document))
    offer(types.TEXT_DOCUMENT_FOLDING_RANGE, lambda document, _: folds(document))


def _location(document: Document, symbol: Symbol) -> types.Location:
    return types.Location(document.text.uri, document.text.range(symbol.span))


def _definition(document: Document, symbol: Symbol, _: object) -> types.Location | None:
    defined = document.definition(symbol)
    return None if defined is None else _location(document, defined)


def _references(
    document: Document, symbol: Symbol, params: types.ReferenceParams
) -> list[types.Location]:
    return [
        _location(document, occurrence)
        for occurrence in document.occurrences(symbol)
        if params.context.include_declaration or not occurrence.defines
    ]


def _offer_fixes(server: HloServer) -> None:
    kinds = [types.CodeActionKind.QuickFix, types.CodeActionKind.SourceFixAll, FIX_ALL]

    @server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION,
        types.CodeActionOptions(code_action_kinds=kinds, resolve_provider=True),
    )
    @_answers
    async def act(params: types.CodeActionParams) -> list[types.CodeAction] | None:
        uri = params.text_document.uri
        checked = await server.checked(uri)
        if checked is None:
            return None
        actions: list[types.CodeAction] = []
        if _asks_for(params.context, types.CodeActionKind.QuickFix.value):
            actions += quick_fixes(checked, params.range)
            actions += allowances(checked, params.range)
        if any(published.is_fixable for published in checked.published) and _asks_for(
            params.context, FIX_ALL
        ):
            title = "Fix all that hlo-lint can"
            actions.append(types.CodeAction(title, kind=FIX_ALL, data={"uri": uri}))
        return actions

    @server.feature(types.CODE_ACTION_RESOLVE)
    @_answers
    async def resolve(action: types.CodeAction) -> types.CodeAction:
        if isinstance(action.data, dict) and isinstance(uri := action.data.get("uri"), str):
            action.edit = await server.fixed(uri)
        return action


def _asks_for(context: types.CodeActionContext, kind: str) -> bool:
    """True if the client requests actions of a kind, or of a kind above it."""
    if context.only is None:
        return True
    wanted = [str(getattr(requested, "value", requested)) for requested in context.only]
    return any(not above or f"{kind}.".startswith(f"{above}.") for above in wanted)
