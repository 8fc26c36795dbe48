"""What runs in a process of its own: XLA's code, which may abort, reads a module and prints it.

The input is standard input; what it becomes, or else the reason, is standard output; `read_proto`
and `write_proto` know what the exit status means.
"""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module
from types import ModuleType

from hlo_lint.hlo.proto import NO_JAXLIB, REFUSED, delimited
from hlo_lint.text.source import encode


def main() -> None:
    """Do what the first argument says, and end the process.

    `wire` and `text` become HLO; HLO becomes `to wire`, `to snapshot` or `to text`.
    """
    answer = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what else is printed is not the answer
    _leave_no_core()
    status, data = _answer(sys.argv[1], sys.stdin.buffer.read())
    with os.fdopen(answer, "wb") as out:
        out.write(data)
    sys.exit(status)


def _answer(kind: str, data: bytes) -> tuple[int, bytes]:
    try:
        xla = xla_bindings()
        release = import_module("jaxlib.version").__version__
    except ImportError as error:
        return NO_JAXLIB, encode(f"{error}")
    try:
        if kind.startswith("to "):
            return 0, _wrapped(module_of_text(xla, data), kind.removeprefix("to "))
        if kind == "text":
            from hlo_lint.hlo.text_proto import module_from_text

            data = module_from_text(data)
        return 0, encode(long_text(xla, data))
    except (ValueError, RuntimeError) as error:  # an absl::Status becomes a RuntimeError
        where = _complaint(f"{error}")
        reason = f"{where[1]}: {where[2].rstrip(':')}" if where else f"{error}".partition("\n")[0]
        return REFUSED, encode(f"jaxlib {release}: {reason}")


_complaint = re.compile(r"was parsing (\d+:\d+): error: (.*)").search


def module_of_text(xla: ModuleType, data: bytes) -> bytes:
    """The serialized HloModuleProto of the module that HLO spells."""
    return bytes(xla.hlo_module_from_text(data.decode()).as_serialized_hlo_module_proto())


def _wrapped(module: bytes, form: str) -> bytes:
    """An HloProto with that module, or what holds one: on the wire, or in the text format."""
    proto = delimited(1, module)
    if form == "snapshot":
        return delimited(1, proto)
    if form == "text":
        from hlo_lint.hlo.text_proto import proto_to_text

        return proto_to_text(proto)
    return proto


def xla_bindings() -> ModuleType:
    """XLA's graph as Python sees it: in `_hlo`, before jaxlib 0.10.2 in `_jax`."""
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


def _leave_no_core() -> None:
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
