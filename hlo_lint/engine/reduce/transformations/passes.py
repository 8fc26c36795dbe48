"""The pass that is at fault, applied to a part of the module: what it makes of it is shorter."""

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
"""Of an entry computation of more instructions no part is tried: each is a compilation."""


class ApplyPass(Transformation):
    """An instruction and what only it reads give way to what the pass makes of them.

    A rewriter goes from operands to users, so it meets its own output: an error that it makes in
    the second of two steps needs the first one in the text no more.
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
        made = swept(draft.with_bodies({entry.name: body}), draft)
        return made if made.size < draft.size else None


def _without_scratch(body: DraftComputation) -> DraftComputation:
    """A computation whose root is the only result of a custom call that is read, as an array.

    A rewriter adds the scratch memory of a library last, when it has met every instruction.
    """
    root = body.row(body.root)
    at = body.index.get(root.references[0], -1) if root.references else -1
    number, call = root.element, body.rows[at]
    if number is None or call.opcode != "custom-call" or body.users[call.name] > 1:
        return body
    elements = tuple_elements(call.type_text) or ()
    if number >= len(elements):
        return body
    alone = call._replace(type_text=elements[number])
    rows = (alone if row is call else row for row in body.rows if row is not root)
    return body.changed(rows, call.name)
