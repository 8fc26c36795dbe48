"""The `hlo-lint` program; `python -m hlo_lint` is the same."""

import signal


def main() -> None:
    """Import the command line and run it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # An interrupt ends the process without a traceback, until there is something to clean up.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from hlo_lint.apps.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
