"""The pytest plugin: a marker that hunts for bugs of passes before a test.

    @pytest.mark.hlo_lint_hunt(passes=["my-pass"], minutes=1)
    def test_my_pass(): ...

The arguments are those of `hlo_lint_hunt.hunt`.
"""

from __future__ import annotations

import pytest

__all__: list[str] = []


def pytest_configure(config: pytest.Config) -> None:
    """The marker."""
    config.addinivalue_line(
        "markers", "hlo_lint_hunt(passes=…, minutes=…): hunt for bugs of passes before the test"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Hunt as the markers say; a bug that is found fails the test."""
    for marker in item.iter_markers("hlo_lint_hunt"):
        from hlo_lint_hunt.campaign import hunt

        hunt(**marker.kwargs)
