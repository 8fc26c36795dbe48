"""XLA's Python bindings, as the child process calls them."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING

from hlo_lint.xla.pjrt import xla_bindings

if TYPE_CHECKING:
    from hlo_lint.xla.child import Answer

_syntax_errors = re.compile(r"was parsing (\d+:\d+): error: (.*)").findall
_surrogate = re.compile("[\ud800-\udfff]")


def xla_message(text: str) -> str:
    """The first line of an XLA error; for a syntax error, the place and the message.

    >>> xla_message("was parsing 4:25: error: cannot parse:\\nwas parsing 4:25: error: no such: q")
    '4:25: cannot parse: no such: q'
    """
    errors = _syntax_errors(text)
    if not errors:
        return text.strip().partition("\n")[0]
    place, message = errors[0]
    if message.endswith(":"):  # the next error gives the reason
        message = " ".join([message, *(message for _, message in errors[1:2])])
    return f"{place}: {message.rstrip(':')}"


def release() -> Answer:
    """The release of the loaded jaxlib."""
    xla_bindings()  # raises ImportError if they are missing
    return import_module("jaxlib.version").__version__, ()


def parsed(text: bytes) -> Answer:
    """Parse a text, to raise XLA's error. Bytes that are not UTF-8 become `?` for the bindings."""
    xla_bindings().hlo_module_from_text(
        _surrogate.sub("?", text.decode("utf-8", "surrogateescape"))
    )
    return None, ()


def long_text(data: bytes) -> str:
    """The long text of a module, with the defaults of `--xla_dump_hlo_as_long_text` (dump.cc)."""
    xla = xla_bindings()
    options = xla.HloPrintOptions()
    options.print_large_constants = True
    return str(xla.HloModule.from_serialized_hlo_module_proto(data).to_string(options))
