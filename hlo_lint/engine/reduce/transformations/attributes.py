"""Drop attributes. Give short names as the last step: until then names match the input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hlo_lint.engine.reduce.draft import Draft, DraftInstruction, renamed
from hlo_lint.engine.reduce.transformations.base import Anchor, ReductionTarget, Transformation
from hlo_lint.hlo.opcodes import demands_on
from hlo_lint.hlo.parser.tokens import Role, instruction_tokens

_TABLES = "tables"


class DropAttributes(Transformation):
    """Drop single attributes of instructions that their opcode does not require."""

    name = "drop attributes"

    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[ReductionTarget]:
        places = []
        for body, row in draft.places():
            facts = demands_on(row.opcode)
            required = facts.required if facts else ()
            places += [
                (body.name, row.name, name) for name in row.attributes if name not in required
            ]
        return places

    def apply(self, draft: Draft, chosen: Sequence[ReductionTarget]) -> Draft | None:
        gone: dict[tuple[str, str], set[str]] = {}
        for computation, instruction, name in chosen:
            gone.setdefault((computation, instruction), set()).add(name)
        return draft.with_rows(lambda body, row: row.without(gone.get((body.name, row.name), ())))


class DropHeader(Transformation):
    """Drop the module's attributes, and tables of stack frames."""

    name = "drop attributes of the module"

    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[ReductionTarget]:
        return [(name,) for name in (*draft.header, *([_TABLES] if draft.tables else []))]

    def apply(self, draft: Draft, chosen: Sequence[ReductionTarget]) -> Draft | None:
        gone = {name for (name,) in chosen}
        header = {name: value for name, value in draft.header.items() if name not in gone}
        return replace(draft, header=header, tables="" if _TABLES in gone else draft.tables)


class Rename(Transformation):
    """Rename instructions, computations and the module."""

    name = "rename"
    alternatives = True

    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[ReductionTarget]:
        return [("everything",)]

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
        return replace(draft, name="m", bodies=tuple(bodies))


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
