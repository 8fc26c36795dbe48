"""Child processes for XLA's code, which answer requests, or die.

    with Child(limits=ChildLimits.by_default(60)) as child:
        release, _ = child.call(bindings.release)
        refusal, _ = child.call(bindings.refusal, b"HloModule m")

A child serves many requests. A child that dies, or takes too long, fails only its request: the next
request starts another child.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final, Generic, Literal, ParamSpec, Self, TypeAlias, TypeVar

from hlo_lint.text.errors import HloLintError, UsageError
from hlo_lint.text.source import decode, shown
from hlo_lint.xla.limits import MEMORY, SECONDS, ChildLimits
from hlo_lint.xla.server import read_message, ready, write_message

START_SECONDS: Final = 120.0
"""The time limit for a child's imports."""
MAX_LOG: Final = 1 << 26
"""The largest part of a log, in bytes from its end, that is read."""

# -P: the child imports nothing from the current directory, which may hold dumps.
_START: Final = """\
import json, sys
if sys.version_info < (3, 11):
    sys.exit("it is older than Python 3.11")
terms = json.loads(sys.argv.pop(1))
sys.path[:] = terms["path"] or sys.path
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("hlo_lint", terms["package"])
sys.modules["hlo_lint"] = module_from_spec(spec)
spec.loader.exec_module(sys.modules["hlo_lint"])
from hlo_lint.xla.server import serve
serve(terms)
"""
_PACKAGE: Final = Path(__file__).parents[1] / "__init__.py"

_P = ParamSpec("_P")
Answer: TypeAlias = tuple[Any, Sequence[bytes]]
"""A JSON value, and blocks of bytes."""

Forks: TypeAlias = Literal["never", "after death", "each time"]

_memory = re.compile(
    r"bad_alloc|MemoryError|(?i:out of memory|cannot allocate memory|memory allocation|mmap failed)"
)
_logged = re.compile(r"^[ \t]*([EF])\d{4} \S+ +\d+ (\S+\] .*)", re.A | re.M)


def logged(log: str, level: str) -> list[str]:
    """Absl's messages of a level, without time and process: `shape.cc:12] Check failed: …`.

    `level` is `F` for fatal messages, `E` for errors.
    """
    return [message.rstrip() for of, message in _logged.findall(log) if of == level]


class ChildError(HloLintError):
    """An exception that the called function raised."""

    def __init__(self, class_name: str, message: str) -> None:
        super().__init__(message)
        self.class_name = class_name
        """The name of its class: `ImportError` also for its subclasses."""


class ChildDied(HloLintError):
    """A child that ended before it answered: `XLA was ended by SIGABRT: shape.cc:12] Check …`."""

    def __init__(self, status: int, log: str, late: float | None = None) -> None:
        self.status, self.log = status, log
        self.is_late = late is not None
        """True if it was killed at its time limit."""
        self.reason = self._reason(late)
        """`was ended by SIGABRT`, or the limit that it reached."""
        fatal = logged(log, "F")
        lines = [line.strip() for line in log.splitlines() if line.strip()]
        self.last_words = shown((fatal or lines[-1:] or [""])[0])[:300]
        """XLA's fatal message, else the last line of the log."""
        words = "" if self.is_late else self.last_words
        super().__init__(f"XLA {self.reason}{': ' * bool(words)}{words}")

    def _reason(self, late: float | None) -> str:
        if late is not None:
            return f"was still at it after {late:g} seconds ({SECONDS} sets another limit)"
        if _memory.search(self.log):
            return f"needed more memory than it may have ({MEMORY} sets the MB)"
        if self.status >= 0:
            return f"ended with status {self.status}"
        if -self.status == getattr(signal, "SIGXCPU", None):
            return f"took too long ({SECONDS} sets the limit)"
        names = {number.value: number.name for number in signal.Signals}
        return f"was ended by {names.get(-self.status, f'signal {-self.status}')}"


