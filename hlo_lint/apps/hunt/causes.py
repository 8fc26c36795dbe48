"""Verdicts, and findings grouped by cause: reduced, signed, and told apart from what is known.

A signature is what stays the same when a module is reduced: the kind, the pass, XLA's check without
names and numbers, and the opcodes of the reduced module.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

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


@dataclass(frozen=True, kw_only=True)
class HuntRecord(JudgeVerdict):
    """The verdict on a module, and what was found out later about a finding."""

    seed: int
    by: str
    """The judge, by what it compiles with: `0.10.2 cpu`."""
    traits: tuple[str, ...]
    reduced: str = ""
    """The smallest module with the finding; empty if none is known yet."""
    size: tuple[int, ...] = ()
    """The instructions of the module before and after the reduction."""
    shows: tuple[str, ...] = ()
    """The judges that find it in the reduced module."""

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> HuntRecord:
        """The record that `dataclasses.asdict` made an entry of."""
        fields: dict[str, Any] = {
            name: tuple(v) if isinstance(v, list) else v for name, v in entry.items()
        }
        finding = fields.pop("finding")
        return cls(finding=BugFinding(**finding) if finding else None, **fields)

    @property
    def cause(self) -> str:
        """The cause of the finding; once it is reduced its signature; empty without a finding."""
        if self.finding is None:
            return ""
        return cause_signature(self.finding, self.reduced) if self.reduced else self.finding.cause

    @property
    def issue(self) -> str:
        """The place where it is told of; empty for what is new."""
        return known_issue(self.finding.cause if self.finding else "") or known_issue(self.cause)

    def write(self, folder: Path) -> None:
        """Write the directory of `hlo-lint repro` for a GPU, else the module with what it does.

        Raises:
            DumpError: they cannot be written.
        """
        assert self.finding is not None
        message, (release, _, target) = self.finding.message, self.by.partition(" ")
        if target not in (CPU, GPU) and not (chip := target_of(target)).is_tpu:
            given, (before, after) = Environment(release, chip.description), self.size
            write_repro(Repro(self.reduced, message, (before, after), given), folder)
            return
        by = self.finding.pass_name or "XLA"
        lines = [f"{self.finding.kind} by {by}, jax {', '.join(self.shows)}:"]
        lines += [*message.splitlines(), f"python -m {show.__name__} reduced.hlo"]
        for array in hunt_inputs(parse_file(self.reduced).modules[0], SEEDS[0]):
            numbers = (array if array.dtype.kind in "biufc" else array.astype(float)).tolist()
            lines.append(f"input: {array.dtype.name} {numbers}")
        write(folder / "reduced.hlo", "".join([*(f"// {line}\n" for line in lines), self.reduced]))


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


def settled(record: HuntRecord, text: str, judges: Mapping[str, JudgeOf]) -> HuntRecord:
    """The record of a finding that is reduced, and tried with every other compiler.

    Where it is not found again the record has none.
    """
    assert record.finding is not None
    finding, lost = record.finding, replace(record, outcome="found once, not again", finding=None)
    try:
        reduction = reduced(text, judges[record.by], finding)
    except UsageError:
        return lost
    again = {name: other(reduction.text).finding for name, other in judges.items()}
    own = again.pop(record.by)
    if own is None or own.cause != finding.cause:
        return lost
    shows = (record.by, *(name for name, one in again.items() if one and one.kind == finding.kind))
    size = (reduction.before.size, reduction.after.size)
    return replace(record, finding=own, reduced=reduction.text, size=size, shows=shows)


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
