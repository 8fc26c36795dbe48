"""Cut the kernels of a scheduled module out of it, each as a module of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import Final

from hlo_lint.analysis.calls import callees_of
from hlo_lint.analysis.walks import reached
from hlo_lint.engine.reduce.draft import Draft, DraftComputation, DraftInstruction, called_from
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.opcodes import COMMUNICATES, CONTROL_FLOW, NO_KERNEL, RUNS_SCHEDULE
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.hlo.shape import TupleShape, element_type, shape_or_none

ENTRY: Final = "kernel_alone"
"""The entry computation of a cut."""
MAX_LITERAL: Final = 256
"""The longest literal, in characters, that is copied; longer constants become parameters."""
_IN_PLACE: Final = CONTROL_FLOW | frozenset("dynamic-update-slice scatter sort".split())
"""Opcodes that write their result over an operand, which must not be a parameter's buffer."""
NOT_ALONE: Final = COMMUNICATES | {"infeed", "outfeed", "partition-id", "replica-id"}
"""Opcodes that need other devices, or a host."""
_names = re.compile(r"%[\w.\-]+")


@dataclass(frozen=True, eq=False)
class KernelCut:
    """An instruction as a module of its own."""

    instruction: Instruction
    draft: Draft

    @property
    def text(self) -> str:
        """The module: operands are parameters with their layouts, small constants stay."""
        return self.draft.text

    @cached_property
    def module(self) -> Module:
        """The module, parsed."""
        return parse_file(self.text).modules[0]

    @property
    def key(self) -> str:
        """The text without names, equal for kernels that compile to equal code."""
        numbers: dict[str, str] = {}
        text = replace(self.draft, name="m").text
        return _names.sub(lambda name: numbers.setdefault(name[0], f"%{len(numbers)}"), text)


def emitter_of(kernel: Instruction) -> str:
    """The part of XLA that emits a kernel: an opcode, a kind of fusion, the target of a call."""
    if kernel.opcode == "custom-call":
        return kernel.custom_call_target
    if kernel.opcode != "fusion":
        return kernel.opcode
    # The innermost of these counts, such as {"fusion_backend_config":{"kind":"__triton"}}.
    config: object = kernel.backend_config()
    for name in ("fusion_backend_config", "fusion_config", "kind"):
        inner = config.get(name) if isinstance(config, Mapping) else None
        config = inner or config
    kind = config if isinstance(config, str) else kernel.attributes.get("kind")
    return f"{kind} fusion".removeprefix("__")


def kernels_of(module: Module) -> Iterator[Instruction]:
    """The instructions that a program launches, those in loops, branches and calls too.

    A loop, a branch or a call counts as well: XLA:CPU compiles small ones to a single function.
    """
    run = partial(callees_of, module, opcodes=RUNS_SCHEDULE)
    for computation in reached(filter(None, [module.entry]), run):
        for instruction in computation.instructions:
            if instruction.is_nested or instruction.opcode in NO_KERNEL:
                continue
            # An asynchronous operation is launched by the computation that it wraps.
            if not instruction.opcode.endswith(("-start", "-update", "-done")):
                yield instruction


def _is_whole(module: Module) -> bool:
    """True if all that instructions read and call is there."""
    names = [computation.name for computation in module.computations]
    return len(set(names)) == len(names) and all(
        computation.root is not None
        and all(operand.instruction is not None for row in computation for operand in row.operands)
        and all(name in names for row in computation for name in row.called_computations)
        for computation in module.computations
    )


def with_calls(draft: Draft) -> Draft:
    """The module with its fusions as calls, for XLA to fuse again."""

    def called(_: DraftComputation, row: DraftInstruction) -> DraftInstruction:
        if row.opcode != "fusion" or len(row.callees) != 1:
            return row
        return row._replace(opcode="call", attributes_text=f", to_apply=%{row.callees[0]}")

    return draft.with_rows(called)


def cuts_of(module: Module, *, constants: bool = False) -> Iterator[KernelCut]:
    """The kernels of a module, each as a module of its own; then its constants, if asked for."""
    if module.problems or not _is_whole(module):
        return  # XLA refuses it before it has kernels
    draft = _bare(Draft.of(module))
    bodies = {body.name: body for body in draft.bodies}
    # XLA:GPU emits the constants of the entry computation as variables.
    variables = module.entry.with_opcode("constant") if constants and module.entry else ()
    shown = (v for v in variables if "..." not in v.operands_text and not v.is_nested)
    for instruction in chain(kernels_of(module), shown):
        body = bodies.get(instruction.computation.name)
        if body is None:
            continue  # in a computation inside an attribute, which the draft has as text
        yield KernelCut(instruction, _cut(draft, body, body.row(instruction.name)))


