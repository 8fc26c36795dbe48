"""A reduction ends with a small module that XLA reads and that is still interesting."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import pytest

from hlo_lint.engine.reduce.interest import CommandTest, Guard, InterestVerdict
from hlo_lint.engine.reduce.search import Search
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.text.errors import UsageError
from hlo_lint.xla.child import Pool
from hlo_lint.xla.parser import XlaParser
from tests.conftest import written
from tests.engine.reduce.programs import random_module

pytestmark = pytest.mark.slow


@dataclass
class HasOpcode:
    """Interesting is a module with an instruction of one opcode."""

    opcode: str = "copy"
    with_anchor: bool = True
    asked: Counter[str] = field(default_factory=Counter)
    lock: Lock = field(default_factory=Lock)

    def __call__(self, text: str) -> InterestVerdict:
        with self.lock:
            self.asked[text] += 1
        for computation in parse_file(text).modules[0].computations:
            for instruction in computation.with_opcode(self.opcode):
                at = (computation.name, instruction.name)
                return InterestVerdict(True, at if self.with_anchor else None)
        return InterestVerdict(False)


@pytest.fixture(scope="module")
def reads() -> Iterator[Guard]:
    pytest.importorskip("jaxlib")
    with Pool(XlaParser) as parsers:
        yield Guard(parsers)


@pytest.mark.parametrize("with_anchor", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_the_result_is_valid_and_interesting(seed: int, with_anchor: bool, reads: Guard) -> None:
    text, test = random_module(seed), HasOpcode(with_anchor=with_anchor)
    assert reads(text)
    reduction = Search(test, reads).run(text)
    assert reads(reduction.text)
    assert test(reduction.text).interesting
    assert reduction.after.size == 2
    assert not re.search(r"\[[^\]]*[2-9]", reduction.text)
    assert set(test.asked.values()) == {1, 2}  # the last two are asked here


def test_tests_at_a_time_do_not_change_the_result(reads: Guard) -> None:
    text = random_module(5)
    alone = Search(HasOpcode(with_anchor=False), reads).run(text)
    together = Search(HasOpcode(with_anchor=False), reads, jobs=4).run(text)
    assert alone.text == together.text


def test_what_xla_refuses_is_never_taken(reads: Guard) -> None:
    class Anything(HasOpcode):
        def __call__(self, text: str) -> InterestVerdict:
            return InterestVerdict("reduce(" in text)

    reduction = Search(Anything(), reads).run(random_module(11))
    assert reads(reduction.text)
    assert reduction.after.size == 5  # the computation it calls needs two parameters


def test_without_jaxlib_what_is_malformed_is_never_taken() -> None:
    reads, text = Guard(None), random_module(4)
    assert reads(text)
    assert not reads(text.replace("parameter(0)", "parameter(0", 1))
    assert not reads(text.replace("dimensions=", "dimension=", 1))


def test_a_problem_that_does_not_always_show_is_asked_for_again(reads: Guard) -> None:
    class Flaky(HasOpcode):
        def __call__(self, text: str) -> InterestVerdict:
            verdict = super().__call__(text)
            return verdict if self.asked[text] % 3 == 0 else InterestVerdict(False)

    reduction = Search(Flaky(), reads, repeat=3).run(random_module(2))
    assert reduction.after.size == 2
    with pytest.raises(UsageError, match="does not show the problem"):
        Search(Flaky(), reads, repeat=2).run(random_module(2))


def test_a_command_decides_by_its_status(tmp_path: Path, reads: Guard) -> None:
    script = written(tmp_path / "test.sh", "grep -q 'copy(' $1\n")
    reduction = Search(CommandTest(("sh", str(script)), 10), reads, jobs=2).run(random_module(3))
    assert reduction.after.size == 2


def test_a_command_that_hangs_says_no_and_is_ended(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    test = CommandTest(("sh", "-c", f"sleep 60 & echo $! > {mark}; wait"), 0.5)
    assert not test(random_module(0)).interesting
    child = Path("/proc", mark.read_text().strip(), "status")
    assert not child.exists() or "zombie" in child.read_text()


def test_a_command_that_is_not_there_is_a_clear_error() -> None:
    with pytest.raises(UsageError, match="no-such-command cannot be run"):
        CommandTest(("no-such-command",), 1)(random_module(0))
