"""What tests of rules and of passes ask for: `from hlo_lint.testing import hunt`."""

from hlo_lint.apps.hunt.api import hunt
from hlo_lint.apps.testing import check_example, check_examples, check_page, write_example

__all__ = ["check_example", "check_examples", "check_page", "hunt", "write_example"]
