"""XLA:CPU of the installed jaxlib, in a child process with limits on time and memory.

    with XlaCpu() as xla:
        results = xla.run(text, inputs)

The child serves many texts, because importing jax takes longer than most compilations. A text on
which XLA aborts ends the child, not the caller: the next text starts another child.
"""

from __future__ import annotations

import json
import re
import selectors
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Final

from hlo_lint.hlo import children
from hlo_lint.hlo.parser.literals import numpy_dtype
from hlo_lint.hlo.xla_log import fatal_messages
from hlo_lint.text.errors import DumpError, HloLintError
from hlo_lint.text.source import decode, shown
from hlo_lint.xla.child import Pool

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_SECONDS: Final = 60.0
"""CPU time that one text may take, to compile and to run."""
MAX_BYTES: Final = 8 << 30
"""Address space of the child."""
_START_SECONDS: Final = 120.0
"""Time in which a child has to import jax."""
_PATIENCE: Final = 5
"""A loaded machine may take this many times longer than the CPU time."""


class NotRun(HloLintError):
    """A text that XLA:CPU did not run to the end; the message says why."""


class XlaCpu:
    """XLA:CPU in a child process, which starts with the first text and ends with the context."""

    def __init__(self, *, seconds: float | None = None, memory: int | None = None) -> None:
        """`seconds` of CPU time for each text, `memory` in bytes for the child."""
        limits = children.ResourceLimits.by_default(seconds=MAX_SECONDS, memory=MAX_BYTES)
        self.seconds = seconds or limits.seconds or MAX_SECONDS
        self.memory = memory or limits.memory or MAX_BYTES
        self.texts_run = 0
        """The number of texts that ran to the end."""
        self._child: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def __enter__(self) -> XlaCpu:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sibling(self) -> XlaCpu:
        """Another child with the same limits."""
        return XlaCpu(seconds=self.seconds, memory=self.memory)

    def close(self) -> None:
        """End the child process."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()
        if self._log is not None:
            self._log.close()
            self._log = None

    def run(
        self,
        text: str,
        inputs: Sequence[NDArray[Any]] = (),
        *,
        flags: Mapping[str, bool | int | str] | None = None,
    ) -> list[NDArray[Any]]:
        """The results of a module: the leaves of its root, in order.

        Args:
            text: HLO that the installed jaxlib reads, with one device and arrays as parameters.
            inputs: a value for each parameter of the entry computation.
            flags: XLA flags for this compilation, beside those of the child.

        Raises:
            NotRun: XLA refused the text, aborted, or needed more time or memory than the limits.
            DumpError: jaxlib is not installed.
        """
        if self._child is None:
            self._start()
        request = {
            "text": text,
            "flags": dict(flags or {}),
            "seconds": self.seconds,
        }
        try:
            self._send(request, inputs)
            answer, results = self._receive(self.seconds * _PATIENCE)
        except (EOFError, BrokenPipeError):
            raise NotRun(self._ending()) from None
        if "error" in answer:
            raise NotRun(shown(answer["error"]))
        self.texts_run += 1
        return results

    # ---- the child

    def _start(self) -> None:
        environment = children.environment(
            JAX_PLATFORMS="cpu", JAX_ENABLE_X64="1", OPENBLAS_NUM_THREADS="1"
        )
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the child
        # It serves many texts, and limits its CPU time for each.
        limits = children.ResourceLimits(None, self.memory)
        command = children.python_command("hlo_lint.engine.values.xla_child", limits=limits)
        try:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=environment,
            )
        except OSError as error:
            raise NotRun(f"{sys.executable} cannot be started: {error}") from error
        try:
            answer, _ = self._receive(_START_SECONDS)
        except EOFError:
            raise NotRun(self._ending()) from None
        if "error" in answer:
            self.close()
            raise DumpError(answer["error"])

    def _send(self, request: Mapping[str, Any], arrays: Sequence[NDArray[Any]]) -> None:
        assert self._child is not None
        assert self._child.stdin is not None
        write_message(self._child.stdin, request, arrays)

    def _receive(self, seconds: float) -> tuple[dict[str, Any], list[NDArray[Any]]]:
        assert self._child is not None
        assert self._child.stdout is not None
        pipe = self._child.stdout
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            if not selector.select(seconds):
                self._child.kill()
                self._child.wait()
                raise EOFError
        return read_message(pipe)

    def _ending(self) -> str:
        """The reason why the child ended, which is closed; the next text starts another one."""
        assert self._child is not None
        assert self._log is not None
        status = self._child.wait()
        self._log.seek(0)
        log = decode(self._log.read())
        self.close()
        if -status in (signal.SIGXCPU, signal.SIGKILL):
            return f"XLA needed more than {self.seconds:g} seconds"
        line = fatal_line(log)
        if "bad_alloc" in log or "out of memory" in log.lower():
            return f"XLA needed more than {self.memory >> 20} MB"
        ending = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        return f"XLA aborted ({ending}){': ' * bool(line)}{line}"


_LOG = re.compile(r"(?:Traceback|[A-Z]\w*Error: |.*Check failed).*")


def fatal_line(log: str) -> str:
    """The line of a log in which absl or Python says why the process ends."""
    fatal = fatal_messages(log) or _LOG.findall(log)
    return shown(fatal[-1])[:300] if fatal else ""


def xla_cpus(*, seconds: float | None = None, memory: int | None = None) -> Pool[XlaCpu]:
    """Several such children with the limits of `XlaCpu`, one for each thread at a time."""
    return Pool(lambda: XlaCpu(seconds=seconds, memory=memory))


# ---- messages: a length, a JSON object, then the bytes of its arrays


def _description(array: NDArray[Any]) -> dict[str, Any]:
    from hlo_lint.hlo.dtypes import ELEMENT_TYPES

    name = array.dtype.name
    dtype = next(key for key, kind in ELEMENT_TYPES.items() if kind.numpy == name)
    return {"dtype": dtype, "dims": list(array.shape), "bytes": array.nbytes}


def write_message(
    pipe: IO[bytes], message: Mapping[str, Any], arrays: Sequence[NDArray[Any]]
) -> None:
    """Write a JSON object, and arrays after it."""
    head = json.dumps({**message, "arrays": list(map(_description, arrays))}).encode()
    pipe.write(struct.pack("<Q", len(head)) + head)
    for array in arrays:
        pipe.write(array.tobytes())
    pipe.flush()


def read_message(pipe: IO[bytes]) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    """The object and the arrays that `write_message` wrote.

    Raises:
        EOFError: the other side has ended.
    """
    import numpy as np

    (length,) = struct.unpack("<Q", _read(pipe, 8))
    message = json.loads(_read(pipe, length))
    arrays = []
    for array in message.pop("arrays"):
        data = _read(pipe, array["bytes"])
        arrays.append(np.frombuffer(data, numpy_dtype(array["dtype"])).reshape(array["dims"]))
    return message, arrays


def _read(pipe: IO[bytes], count: int) -> bytes:
    data = pipe.read(count)
    if len(data) < count:
        raise EOFError
    return data
