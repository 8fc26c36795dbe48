"""Text that one release of jaxlib prints, spelled so that another one reads it."""

from __future__ import annotations

import re
from typing import Final

from hlo_lint.dialects.draft import Draft, Statement, drop_attributes, statements, type_of
from hlo_lint.dialects.tuples import predecessors
from hlo_lint.ir import OPCODE, REFERENCES, TAIL, TYPE, Computation, Module

NEW_IN_0_11: Final = {
    "async-update": {"output_to_operand_aliasing"},
    "collective-broadcast": {"has_dynamic_root"},
    "compare": {"order"},
    "convolution": {"algorithm", "block_scaling_config"},
    "topk": {"is_stable"},
}
"""Attributes that jaxlib 0.11.2 reads and 0.10.2 refuses, by opcode; found by asking both."""
OPCODES_NEW_IN_0_11: Final = frozenset({"collective-reduce"})
OPCODES_NEW_IN_0_10_2: Final = frozenset({"mulhi"})
_new_type = re.compile(r"\bf6e(?:2m3|3m2)fn\[").search
_integers = re.compile(r"(?:pred|[su]\d+)\[").match
_find_name = re.compile(r"%?([^\s,{}%]+)").finditer
_payload = re.compile(r'\s*\bmetadata_payload=(?:"(?:[^"\\]|\\.)*+"|\{[^{}]*\}|[^\s{}]+)')


def readable_by_0_10_2(module: Module, draft: Draft) -> None:
    """Respell or leave out what jaxlib 0.10.2 refuses; tuples' elements are explicit already."""
    _drop_from_header(module, draft, "debug_attributes")
    for computation, instructions in statements(module):
        for statement in instructions:
            _note_unknown(statement, draft, OPCODES_NEW_IN_0_11, "0.10.2")
            new = NEW_IN_0_11.get(statement.row[OPCODE], set()) & statement.attributes().keys()
            if "order" in new:
                _order_as_type(statement, computation, draft)
                new = new - {"order"}
            for name in sorted(new):
                draft.note(f"{name} of {statement.row[OPCODE]}: jaxlib 0.10 does not know it")
            if new:
                drop_attributes(draft, statement, new)
    drop_undefined_predecessors(module, draft)


def drop_undefined_predecessors(module: Module, draft: Draft) -> None:
    """Take out control predecessors that nothing defines, for which XLA refuses a text."""
    for computation, instructions in statements(module):
        if "control-predecessors=" in computation.text:
            for statement in instructions:
                if "control-predecessors=" in statement.row[TAIL]:
                    _drop_undefined(statement, computation, draft)


def readable_by_0_10_0(module: Module, draft: Draft) -> None:
    """What jaxlib 0.10.0 refuses beyond that."""
    for _, instructions in statements(module):
        for statement in instructions:
            _note_unknown(statement, draft, OPCODES_NEW_IN_0_10_2, "0.10.0")
            if "metadata_payload=" not in statement.row[TAIL]:
                continue
            place = statement.attributes().get("metadata")
            found = _payload.search(draft.text, *place) if place else None
            if found:
                draft.replace(found.start(), found.end(), "")
                draft.note("metadata_payload: jaxlib 0.10.0 does not know it")


def _note_unknown(
    statement: Statement, draft: Draft, opcodes: frozenset[str], release: str
) -> None:
    opcode = statement.row[OPCODE]
    if opcode in opcodes:
        draft.note(f"{opcode} stays: jaxlib {release} has no such opcode and refuses the text")
    if release == "0.10.2" and _new_type(statement.row[TYPE]):
        draft.note("6-bit floats stay: jaxlib 0.10 has no such type and refuses the text")


def _order_as_type(statement: Statement, computation: Computation, draft: Draft) -> None:
    """`order=TOTAL` as `type=TOTALORDER`.

    Integers have a total order anyway, and floats a partial one: there nothing is said.
    """
    start, end = statement.attributes()["order"]
    order = draft.text[start:end]
    references = statement.row[REFERENCES]
    shape = type_of(computation, references[0]) if references else None
    orders_integers = shape is not None and _integers(shape) is not None
    if orders_integers == (order == "TOTAL"):
        drop_attributes(draft, statement, {"order"})
        return
    name_start = draft.text.rindex("order", statement.start, start)
    draft.replace(name_start, end, "type=TOTALORDER" if order == "TOTAL" else "type=FLOAT")


def _drop_undefined(statement: Statement, computation: Computation, draft: Draft) -> None:
    names = predecessors(statement.row)
    known = [name for name in names if name in computation.index]
    if len(known) == len(names):
        return
    for name in names:
        if name not in known:
            draft.note(f"control predecessor %{name}: the text does not define it")
    if not known:
        drop_attributes(draft, statement, {"control-predecessors"})
        return
    start, end = statement.attributes()["control-predecessors"]
    spelled = _find_name(draft.text, start, end)
    kept = [found[0] for found in spelled if found[1] in computation.index]
    draft.replace(start, end, "{" + ", ".join(kept) + "}")


def _drop_from_header(module: Module, draft: Draft, name: str) -> None:
    place = module.header.find(f"{name}=")
    value = module.attributes.get(name) if place >= 0 else None
    if value is None:
        return
    begin = draft.text.index(module.header)
    comma = begin + module.header.rindex(",", 0, place)
    draft.replace(comma, begin + place + len(name) + 1 + len(value), "")
    draft.note(f"{name} of the module: jaxlib 0.10 does not know it")
