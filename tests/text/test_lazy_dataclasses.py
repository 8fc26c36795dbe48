"""Classes of the late decorator behave as those of the standard one do."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

import pytest

from hlo_lint.text import lazy_dataclasses
from hlo_lint.text.edits import Edit
from hlo_lint.text.source import Span

OPTIONS: tuple[dict[str, bool], ...] = (
    {},
    {"frozen": True},
    {"slots": True},
    {"frozen": True, "slots": True, "order": True},
    {"eq": False},
    {"repr": False, "kw_only": True},
)


def made(module: ModuleType | Any, options: dict[str, bool]) -> Any:
    """A class that one of the decorators made, with a subclass of it."""

    @module.dataclass(**options)
    class Base:
        number: int
        shared: ClassVar[int] = 5
        words: list[str] = module.field(default_factory=list, hash=False)
        hidden: str = module.field(default="", compare=False, repr=False)

    @module.dataclass(**options)
    class Made(Base):
        number: int
        last: tuple[int, ...] = ()

        def __post_init__(self) -> None:
            if self.last == (0,):
                raise ValueError("it is zero")

    return Made


def facts(kind: Any) -> dict[str, object]:
    """The visible behaviour of a class."""
    one, same, other = (kind(number=number, hidden=str(at)) for at, number in enumerate((1, 1, 2)))
    results: dict[str, object] = {
        "repr": repr(one).rpartition(".")[2] if kind.__repr__ is not object.__repr__ else "",
        "equal": (one == same, one == other, one == 1),
        "match": kind.__match_args__,
        "signature": str(inspect.signature(kind)),
        "fields": [(field.name, field.type, field.repr) for field in dataclasses.fields(kind)],
        "replaced": dataclasses.replace(one, number=9).number,
        "dictionary": dataclasses.asdict(other),
        "default": (one.words, one.shared, one.words is same.words),
        "slots": hasattr(one, "__dict__"),
        "copy": copy.copy(one).number,
    }
    calls = {
        "hash": lambda: hash(one) == hash(same),
        "less": lambda: one < other,
        "assigned": lambda: setattr(one, "number", 3),
        "deleted": lambda: delattr(one, "number"),
        "missing": kind,
        "unknown": lambda: kind(number=1, unknown=2),
        "positional": lambda: kind(1, ["a"], "b", (3,)).last,
        "checked": lambda: kind(number=1, last=(0,)),
    }
    for name, call in calls.items():
        try:
            results[name] = call()
        except Exception as error:
            results[name] = type(error), str(error).partition(" and ")[0]
    return results


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_classes_behave_as_those_of_the_standard_library(options: dict[str, bool]) -> None:
    expected = facts(made(dataclasses, options))
    results = facts(made(lazy_dataclasses, options))
    assert results == expected


def made_tuple(base: Any) -> Any:
    """A class of named tuples with that base."""

    class Made(base):  # type: ignore[misc]
        number: int
        words: tuple[str, ...] = ()
        """A default."""

        def __str__(self) -> str:
            return f"number {self.number}"

    return Made


def facts_of_tuples(kind: Any) -> dict[str, object]:
    """The visible behaviour of a class of named tuples."""
    one, parameters = kind(1), inspect.signature(kind).parameters.values()
    results: dict[str, object] = {
        "classes": (kind.__mro__[-2:], hasattr(one, "__dict__")),
        "fields": (kind._fields, kind._field_defaults, kind.__match_args__),
        "signature": [(each.name, each.default) for each in parameters],
        "values": (one, repr(one), one._asdict(), hash(one), one == kind(number=1), str(one)),
        "copies": (copy.copy(one), kind._make([3, ()]), one._replace(words=("a",)).words),
    }
    calls = {
        "missing": kind,
        "more": lambda: kind(1, (), 2),
        "unknown": lambda: kind(number=1, unknown=2),
        "made of": lambda: kind._make([]),
        "replaced": lambda: one._replace(unknown=2),
        "assigned": lambda: setattr(one, "number", 3),
    }
    for name, call in calls.items():
        with pytest.raises((AttributeError, TypeError, ValueError)) as error:
            call()
        results[name] = error.type
    return results


def test_named_tuples_behave_as_those_of_the_standard_library() -> None:
    expected = facts_of_tuples(made_tuple(NamedTuple))
    assert facts_of_tuples(made_tuple(lazy_dataclasses.NamedTuple)) == expected


def test_values_go_through_pickle() -> None:
    edit = Edit(Span(1, 2), "text")
    assert pickle.loads(pickle.dumps(edit)) == edit
    assert lazy_dataclasses.replace(edit, text="other") == Edit(Span(1, 2), "other")
