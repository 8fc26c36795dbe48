"""The `hlo-lint` program as a process: its streams, signals, exit status."""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import suppress
from threading import Timer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_BY_SIGNAL = 128
"""The exit status of a program that a signal ended, less the number of the signal."""
SIGPIPE = 13
"""Its number, also where the system has no such signal."""
CLEANUP_SECONDS = 1.0
"""The time that a command has to clean up after a signal."""
_MESSAGES = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "the terminal was closed"}


class Signal(KeyboardInterrupt):
    """A signal that ends the program; code that cleans up after Ctrl-C also does so after it."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def main() -> None:
    """The `hlo-lint` program."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed: a file that is opened next may not get its descriptor
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    handle_signals(_raise)
    sys.unraisablehook = _redeliver
    status = _status()
    # Nothing is left to clean up: a signal ends the process at once.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, 0)
    if status > _BY_SIGNAL:
        # The pool of workers, ended at its work, may print a traceback while Python shuts down.
        with suppress(OSError):
            sys.stderr.flush()
        os._exit(status)
    gc.freeze()  # Python's last collection, of all that was read, would take as long as a check
    sys.exit(status)


def handle_signals(handler: Callable[[int, FrameType | None], None]) -> None:
    """Have signals that end the program call a function."""
    for name in _MESSAGES:
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # as of `nohup`
            signal.signal(number, handler)
    if hasattr(signal, "setitimer"):
        # A signal that arrives as a wait begins does not end the wait: the alarm each second does.
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 1, 1)


def _raise(number: int, _: object) -> None:
    signal.signal(number, signal.SIG_DFL)  # the second one is obeyed at once
    # What cleans up may wait for a thread or a child: not for long. Children end with this process.
    clock = Timer(CLEANUP_SECONDS, lambda: os._exit(after_signal(number)))
    clock.daemon = True
    clock.start()
    raise Signal(number)


def _redeliver(lost: sys.UnraisableHookArgs) -> None:
    """Re-deliver a signal whose exception Python swallowed, as in the callback of a weakref."""
    if isinstance(lost.exc_value, Signal):
        number = lost.exc_value.number
        signal.signal(number, _raise)
        Timer(0.01, os.kill, (os.getpid(), number)).start()
    else:
        sys.__unraisablehook__(lost)


def _status() -> int:
    """Run the command, and return its exit status."""
    try:
        from hlo_lint.apps.cli.main import cli

        status = cli.main(prog_name="hlo-lint", standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt as error:  # it may have interrupted the import of click
        return after_signal(signal_of(error))
    except BaseException as error:
        if isinstance(error, MemoryError):
            error.__traceback__ = None  # its frames hold all that was read
        from hlo_lint.apps.cli.failures import status_after

        try:
            return status_after(error)
        except OSError:  # standard error cannot be written either
            return 2
    return status if isinstance(status, int) else 0


def signal_of(interrupt: KeyboardInterrupt) -> int:
    """The signal that an interrupt came from."""
    return interrupt.number if isinstance(interrupt, Signal) else signal.SIGINT


def after_signal(number: int) -> int:
    """The exit status that a shell gives a program that the signal ended."""
    if number == SIGPIPE:
        discard_output()
    else:
        print(_MESSAGES[signal.Signals(number).name], file=sys.stderr)
    return _BY_SIGNAL + number


def discard_output() -> None:
    """Redirect standard output to /dev/null: Python flushes it as it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
