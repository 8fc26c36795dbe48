"""The time that an editor waits for the language server: `python -m benchmarks.server FILE…`.

A real client talks to a real process, as the tests do. Prints a table; each time is the longest of
five, but for what happens once.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lsprotocol import types

from tests.editor import Editor

TIMES = 5


def _seconds(ask: Callable[[], Any]) -> float:
    begun = time.monotonic()
    ask()
    return time.monotonic() - begun


def _longest(ask: Callable[[], Any]) -> float:
    return max(_seconds(ask) for _ in range(TIMES))


def measure(path: Path) -> Iterator[tuple[str, float]]:
    """The question, and the seconds that it took."""
    text = path.read_text("utf-8", "surrogateescape")
    editor = Editor()
    names = re.findall(r"^  (?:ROOT )?%?([\w.\-]+) = ", text[-200_000:], re.M)
    calls = re.search(r"(?:calls|to_apply)=%?([\w.\-]+)", text)
    uri = editor.open(text, str(path))
    place = editor.at(uri, f"{names[len(names) // 2]} = ", 1)
    yield "open, until the first hover", _seconds(lambda: editor.hover(uri, place))
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


def main() -> None:
    """Prints a column for each file."""
    paths = [Path(argument) for argument in sys.argv[1:]]
    columns = [dict(measure(path)) for path in paths]
    sizes = [f"{path.stat().st_size / 1e6:.1f} MB" for path in paths]
    print("| | " + " | ".join(sizes) + " |")
    print("|---|" + "---:|" * len(sizes))
    for name in dict.fromkeys(name for column in columns for name in column):
        times = (column.get(name) for column in columns)
        shown = ("" if each is None else f"{each * 1000:.0f} ms" for each in times)
        print(f"| {name} | " + " | ".join(shown) + " |")


if __name__ == "__main__":
    main()
