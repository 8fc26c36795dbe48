"""Findings of the rule `values-changed` from steps that changed the values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.selection import outer_pass
from hlo_lint.engine.diagnose import diagnose
from hlo_lint.engine.findings import Diagnostic, PassRef
from hlo_lint.engine.timeline import LocatedFinding
from hlo_lint.engine.values.hostile import HOSTILE, LARGE, OWN, SPECIAL
from hlo_lint.engine.values.inputs import EDGES
from hlo_lint.engine.values.validate import ValueChange
from hlo_lint.rules.base import first_line
from hlo_lint.rules.findings import Finding
from hlo_lint.rules.pipeline.values_changed import ValuesChanged


def diagnostic_of(change: ValueChange, dumps: Sequence[PassDump] = ()) -> Diagnostic:
    """The finding of a change: at the first instruction whose value differs, else at the module.

    `dumps` has the dumps of the run, in order.
    """
    dump, culprit, difference = change.after, change.culprit, change.comparison.difference
    name, outer = dump.name, ""
    step = "in this dump"
    if name is not None and name.step is not None:
        step = f"after {name.after}"
        if name.after == "pipeline-start":
            outer = outer_pass(dumps, dumps.index(dump)) if dump in dumps else ""
            step = f"in {outer}" if outer else f"when {name.pipeline} starts"
    notes = [f"compared with {change.before.path.name}"]
    if difference is None:
        message = f"the module no longer runs {step}: {change.comparison.reason}"
    else:
        message = f"the module computes different values {step}: {difference}"
        error, inputs = f"largest error {difference.error:.6g}", _seed(change.comparison.seed)
        notes.insert(0, f"{error}, {inputs}; the bound was {change.comparison.bound}")
        if culprit is not None:
            notes.insert(0, _first(change))
        if change.is_disputed:
            notes.append("XLA:CPU without its passes computes equal values from the two texts")
    notes += _made_up(change)
    place = culprit.instruction if culprit is not None else first_line(dump)
    finding = Finding(place, message, notes=tuple(notes), key="values")
    introduced = None
    if name is not None and name.step is not None:
        before = change.before.name.step if change.before.name is not None else None
        introduced = PassRef(outer or name.after, name.pipeline, name.step, str(dump.path), before)
    module = dump.file.modules[0] if culprit is not None else None
    diagnostic = diagnose(LocatedFinding(ValuesChanged(), finding, dump, module), introduced)
    return replace(diagnostic, error_map=difference.error_map if difference else ())


SHOWN: Final = 4
"""Inputs that a finding names, and the most elements of each."""


def _made_up(change: ValueChange) -> Iterator[str]:
    """A note with the small inputs, where they are not those of a user."""
    made_up = [shown for shown in change.inputs if not shown.is_given]
    small = [shown for shown in made_up if shown.array.size <= SHOWN]
    if made_up:
        words = ", ".join(f"%{name} is {array.tolist()}" for name, array, _ in small[:SHOWN])
        rest = f": {words}" if words else ""
        yield f"the inputs are made up{rest} (--show-inputs prints all, --inputs gives real values)"


def _seed(seed: int) -> str:
    kinds = {
        OWN: "on floats that overflow or vanish in their own type",
        LARGE: "on large floats",
        SPECIAL: "on infinities, NaNs, zeros and denormals",
        HOSTILE: "on numbers at which the program decides, wraps or reaches beyond an array",
        EDGES: "on infinities, NaNs and ends of ranges",
    }
    return next((words for first, words in kinds.items() if seed >= first), f"seed {seed}")


def _first(change: ValueChange) -> str:
    culprit = change.culprit
    assert culprit is not None
    text = f"%{culprit.instruction.name} is the first instruction whose value differs"
    if culprit.iteration is not None:
        text += f", in iteration {culprit.iteration} of its loop"
    if culprit.difference is not None:
        element, difference = culprit.difference.place, culprit.difference
        its = f"its element {element}" if element else "it"
        text += f": {its} is {difference.after:.9g} and was {difference.before:.9g}"
    return text
