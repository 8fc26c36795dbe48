"""Child processes for XLA's code, which may abort, hang, or take all memory.

    command = python_command("hlo_lint.hlo.xla_child", "wire")
    child = run(command, data, ResourceLimits.by_default(seconds=300))

A child gets limits on its memory and CPU time, and ends when its parent does.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from hlo_lint.text.errors import UsageError

SECONDS: Final = "HLO_LINT_XLA_SECONDS"
"""The variable with the seconds that XLA may take for one module."""
MEMORY: Final = "HLO_LINT_XLA_MEMORY"
"""The variable with the MB that a child may allocate."""
LIMITED: Final = Path(__file__).with_name("limited.py")
"""The file that sets limits: a child whose interpreter has no hlo_lint runs it by its path."""
LOGS_ERRORS: Final = {"TF_CPP_MIN_LOG_LEVEL": "1"}
"""The variable with which XLA logs its errors, as jax sets it: of a field that it does not know."""

_CHILD: Final = (
    "import sys, json; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from hlo_lint.hlo.limited import begin; begin(json.loads(sys.argv.pop(1))); "
    "from {} import main; main()"
)

_memory = re.compile(
    r"bad_alloc|MemoryError|(?i:out of memory|cannot allocate memory|memory allocation|mmap failed)"
)


class ChildTimeout(Exception):
    """A child that was ended after its time; the message says how to give it more."""

    def __init__(self, limits: ResourceLimits, output: bytes = b"") -> None:
        super().__init__(
            f"XLA was still at it after {limits.seconds or 0:g} seconds "
            f"({SECONDS} sets another limit)"
        )
        self.output = output
        """The output that it had written."""


@dataclass(frozen=True)
class ResourceLimits:
    """The resources that one child may take."""

    seconds: float | None
    """From its start to its end; None for any time."""
    memory: int | None
    """Bytes that it may allocate; None for as many as the machine has."""

    @classmethod
    def by_default(cls, *, seconds: float, memory: int | None = None) -> Self:
        """Limits that the environment variables override.

        Raises:
            UsageError: for a variable that is not a positive number.
        """
        megabytes = _positive(MEMORY)
        return cls(
            _positive(SECONDS) or seconds, memory if megabytes is None else int(megabytes) << 20
        )

    @property
    def bytes(self) -> int | None:
        """`memory`, or the memory of the machine; None if that is unknown."""
        if self.memory is not None:
            return self.memory
        try:
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, ValueError, OSError):
            return None


def _positive(variable: str) -> float | None:
    text = os.environ.get(variable, "")
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number < 1e12:
        raise UsageError(f"{variable} is a positive number, not {text!r}")
    return number


def python_command(
    module: str, *arguments: str, limits: ResourceLimits, search_path: Sequence[str] | None = None
) -> list[str]:
    """The command of a child that calls `main` of a module.

    It imports from the search path, by default that of this process.
    """
    where = json.dumps(list(sys.path if search_path is None else search_path))
    # -P: the child imports nothing from the current directory, which may hold dumps.
    code = _CHILD.format(module)
    terms = json.dumps(terms_of(limits))
    return [sys.executable, "-P", "-c", code, where, terms, *arguments]


def terms_of(limits: ResourceLimits) -> Mapping[str, int | float | None]:
    """The limits of a child of this process, as `begin` of `limited.py` sets them."""
    return {"parent": os.getpid(), "memory": limits.bytes, "seconds": limits.seconds}


def environment(**extra: str) -> dict[str, str]:
    """The environment of a child that reads: XLA aborts on a flag that it does not know."""
    return {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"} | extra


def run(
    command: Sequence[str],
    data: bytes,
    limits: ResourceLimits,
    environment: Mapping[str, str],
) -> subprocess.CompletedProcess[bytes]:
    """Run a child to its end, with these bytes on its standard input.

    Raises:
        ChildTimeout: it took too long.
        OSError: it cannot be started.
    """
    try:
        return subprocess.run(
            command,
            input=data,
            capture_output=True,
            timeout=limits.seconds,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ChildTimeout(limits, error.stdout or b"") from None


def ending(status: int, log: str) -> str:
    """Say how a child died: `was ended by SIGABRT`; names the limit that it met."""
    if _memory.search(log):
        return f"needed more memory than it may have ({MEMORY} sets the MB)"
    if status >= 0:
        return f"ended with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        return f"was ended by signal {-status}"
    if name == "SIGXCPU":
        return f"took too long ({SECONDS} sets the limit)"
    return f"was ended by {name}"
