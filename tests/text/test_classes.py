"""Classes made here do what those of the standard library do."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, field, replace
from typing import Any

import pytest

from hlo_lint.text.classes import dataclass

OPTIONS: tuple[dict[str, bool], ...] = (
    {},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "order": True},
    {"eq": False, "slots": True},
    {"repr": False, "kw_only": True},
)


def _class(make: Any, options: dict[str, bool]) -> Any:
    @make(**options)
    class Made:
        """Has a field of each kind."""

        first: int = field(kw_only=False)
        second: str = "b"
        shown: tuple[int, ...] = field(default=(), repr=False)
        uncompared: int = field(default=0, compare=False)
        unhashed: Any = field(default_factory=list, hash=False)

    return Made


@dataclass(frozen=True, slots=True)
class Base:
    """Has one field."""

    name: str


@dataclass(frozen=True, slots=True)
class Derived(Base):
    """Adds one, and checks it."""

    number: int = 0

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError("negative")

    def __repr__(self) -> str:
        return "shown"


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_objects_show_and_compare_as_those_of_the_standard_library(
    options: dict[str, bool],
) -> None:
    ours, theirs = _class(dataclass, options), _class(dataclasses.dataclass, options)
    arguments: list[dict[str, Any]] = [
        {"first": 1},
        {"first": 1, "uncompared": 3},
        {"first": 1, "second": "a"},
        {"first": 2, "shown": (1,), "unhashed": [2]},
    ]
    made = [[one(**given) for given in arguments] for one in (ours, theirs)]
    if options.get("repr", True):
        assert repr(made[0]) == repr(made[1])
    for at in range(len(arguments)):
        for other in range(len(arguments)):
            assert (made[0][at] == made[0][other]) == (made[1][at] == made[1][other])
    if options.get("order"):
        assert sorted(made[0])[0] is made[0][2]
    assert ours.__match_args__ == theirs.__match_args__
    assert (ours.__hash__ is None) == (theirs.__hash__ is None)
    if options.get("frozen"):
        assert len(dict.fromkeys(made[0])) == len(dict.fromkeys(made[1])) == 3
        with pytest.raises(FrozenInstanceError):
            made[0][0].first = 2
        with pytest.raises(FrozenInstanceError):
            del made[0][0].first
    assert ours(1) != theirs(1)
    assert hasattr(made[0][0], "__dict__") == hasattr(made[1][0], "__dict__")
    assert made[0][0].unhashed is not made[0][1].unhashed


def test_wrong_arguments_are_refused_by_the_name_of_the_class() -> None:
    with pytest.raises(TypeError, match=r"Base.__init__\(\) missing 1 required .*: 'name'"):
        Base()  # type: ignore[call-arg]


def test_a_derived_class_has_all_fields_and_its_own_methods() -> None:
    made = replace(Derived("n"), number=2)
    assert (made.name, made.number, repr(made)) == ("n", 2, "shown")
    assert made != Derived("n")
    with pytest.raises(ValueError, match="negative"):
        Derived("n", -1)


def test_frozen_objects_are_copied_and_sent_to_other_processes() -> None:
    made = Derived("n", 3)
    assert pickle.loads(pickle.dumps(made)) == copy.copy(made) == copy.deepcopy(made) == made
