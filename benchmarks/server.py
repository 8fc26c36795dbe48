"""The time that an editor waits for the language server: `python -m benchmarks.server [FILE…]`.

A real client talks to a real process, as the tests do. Prints a table; each time is the longest of
five, but for what happens once. Without a file a text of 30 MB is made.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lsprotocol import types

from benchmarks.measure import write_made_text
from tests.editor import Editor

TIMES = 5
MEGABYTES = 30


def _seconds(ask: Callable[[], Any]) -> float:
    begun = time.monotonic()
    ask()
    return time.monotonic() - begun


def _longest(ask: Callable[[], Any]) -> float:
    return max(_seconds(ask) for _ in range(TIMES))


def _cpu(editor: Editor) -> float:
    """Seconds of CPU that the server has taken."""
    process = editor.client._server
    assert process is not None
    _, _, fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")
    user, system = fields.split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def measure(path: Path) -> Iterator[tuple[str, float]]:
    """The question, and the seconds that it took."""
    text = path.read_text("utf-8", "surrogateescape")
    editor = Editor()
    names = re.findall(r"^  (?:ROOT )?%?([\w.\-]+) = ", text[-200_000:], re.M)
    calls = re.search(r"(?:calls|to_apply)=%?([\w.\-]+)", text)
    started = _cpu(editor)
    uri = editor.open(text, str(path))
    place = editor.at(uri, f"{names[len(names) // 2]} = ", 1)
    yield "open, until the first hover", _seconds(lambda: editor.hover(uri, place))
    yield "the server's CPU until then", _cpu(editor) - started
    yield "hover while it is checked", _longest(lambda: editor.hover(uri, place))
    yield "open, until the findings (after that)", _seconds(lambda: editor.findings(uri))
    yield "hover", _longest(lambda: editor.hover(uri, place))
    yield "definition", _longest(lambda: editor.definition(uri, place))
    yield "references", _longest(lambda: editor.references(uri, place))
    if calls is not None:
        called = editor.at(uri, calls[0], len(calls[0]) - 1)
        yield "references of a computation", _longest(lambda: editor.references(uri, called))
    document = types.TextDocumentIdentifier(uri)
    client = editor.client
    outline = types.DocumentSymbolParams(document)
    yield (
        "outline",
        _seconds(lambda: editor.wait(client.text_document_document_symbol_async(outline))),
    )
    folds = types.FoldingRangeParams(document)
    yield "folds", _seconds(lambda: editor.wait(client.text_document_folding_range_async(folds)))

    def type_and_ask() -> None:
        here = types.Range(place, place)
        editor.change(uri, types.TextDocumentContentChangePartial(here, "x"))
        editor.hover(uri, place)

    yield "a keystroke, until the hover after it", _longest(type_and_ask)
    yield "the last keystroke, until the findings", _seconds(lambda: editor.findings(uri))
    editor.close()


def table(columns: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """A column for each text."""
    yield "| | " + " | ".join(columns) + " |"
    yield "|---|" + "---:|" * len(columns)
    for name in dict.fromkeys(name for column in columns.values() for name in column):
        times = (column.get(name) for column in columns.values())
        shown = ("" if each is None else f"{each * 1000:.0f} ms" for each in times)
        yield f"| {name} | " + " | ".join(shown) + " |"


def of_made_text() -> dict[str, float]:
    """Each question of a text of `MEGABYTES`, whose lines are all different, and its seconds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "step.hlo")
        write_made_text(path, MEGABYTES)
        return dict(measure(path))


def main() -> None:
    columns = {
        f"{path.stat().st_size / 1e6:.1f} MB": dict(measure(path))
        for path in map(Path, sys.argv[1:])
    }
    print("\n".join(table(columns or {f"{MEGABYTES} MB": of_made_text()})))


if __name__ == "__main__":
    main()
