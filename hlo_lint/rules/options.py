"""Options of rules that a configuration may change."""

from __future__ import annotations

from typing import Generic, Self, TypeVar, overload

from hlo_lint.text.errors import UsageError
from hlo_lint.text.phrases import in_a_line

OptionValue = bool | int | float | str
"""The type of an option's value, as in TOML."""

MAX_NUMBER = (1 << 63) - 1

T = TypeVar("T", bool, int, float, str)

TITLES: dict[type, str] = {bool: "true or false", int: "a whole number", float: "a number"}


class Option(Generic[T]):
    """An option of a rule, declared in its class: `min_bytes = Option(1 << 24, "…")`.

    The rule reads `self.min_bytes`; a configuration sets `min-bytes`. The default determines the
    type.
    """

    def __init__(
        self, default: T, doc: str, *, least: float | None = None, choices: tuple[T, ...] = ()
    ) -> None:
        self.default: T = default
        self.doc = doc
        """The meaning of the option, with its unit."""
        self.least = least
        self.choices: tuple[T, ...] = choices
        """The valid values; empty if any value of the type is valid."""
        self.attribute = ""
        self.name = ""
        """The name in a configuration."""

    def __repr__(self) -> str:
        return in_a_line(f"<Option {self.name}: {self.default!r} by default>")

    def __set_name__(self, owner: type, name: str) -> None:
        self.attribute = name
        self.name = name.replace("_", "-")

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Self | T:
        return self if instance is None else self.default  # a set value is in the instance's dict

    @property
    def value_type(self) -> type[bool] | type[int] | type[float] | type[str]:
        """The type of the default."""
        return type(self.default)

    @property
    def expected(self) -> str:
        """The accepted values, in words.

        >>> Option(2.5, "seconds", least=0).expected
        'a number of at least 0'
        """
        if self.choices:
            return " or ".join(map(str, self.choices))
        title = TITLES.get(self.value_type, "a text")
        return title if self.least is None else f"{title} of at least {self.least}"

    def read(self, value: object) -> OptionValue:
        """Validate a value and return it.

        Raises:
            UsageError: the value is invalid.
        """
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        if isinstance(value, int) and not -MAX_NUMBER <= value <= MAX_NUMBER:
            raise UsageError(f"{self.name} takes a number of 64 bits")
        fits = numeric if self.value_type is float else type(value) is self.value_type
        fits = fits and (not self.choices or value in self.choices)
        if not fits or (self.least is not None and numeric and not value >= self.least):  # type: ignore[operator]
            raise UsageError(f"{self.name} takes {self.expected}, not {value!r}")
        assert isinstance(value, bool | int | float | str)
        return value
