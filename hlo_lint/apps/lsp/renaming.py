"""Rename an instruction or a computation."""

from __future__ import annotations

import re

from hlo_lint.apps.lsp.documents import Document
from hlo_lint.hlo.symbols import Symbol
from hlo_lint.text.source import shown

_is_name = re.compile(r"[A-Za-z_][\w.\-]*", re.A).fullmatch


class RenameError(Exception):
    """A rename that is not possible; the message gives the reason."""


def new_name(document: Document, symbol: Symbol, wanted: str) -> str:
    """Check a new name, and return it without `%`.

    Raises:
        RenameError: it is not a valid name, it is taken, or the symbol has no definition.
    """
    name = wanted.strip().removeprefix("%")
    if _is_name(name) is None:
        raise RenameError(f"{shown(wanted)!r} is not a name: letters, digits, `_`, `.`, `-`")
    if document.definition(symbol) is None:
        raise RenameError(f"{symbol.name} is not in the text: XLA made up the name")
    place = symbol.place
    if symbol.number is not None:
        if name in place.computation.index and name != symbol.name:
            raise RenameError(f"%{name} exists in %{place.computation.name}")
    elif name != symbol.name and document.computation(place.module, name) is not None:
        raise RenameError(f"a computation %{name} exists")
    return name
