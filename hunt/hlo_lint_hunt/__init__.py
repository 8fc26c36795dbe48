"""The hunt for bugs of a released XLA: generated modules, judges, and campaigns.

    from hlo_lint_hunt import hunt

    def test_my_pass() -> None:
        hunt(passes=["my-pass"], minutes=1)

`hlo_lint_hunt.strategies` draws the same modules for hypothesis.
"""

TYPE_CHECKING = False
__version__ = "0.1.0"

if TYPE_CHECKING:
    from typing import Any

    from hlo_lint_hunt.campaign import hunt

__all__ = ["hunt"]


def _public(name: str) -> "Any":
    """Imported when it is asked for: pytest imports this package for its plugin in every run."""
    if name == "hunt":
        from hlo_lint_hunt.campaign import hunt

        return hunt
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# Type checkers read the import above; told of a `__getattr__`, they would accept any name.
if not TYPE_CHECKING:
    __getattr__ = _public


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
