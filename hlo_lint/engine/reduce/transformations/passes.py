"""Apply the faulty pass to a part of the module, where its result is shorter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from hlo_lint.engine.reduce.draft import Draft, DraftComputation, DraftInstruction, swept
from hlo_lint.engine.reduce.transformations.base import Anchor, ReductionTarget, Transformation
from hlo_lint.engine.reduce.transformations.instructions import inlined
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.hlo.parser.tokens import tuple_elements

MAX_INSTRUCTIONS: Final = 16
"""The most instructions of an entry computation whose parts are tried: each is a compilation."""


class ApplyPass(Transformation):
    """Replace an instruction and its exclusive operands by the pass's rewrite of them.

    A rewriter goes from operands to users, so it visits its own output: for an error in its second
    step, the text no longer needs the input of the first.
    """

    name = "apply the pass to a part"
    alternatives = True

    def __init__(self, run: Callable[[str], str | None]) -> None:
        """`run` gives the text after the pass; None where it does not run."""
        self._run = run

    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[ReductionTarget]:
        entry = draft.entry
        if len(entry.rows) > MAX_INSTRUCTIONS:
            return ()
        return [
            (row.name,) for row in reversed(entry.rows) if row.references and row.name != entry.root
        ]

    def apply(self, draft: Draft, chosen: Sequence[ReductionTarget]) -> Draft | None:
        ((name,),) = chosen
        entry = draft.entry
        part = swept(draft.with_bodies({entry.name: replace(entry, root=name)}), draft)
        text = self._run(part.text)
        after = Draft.of(parse_file(text).modules[0]) if text else part
        if after.text == part.text or len(after.bodies) > 1:
            return None
        parameters = [row.name for row in part.entry.parameters]
        call = DraftInstruction.of(name, entry.row(name).type_text, "call", parameters)
        body = inlined(entry.with_row(call), call, _without_scratch(after.entry), draft.names())
        smaller = swept(draft.with_bodies({entry.name: body}), draft)
        return smaller if smaller.size < draft.size else None


def _without_scratch(body: DraftComputation) -> DraftComputation:
    """Turn a custom call with a single used result into a call that returns this array.

    A rewriter adds a library's scratch memory last, after it has visited every instruction.
    """
    root = body.row(body.root)
    position = body.index.get(root.references[0], -1) if root.references else -1
    number, call = root.element, body.rows[position]
    if number is None or call.opcode != "custom-call" or body.users[call.name] > 1:
        return body
    elements = tuple_elements(call.type_text) or ()
    if number >= len(elements):
        return body
    alone = call._replace(type_text=elements[number])
    rows = (alone if row is call else row for row in body.rows if row is not root)
    return body.changed(rows, call.name)
