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
from typing import TYPE_CHECKING, Any, Final

from hlo_lint.apps.hunt import show
from hlo_lint.apps.hunt.judge import SEEDS, BugFinding, JudgeVerdict, hunt_inputs
from hlo_lint.apps.jax.capture.targets import target_of
from hlo_lint.apps.reduction import parser
from hlo_lint.engine.reduce.interest import InterestVerdict
from hlo_lint.engine.reduce.search import Reduction, ReductionProgress, Search
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.report.repro import Environment, Repro, write_repro
from hlo_lint.text.errors import UsageError
from hlo_lint.text.files import write

if TYPE_CHECKING:
    from numpy.typing import NDArray

KNOWN: Final = Path(__file__).with_name("known.toml")
_SHAPELESS: Final = frozenset(("parameter", "constant", "tuple", "get-tuple-element"))


@dataclass(frozen=True)
class CauseTest:
    """A module that is judged to have a finding of one cause."""

    judge: Callable[[str], JudgeVerdict]
    cause: str

    @property
    def key(self) -> str:
        """The cause."""
        return self.cause

    def __call__(self, text: str) -> InterestVerdict:
        """The verdict on a text."""
        finding = self.judge(text).finding
        return InterestVerdict(finding is not None and finding.cause == self.cause)


def reduced(
    text: str,
    judge: Callable[[str], JudgeVerdict],
    finding: BugFinding,
    progress: ReductionProgress = lambda *_: None,
) -> Reduction:
    """The smallest module that the judge finds the same in.

    Raises:
        UsageError: it finds it no more.
    """
    test = CauseTest(judge, finding.cause)
    with parser() as guard:
        return Search(test, guard, progress=progress).run(text)


def opcodes_in(text: str) -> str:
    """The opcodes of a module, those that every module has left out: `2 multiply, while`."""
    counts = Counter(
        instruction.opcode
        for computation in parse_file(text).modules[0].computations
        for instruction in computation.instructions
        if instruction.opcode not in _SHAPELESS
    )
    return ", ".join(
        f"{count} {opcode}" if count > 1 else opcode for opcode, count in sorted(counts.items())
    )


def cause_signature(finding: BugFinding, text: str) -> str:
    """The signature of a finding in a reduced module."""
    message = "" if finding.kind == "values" else f" {finding.message}"
    return f"{finding.kind} {finding.pass_name}{message}: {opcodes_in(text)}"


def known_issue(of: str) -> str:
    """The upstream issue of a signature, by the patterns of `known.toml`; empty for a new one."""
    for entry in tomllib.loads(KNOWN.read_text("utf-8")).get("known", ()):
        if re.search(entry["signature"], of):
            return str(entry["issue"])
    return ""


@dataclass(frozen=True)
class BugCause:
    """The mistake behind one or more findings, with the smallest module that shows it."""

    signature: str
    pass_name: str
    kind: str
    message: str
    text: str
    """The reduced module."""
    size: tuple[int, int]
    """Its instructions before and after the reduction."""
    shows: tuple[str, ...]
    """The compilers in which the module shows it: `0.10.2 cpu`."""
    seed: int
    """Of the first module that showed it."""
    issue: str = ""
    """The report upstream; empty for what is new."""


def settled(
    text: str,
    found_by: str,
    finding: BugFinding,
    judges: Mapping[str, Callable[[str], JudgeVerdict]],
    seed: int,
    progress: ReductionProgress = lambda *_: None,
) -> BugCause:
    """The cause of a finding: reduced, and tried with every other compiler.

    Raises:
        UsageError: it is not found again.
    """
    judge = judges[found_by]
    reduction = reduced(text, judge, finding, progress=progress)
    again = judge(reduction.text).finding
    if again is None or again.cause != finding.cause:
        raise UsageError(f"{finding.cause}: it is found once, and not again")
    of = cause_signature(finding, reduction.text)
    shows = [found_by]
    for name, other in judges.items():
        if name != found_by and (same := other(reduction.text).finding):
            shows += [name] * (same.kind == finding.kind)
    return BugCause(
        of,
        finding.pass_name,
        finding.kind,
        again.message,
        reduction.text,
        (reduction.before.size, reduction.after.size),
        tuple(shows),
        seed,
        known_issue(of),
    )


def write_cause(cause: BugCause, folder: Path, number: int) -> Path:
    """Write a directory that shows a cause to a maintainer; its path.

    For a GPU it is that of `hlo-lint repro`; for a CPU a program that needs jaxlib alone.

    Raises:
        DumpError: it cannot be written.
    """
    release, _, target = cause.shows[0].partition(" ")
    name = re.sub(r"[^\w-]+", "-", f"{cause.pass_name or cause.kind}")
    place = folder / f"{number:03}-{name}"
    chip = None if target == "cpu" else target_of(target)
    if chip is not None and not chip.is_tpu:
        given = Environment(release, chip.description)
        write_repro(Repro(cause.text, cause.message, cause.size, given), place)
        return place
    title = f"{cause.kind} by {cause.pass_name or 'XLA'}, jax {', '.join(cause.shows)}"
    report = f"# {title}\n\n{cause.message}\n\n```\n{cause.text.strip()}\n```\n"
    arrays = hunt_inputs(parse_file(cause.text).modules[0], SEEDS[0])
    text = "".join([*map(_comment, arrays), cause.text])
    program = Path(show.__file__).read_text("utf-8")
    for file, content in (("reduced.hlo", text), ("REPORT.md", report), ("show.py", program)):
        write(place / file, content)
    return place


def _comment(array: NDArray[Any]) -> str:
    """An array as `show.py` reads it."""
    is_plain = array.dtype.kind in "biufc"
    numbers = array.tolist() if is_plain else array.astype(float).tolist()
    return f"// input: {array.dtype.name} {numbers}\n"
