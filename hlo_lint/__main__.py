"""`python -m hlo_lint` is `hlo-lint`."""

from hlo_lint.apps.cli.main import main

main()
