"""The child process in which XLA's code, which may abort, converts a module.

It reads standard input and writes the converted module, or else the reason, to standard output;
`read_proto` and `write_proto` interpret the exit status.
"""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module
from types import ModuleType

from hlo_lint.hlo.proto import NO_JAXLIB, REFUSED
from hlo_lint.hlo.wire import delimited
from hlo_lint.text.errors import PayloadError
from hlo_lint.text.source import encode


def main() -> None:
    """Convert as the first argument says, and end the process.

    `wire` and `text` become HLO; HLO becomes `to wire`, `to snapshot` or `to text`.
    """
    answer = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing else may print into the answer
    status, data = _answer(sys.argv[1], sys.stdin.buffer.read())
    with os.fdopen(answer, "wb") as out:
        out.write(data)
    sys.exit(status)


def _answer(kind: str, data: bytes) -> tuple[int, bytes]:
    try:
        xla = xla_bindings()
        release = import_module("jaxlib.version").__version__
        if kind.endswith("text"):
            import_module("google.protobuf")
    except ImportError as error:
        return NO_JAXLIB, encode(f"{error}")
    try:
        if kind.startswith("to "):
            return 0, _wrapped(module_of_text(xla, data), kind.removeprefix("to "))
        if kind == "text":
            from hlo_lint.hlo.text_proto import module_from_text

            data = module_from_text(data)
        return 0, encode(long_text(xla, data))
    except (PayloadError, ValueError, RuntimeError) as error:  # absl::Status is a RuntimeError
        return REFUSED, encode(f"jaxlib {release}: {xla_message(f'{error}')}")


_syntax_error = re.compile(r"was parsing (\d+:\d+): error: (.*)").search


def xla_message(text: str) -> str:
    """The first line of an error of XLA; of a syntax error the place, and what is wrong there."""
    syntax = _syntax_error(text)
    line = text.strip().partition("\n")[0]
    return f"{syntax[1]}: {syntax[2].rstrip(':')}" if syntax else line


def module_of_text(xla: ModuleType, data: bytes) -> bytes:
    """The serialized HloModuleProto of HLO text."""
    return bytes(xla.hlo_module_from_text(data.decode()).as_serialized_hlo_module_proto())


def _wrapped(module: bytes, form: str) -> bytes:
    """An HloProto with that module, or an HloSnapshot, or the text format of the first."""
    proto = delimited(1, module).raw
    if form == "snapshot":
        return delimited(1, proto).raw
    if form == "text":
        from hlo_lint.hlo.text_proto import proto_to_text

        return proto_to_text(proto)
    return proto


def xla_bindings() -> ModuleType:
    """XLA's Python bindings of HLO: `_hlo`, and before jaxlib 0.10.2 `_jax`."""
    try:
        return import_module("jaxlib._hlo")
    except ModuleNotFoundError as error:
        if error.name != "jaxlib._hlo":
            raise
        return import_module("jaxlib._jax")


def long_text(xla: ModuleType, data: bytes) -> str:
    """The long text: the defaults are those of `--xla_dump_hlo_as_long_text` (dump.cc)."""
    options = xla.HloPrintOptions()
    options.print_large_constants = True
    return str(xla.HloModule.from_serialized_hlo_module_proto(data).to_string(options))
