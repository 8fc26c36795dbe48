"""Give short names by opcode, as the last step, so that names match the input until then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hlo_lint.engine.reduce.draft import Draft, DraftInstruction, renamed
from hlo_lint.engine.reduce.transformations.base import Anchor, ReductionTarget, Transformation
from hlo_lint.hlo.parser.tokens import Role, instruction_tokens


class Rename(Transformation):
    """Rename instructions, computations and the module."""

    name = "rename"
    alternatives = True

    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[ReductionTarget]:
        return [("all",), ("computations",)]

    def apply(self, draft: Draft, chosen: Sequence[ReductionTarget]) -> Draft | None:
        count: Counter[str] = Counter()

        def short(wanted: str) -> str:
            count[wanted] += 1
            return wanted if count[wanted] == 1 else f"{wanted}.{count[wanted]}"

        computations = {
            body.name: "main" if body.is_entry else short("computation") for body in draft.bodies
        }
        bodies = []
        for body in draft.bodies:
            names = {name: name for name in body.index}
            if chosen[0] == ("all",):
                names = {
                    row.name: short(
                        f"p{row.parameter_number}"
                        if row.opcode == "parameter"
                        else row.opcode.replace("-", "_")
                    )
                    for row in body.rows
                }
            rows = []
            for row in body.rows:
                tail = _tail(row, names, computations)
                changed = row._replace(name=names[row.name], attributes_text=tail)
                if row.references:
                    changed = changed.with_operands(renamed(read, names) for read in row.references)
                rows.append(changed)
            bodies.append(
                replace(body, name=computations[body.name], rows=tuple(rows), root=names[body.root])
            )
        return replace(draft, name="m", bodies=tuple(bodies), _text=[])


def _tail(row: DraftInstruction, names: dict[str, str], computations: dict[str, str]) -> str:
    """The attributes with new names of callees and control predecessors."""
    if not row.predecessors and not row.callees:
        return row.attributes_text
    head = "%x = f32[] custom-call()"
    pieces, position = [], len(head)
    text = head + row.attributes_text
    for token in instruction_tokens(text):
        if token.role in (Role.CALLED, Role.PREDECESSOR) and token.start >= len(head):
            new = (computations if token.role is Role.CALLED else names).get(token.name)
            if new is not None:
                pieces += [text[position : token.name_start], new]
                position = token.name_end
    return "".join([*pieces, text[position:]])
