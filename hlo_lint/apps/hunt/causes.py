"""Findings grouped by cause: reduced, signed, and told apart from what is known.

A signature is what stays the same when a module is reduced: the kind, the pass, XLA's check without
names and numbers, and the opcodes of the reduced module.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hlo_lint.apps.hunt import show
from hlo_lint.apps.hunt.judge import CPU, GPU, BugFinding, JudgeVerdict, hunt_inputs
from hlo_lint.apps.jax.capture.targets import target_of
from hlo_lint.apps.reduction import parser
from hlo_lint.engine.reduce.interest import InterestVerdict
from hlo_lint.engine.reduce.search import Reduction, Search
from hlo_lint.engine.values.validate import SEEDS
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.report.repro import Environment, Repro, write_repro
from hlo_lint.text.errors import UsageError
from hlo_lint.text.files import write
from hlo_lint.xla.cpu import devices_of

_KNOWN: Final[dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("known.toml").read_text("utf-8")
)["known"]
_SHAPELESS: Final = frozenset(("parameter", "constant", "tuple", "get-tuple-element"))
JudgeOf = Callable[[str], JudgeVerdict]


@dataclass(frozen=True)
class BugCause:
    """The mistake behind one or more findings, with the smallest module that shows it."""

    finding: BugFinding
    text: str
    """The reduced module."""
    size: tuple[int, int]
    """Its instructions before and after the reduction."""
    shows: tuple[str, ...]
    """The compilers in which the module shows it: `0.10.2 cpu`."""
    seed: int
    """Of the first module that showed it."""

    @property
    def signature(self) -> str:
        """The cause, and the opcodes of the module."""
        return cause_signature(self.finding, self.text)

    @property
    def issue(self) -> str:
        """The place where it is told of; empty for what is new."""
        return known_issue(self.finding.cause) or known_issue(self.signature)

    def write(self, folder: Path) -> None:
        """Write the directory of `hlo-lint repro` for a GPU, else the module with what it does.

        Raises:
            DumpError: they cannot be written.
        """
        finding, (release, _, target) = self.finding, self.shows[0].partition(" ")
        if target not in (CPU, GPU) and not (chip := target_of(target)).is_tpu:
            given = Environment(release, chip.description)
            write_repro(Repro(self.text, finding.message, self.size, given), folder)
            return
        lines = [f"{finding.kind} by {finding.pass_name or 'XLA'}, jax {', '.join(self.shows)}:"]
        lines += [*finding.message.splitlines(), f"python -m {show.__name__} reduced.hlo"]
        for array in hunt_inputs(parse_file(self.text).modules[0], SEEDS[0]):
            numbers = (array if array.dtype.kind in "biufc" else array.astype(float)).tolist()
            lines.append(f"input: {array.dtype.name} {numbers}")
        write(folder / "reduced.hlo", "".join([*(f"// {line}\n" for line in lines), self.text]))


@dataclass(frozen=True)
class CauseTest:
    """A module that is judged to have a finding of one cause."""

    judge: JudgeOf
    key: str

    def __call__(self, text: str) -> InterestVerdict:
        """The verdict on a text."""
        finding = self.judge(text).finding
        return InterestVerdict(finding is not None and finding.cause == self.key)


def reduced(text: str, judge: JudgeOf, finding: BugFinding) -> Reduction:
    """The smallest module that the judge finds the same in.

    Raises:
        UsageError: it finds it no more.
    """
    with parser() as guard:
        return Search(CauseTest(judge, finding.cause), guard).run(text)


def cause_signature(finding: BugFinding, text: str) -> str:
    """The cause, the opcodes of a module, and if it has partitions: `values cse: 2 add, while`."""
    counts = Counter(
        instruction.opcode
        for computation in parse_file(text).modules[0].computations
        for instruction in computation.instructions
        if instruction.opcode not in _SHAPELESS
    )
    opcodes = [f"{count} {name}".removeprefix("1 ") for name, count in sorted(counts.items())]
    opcodes += ["partitioned"] * (devices_of(text)[1] > 1)
    return f"{finding.cause}: {', '.join(opcodes)}"


def known_issue(of: str) -> str:
    """The place where a signature is told of, by `known.toml`; empty for what is new."""
    return next((issue for pattern, issue in _KNOWN.items() if re.search(pattern, of)), "")


def settled(
    text: str, by: str, finding: BugFinding, judges: Mapping[str, JudgeOf], seed: int
) -> BugCause:
    """The cause of a finding `by` a judge: reduced, and tried with every other compiler.

    Raises:
        UsageError: it is not found again.
    """
    reduction = reduced(text, judges[by], finding)
    again = {name: judge(reduction.text).finding for name, judge in judges.items()}
    own = again.pop(by)
    if own is None or own.cause != finding.cause:
        raise UsageError(f"{finding.cause}: it is found once, and not again")
    shows = (by, *(name for name, one in again.items() if one and one.kind == finding.kind))
    size = (reduction.before.size, reduction.after.size)
    return BugCause(own, reduction.text, size, shows, seed)