class Child:
    """A child process that starts with the first request, and ends with the context."""

    def __init__(
        self,
        python: Path | str | None = None,
        *,
        limits: ChildLimits,
        setup: Callable[[], Answer] = ready,
        forks: Forks = "never",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Describe the child, without starting it.

        Args:
            python: an interpreter with jaxlib; None for this one, with its `sys.path`.
            limits: of each request.
            setup: a function to call when it has started; `state` is its result.
            forks: when the server, after its setup, forks a process that answers (on POSIX): a fork
                that dies costs less than a child, and XLA reads its flags once per process.
            environment: variables in addition to those of this process.
        """
        self.python = str(python or sys.executable)
        self.limits = limits
        self.state: Any = None
        self._setup, self._forks = setup, forks
        # XLA aborts on an unknown flag. It logs errors depending on jax's variable.
        self._environment = {
            **{name: value for name, value in os.environ.items() if name != "XLA_FLAGS"},
            "JAX_PLATFORMS": "cpu",
            "TF_CPP_MIN_LOG_LEVEL": "1",
            **(environment or {}),
        }
        self._path = None if python else list(sys.path)
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start it unless it is running, and call its `setup`.

        Raises:
            UsageError: the interpreter cannot be run.
            ChildError: `setup` raised an exception.
            ChildDied: it did not survive it.
        """
        if self._process is not None:
            return
        terms = {
            "parent": os.getpid(),
            "memory": self.limits.effective_memory,
            "setup": _request(self._setup, {}, START_SECONDS),
            "forks": self._forks,
            "path": self._path,
            "package": str(_PACKAGE),
        }
        self._log = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  it lives as long as the child
        try:
            self._process = subprocess.Popen(
                [self.python, "-P", "-c", _START, json.dumps(terms)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=self._environment,
                # A terminal's signal reaches only the parent, which ends the whole group.
                process_group=None if sys.platform == "win32" else 0,
            )
        except OSError as error:
            self.close()
            raise UsageError(f"{self.python} cannot be run: {error.strerror}") from error
        try:
            self.state, _ = self._answer(START_SECONDS)
        except ChildError:
            self.close()
            raise

    def call(
        self, function: Callable[_P, Answer], /, *blocks: _P.args, **arguments: _P.kwargs
    ) -> Answer:
        """Call a function of this package in the child, and return its answer.

        Args:
            function: a module's function that takes bytes by position and JSON by name.

        Raises:
            UsageError: the interpreter cannot be run.
            ChildError: the function raised an exception.
            ChildDied: the child did not survive it, or took too long.
            NoTimeLeft: the time for all requests is up.
        """
        return self.call_within(self.limits.seconds, function, *blocks, **arguments)

    def call_within(
        self,
        seconds: float,
        function: Callable[_P, Answer],
        /,
        *blocks: _P.args,
        **arguments: _P.kwargs,
    ) -> Answer:
        """As `call`, with a limit of its own in seconds."""
        self.limits.deadline.check()
        self.limits.deadline.register(self)
        self.start()
        return self._answer(seconds, _request(function, arguments, seconds), blocks)

    def log(self) -> str:
        """The end of the child's output since its last request."""
        if self._log is None:
            return ""  # it did not start
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - MAX_LOG))
        return decode(self._log.read())

    def end(self) -> None:
        """Kill the process, while another thread may wait for its answer."""
        process = self._process
        if process is not None:
            _kill(process)

    def close(self) -> None:
        """End the child, and its own children."""
        process, self._process = self._process, None
        if process is not None:
            _kill(process)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with suppress(OSError):  # unsent data is lost
                    pipe.close()
        if self._log is not None:
            self._log.close()
            self._log = None

    def _answer(
        self, seconds: float, request: Mapping[str, Any] | None = None, blocks: Sequence[Any] = ()
    ) -> Answer:
        """The answer to a request, or to `setup`, which is sent without a request."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        assert self._log is not None
        # The child shares the position in the file.
        self._log.seek(0)
        self._log.truncate()
        late: float | None = None
        seconds = min(seconds, max(self.limits.deadline.left, 0))

        def stop() -> None:
            nonlocal late
            late = seconds
            _kill(process)

        clock = threading.Timer(seconds, stop)
        clock.daemon = True
        clock.start()
        try:
            if request is not None:
                write_message(process.stdin, request, blocks)
            answer, results = read_message(process.stdout)
        except (EOFError, BrokenPipeError):
            death = ChildDied(process.wait(), self.log(), late)
            self.close()
            self.limits.deadline.check()
            raise death from None
        except BaseException:  # an interrupt: the next request would get this answer
            self.close()
            raise
        finally:
            clock.cancel()
        if "died" in answer:
            raise ChildDied(answer["died"], self.log())
        if "error" in answer:
            raise ChildError(*answer["error"])
        return answer["value"], results


def _request(
    function: Callable[..., Answer], arguments: Mapping[str, Any], seconds: float
) -> dict[str, Any]:
    name = [function.__module__, function.__name__]
    return {"function": name, "arguments": arguments, "seconds": seconds}


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)


_Held = TypeVar("_Held", bound=AbstractContextManager[Any])


class Pool(AbstractContextManager["Pool[Any]"], Generic[_Held]):
    """Holders of children, a holder for each thread at a time; ends them when it closes.

    A fork of this process has its own children: two clients would mix up a child's answers.
    """

    def __init__(self, start: Callable[[], _Held]) -> None:
        self._start = start
        self._others: list[ExitStack] = []
        """Holders of the processes that this one is a fork of, which end them."""
        self._begin()

    def _begin(self) -> None:
        self._process, self._held = os.getpid(), ExitStack()
        self._idle: queue.SimpleQueue[_Held] = queue.SimpleQueue()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the children."""
        self._held.close()

    @contextmanager
    def one(self) -> Iterator[_Held]:
        """A holder that no other thread uses until the context ends."""
        if self._process != os.getpid():
            self._others.append(self._held)
            self._begin()
        try:
            holder = self._idle.get_nowait()
        except queue.Empty:
            holder = self._held.enter_context(self._start())
        try:
            yield holder
        finally:
            self._idle.put(holder)
