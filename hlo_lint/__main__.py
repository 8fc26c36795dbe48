"""`python -m hlo_lint` is `hlo-lint`."""

from hlo_lint.cli import main

main()
