"""The pass that is at fault, applied to a part of the module: what it makes of it is shorter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from hlo_lint.engine.reduce.draft import Draft, DraftComputation, attributes, record, swept
from hlo_lint.engine.reduce.transformations.base import Anchor, Target, Transformation
from hlo_lint.engine.reduce.transformations.instructions import inlined
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.hlo.parser.tokens import tuple_elements
from hlo_lint.hlo.records import attributes_of, name_of, opcode_of, references_of, type_of

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

    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[Target]:
        entry = draft.entry
        if len(entry.rows) > MAX_INSTRUCTIONS:
            return ()
        return [
            (name_of(row),)
            for row in reversed(entry.rows)
            if references_of(row) and name_of(row) != entry.root
        ]

    def apply(self, draft: Draft, chosen: Sequence[Target]) -> Draft | None:
        ((name,),) = chosen
        entry = draft.entry
        if name not in entry.index or name == entry.root:
            return None
        part = swept(draft.with_bodies({entry.name: replace(entry, root=name)}), draft)
        text = self._run(part.text)
        after = Draft.of(parse_file(text).modules[0]) if text else part
        if after.text == part.text or len(after.bodies) > 1:
            return None
        parameters = [name_of(row) for row in part.entry.parameters]
        call = record(name, type_of(entry.row(name)), "call", parameters)
        rows = (call if name_of(row) == name else row for row in entry.rows)
        body = inlined(entry.changed(rows), call, _without_scratch(after.entry), draft.names())
        made = swept(draft.with_bodies({entry.name: body}), draft)
        return made if made.size < draft.size else None


def _without_scratch(body: DraftComputation) -> DraftComputation:
    """A computation whose root is the only result of a custom call that is read, as an array.

    A rewriter adds the scratch memory of a library last, when it has met every instruction.
    """
    root = body.row(body.root)
    at = body.index.get(references_of(root)[0], -1) if references_of(root) else -1
    if opcode_of(root) != "get-tuple-element" or opcode_of(body.rows[at]) != "custom-call":
        return body
    call = body.rows[at]
    elements = tuple_elements(type_of(call)) or ()
    number = attributes(attributes_of(root)).get("index", "")
    if body.users[name_of(call)] > 1 or not number.isdecimal() or int(number) >= len(elements):
        return body
    alone = (*call[:2], elements[int(number)], *call[3:])
    rows = (alone if row is call else row for row in body.rows if row is not root)
    return body.changed(rows, name_of(call))