def _bare(draft: Draft) -> Draft:
    """The module without metadata, and with `a#1` as a get-tuple-element.

    Older parsers do not read `a#1`, and a stack frame needs the tables of the whole module.
    """

    def spelled(body: DraftComputation) -> DraftComputation:
        rows: dict[str, DraftInstruction] = {}
        for row in body.rows:
            row = row.without(("metadata",))
            for part in row.references if "#" in row.operands_text else ():
                whole, *numbers = part.split("#")
                for number in numbers:
                    name, tail = f"{whole}.part{number}", f", index={number}"
                    shape = element_type(rows[whole].type_text, number)
                    rows[name] = DraftInstruction.of(
                        name, shape, "get-tuple-element", [whole], tail
                    )
                    whole = name
            if "#" in row.operands_text:
                row = row.with_operands(part.replace("#", ".part") for part in row.references)
            rows[row.name] = row
        return body.changed(rows.values())

    return draft.with_bodies({body.name: spelled(body) for body in draft.bodies})


def _cut(draft: Draft, body: DraftComputation, row: DraftInstruction) -> Draft:
    called = {*reached(row.callees, partial(called_from, draft))}
    callees = [other for other in draft.bodies if other.name in called]
    opcodes = {row.opcode, *(inner.opcode for callee in callees for inner in callee.rows)}
    is_in_place = not opcodes.isdisjoint(_IN_PLACE)
    kept_in_header = {"is_scheduled"}
    if not opcodes.isdisjoint(NOT_ALONE):
        kept_in_header |= {"num_partitions", "replica_count"}
    entry = _Entry(body, is_in_place)
    operands = [entry.value(name) for name in row.reads]
    launched = row.without(("control-predecessors", "sharding"))
    if operands:  # otherwise the text may be a literal
        launched = launched.with_operands(operands)
    rows = (*entry.rows, launched)
    return Draft(
        draft.name,
        {name: text for name, text in draft.header.items() if name in kept_in_header},
        (*callees, DraftComputation(ENTRY, rows, launched.name, is_entry=True)),
    )


class _Entry:
    """The entry computation of a cut, up to its kernel."""

    def __init__(self, body: DraftComputation, is_in_place: bool) -> None:
        self._body, self._is_in_place = body, is_in_place
        self._names: dict[str, str] = {}
        self.rows: list[DraftInstruction] = []

    def value(self, name: str) -> str:
        """The name of an operand's value: a parameter, or constants and parameters in a tuple.

        The counter of a loop begins at its constant.
        """
        if name not in self._names:
            source = origin = self._body.row(name)
            passed = {name}
            while origin.opcode == "copy" and not passed.issuperset(origin.reads):
                passed.update(origin.reads)  # in a text with a cycle, copies may read each other
                origin = self._body.row(origin.reads[0])
            literal = origin.operands_text
            is_short = len(literal) < MAX_LITERAL and "..." not in literal
            if origin.opcode == "constant" and is_short:
                # XLA:GPU names constants as PTX demands, without dots, and dies of other names.
                given = f"{origin.name}_given" if self._is_in_place else origin.name
                constant = origin._replace(name=given, attributes_text="")
                self._names[name] = self._copied(constant, name)
            elif source.opcode == "tuple":
                elements = [self.value(element) for element in source.reads]
                self.rows.append(source.with_operands(elements)._replace(attributes_text=""))
                self._names[name] = name
            else:
                self._names[name] = self._given(name, source.type_text)
        return self._names[name]

    def _given(self, name: str, type_text: str) -> str:
        """Add a value of a type as a parameter, a token, or a tuple of both; return its name."""
        shape = shape_or_none(type_text)
        if isinstance(shape, TupleShape):
            parts = [
                self._given(f"{name}.element{number}", f"{element}")
                for number, element in enumerate(shape.elements)
            ]
            self.rows.append(DraftInstruction.of(name, type_text, "tuple", parts))
        elif type_text == "token[]":
            self.rows.append(DraftInstruction.of(name, type_text, "after-all", ()))
        else:
            number = sum(row.opcode == "parameter" for row in self.rows)
            given = f"{name}_given" if self._is_in_place else name
            return self._copied(DraftInstruction(given, type_text, "parameter", f"{number}"), name)
        return name

    def _copied(self, row: DraftInstruction, name: str) -> str:
        """Add a value, and a copy of it if the kernel may write over it."""
        if row not in self.rows:
            self.rows.append(row)
        if not self._is_in_place:
            return row.name
        self.rows.append(DraftInstruction.of(name, row.type_text, "copy", [row.name]))
        return name
