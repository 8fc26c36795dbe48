"""Short names, by opcode: they come last, so that until then names are those of the input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hlo_lint.engine.reduce.draft import Draft, parameter_number, predecessors, renamed
from hlo_lint.engine.reduce.transformations.base import Anchor, Target, Transformation
from hlo_lint.hlo.ir import called_names
from hlo_lint.hlo.parser.tokens import Role, instruction_tokens
from hlo_lint.hlo.records import attributes_of, name_of, opcode_of, operands_of, references_of


class Rename(Transformation):
    """Instructions, computations and the module."""

    name = "rename"
    alternatives = True

    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[Target]:
        return [("all",), ("computations",)]

    def apply(self, draft: Draft, chosen: Sequence[Target]) -> Draft | None:
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
                    name_of(row): short(
                        f"p{parameter_number(row)}"
                        if opcode_of(row) == "parameter"
                        else opcode_of(row).replace("-", "_")
                    )
                    for row in body.rows
                }
            rows = []
            for row in body.rows:
                references = tuple(renamed(reference, names) for reference in references_of(row))
                operands = ", ".join(f"%{reference}" for reference in references) or operands_of(
                    row
                )
                tail = _tail(attributes_of(row), names, computations, bool(predecessors(row)))
                rows.append(
                    ("", names[name_of(row)], row[2], opcode_of(row), operands, tail, references)
                )
            bodies.append(
                replace(body, name=computations[body.name], rows=tuple(rows), root=names[body.root])
            )
        return replace(draft, name="m", bodies=tuple(bodies), _text=[])


def _tail(
    tail: str, names: dict[str, str], computations: dict[str, str], has_predecessors: bool
) -> str:
    """Attributes with the new names of what they call and wait for."""
    if not has_predecessors and not called_names(tail):
        return tail
    head = "%x = f32[] custom-call()"
    pieces, at = [], len(head)
    text = head + tail
    for token in instruction_tokens(text):
        if token.role in (Role.CALLED, Role.PREDECESSOR) and token.start >= len(head):
            new = (computations if token.role is Role.CALLED else names).get(token.name)
            if new is not None:
                pieces += [text[at : token.name_start], new]
                at = token.name_end
    return "".join([*pieces, text[at:]])
