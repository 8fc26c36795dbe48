"""What runs in a process of its own: XLA's code, which may abort, reads a module and prints it.

The input is standard input; the text, or else the reason, is standard output; `read_proto` knows
what the exit status means.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from types import ModuleType

from hlo_lint.syntax.proto import NO_JAXLIB, REFUSED


def main() -> None:
    """Read `wire` or `text`, as the first argument says, and end the process."""
    answer = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what else is printed is not the answer
    _leave_no_core()
    status, text = _answer(sys.argv[1], sys.stdin.buffer.read())
    with os.fdopen(answer, "wb") as out:
        out.write(text.encode("utf-8", "surrogateescape"))
    sys.exit(status)


def _answer(kind: str, data: bytes) -> tuple[int, str]:
    try:
        xla = xla_bindings()
        release = import_module("jaxlib.version").__version__
    except ImportError as error:
        return NO_JAXLIB, f"{error}"
    try:
        if kind == "text":
            from hlo_lint.syntax.text_proto import module_from_text

            data = module_from_text(data)
        return 0, long_text(xla, data)
    except (ValueError, RuntimeError) as error:  # an absl::Status becomes a RuntimeError
        reason = f"{error}".partition("\n")[0]
        return REFUSED, f"jaxlib {release}: {reason}"


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
