"""A new name for an instruction or a computation."""

from __future__ import annotations

import re

from hlo_lint.apps.lsp.documents import Document
from hlo_lint.hlo.symbols import Symbol
from hlo_lint.text.source import shown

_is_name = re.compile(r"[A-Za-z_][\w.\-]*", re.A).fullmatch


class RenameError(Exception):
    """A name that cannot be given; says why."""


def new_name(document: Document, symbol: Symbol, wanted: str) -> str:
    """The name to write in every place, without `%`.

    Raises:
        RenameError: if it is not a name, is taken, or renames what has no definition.
    """
    name = wanted.strip().removeprefix("%")
    if _is_name(name) is None:
        raise RenameError(f"{shown(wanted)!r} is not a name: letters, digits, `_`, `.`, `-`")
    if document.definition(symbol) is None:
        raise RenameError(f"{symbol.name} is not in the text: XLA names it so")
    place = symbol.place
    if symbol.number is not None:
        if name in place.computation.index and name != symbol.name:
            raise RenameError(f"%{name} is in %{place.computation.name} already")
    elif name != symbol.name and document.computation(place.module, name) is not None:
        raise RenameError(f"a computation is named %{name} already")
    return name
