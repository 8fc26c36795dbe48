"""The `hlo-lint` program; `python -m hlo_lint` is the same."""

import gc
import os
import signal
import sys


def main() -> None:
    """Import the command line and run it."""
    # In a short run, all data lives until the report, and neither data nor imports make cycles.
    gc.disable()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # An interrupt ends the process without a traceback, until there is something to clean up.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from hlo_lint.apps.cli.program import main as run

    run()


def _leave_working_folder() -> None:
    """Prevent imports from the working folder, which `python -m` puts first in `sys.path`."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()] != [home]:
        del sys.path[0]


if __name__ == "__main__":
    _leave_working_folder()
    main()
