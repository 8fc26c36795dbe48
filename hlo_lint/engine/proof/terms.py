"""The values of instructions as terms, with chains of data movement as index maps.

Two computations are equal if their roots are the same term and their side effects are equal. A term
is an opcode applied to terms, or an array that reads another array through an index map; it has
layouts only where a bitcast reads them. So an added copy, a transpose spelled out, a fusion of a
reshape or reordered lines change no term. Other algebra is unknown: `a+b` and `b+a` are different
terms, whose values may be equal.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Final, NoReturn, TypeAlias

from hlo_lint.analysis.buffers import origins, source_of
from hlo_lint.analysis.diff.normalize import attributes, literal_meaning, without_metadata
from hlo_lint.analysis.shape_inference.types import without_layout
from hlo_lint.analysis.value_numbering import UNKNOWN, ModuleNumbering
from hlo_lint.analysis.walks import reached
from hlo_lint.engine.proof.payloads import inputs_read, payload_key
from hlo_lint.hlo import index_maps
from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError
from hlo_lint.hlo.attributes.plain import Alias
from hlo_lint.hlo.attributes.splitting import control_predecessors
from hlo_lint.hlo.index_maps import IndexMap, identity
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.opcodes import COMMUNICATES, EXECUTION
from hlo_lint.hlo.shape import ArrayShape, Index, Shape, ShapeSyntaxError, TupleShape

Term: TypeAlias = "int | tuple[Term, ...]"
"""The number of a term, or the terms of a tuple's elements."""

_NOT_IN_TERMS: Final = EXECUTION | {"backend_config", "inferred_dimension"}
"""Attributes that change no bit, or that are compared separately where they do."""
_STATEFUL: Final = COMMUNICATES | {"infeed", "outfeed", "rng", "rng-get-and-update-state"}
"""Opcodes with external effects, whose number and order count."""
_SIDE_EFFECT: Final = "custom_call_has_side_effect=true"
_MOVES: Final = frozenset({"parameter", "reshape", "copy", "transpose", "bitcast", "broadcast"})


class NotLayout(Exception):
    """Two modules whose terms differ while their values may be equal; the message says where."""


class Differs(Exception):
    """Two modules that compute different values; the message says where."""


@dataclass(frozen=True, slots=True)
class _View:
    """An array that reads another array through an index map."""

    base: int
    dtype: str
    dims: tuple[int, ...]
    map: IndexMap


@dataclass(frozen=True, slots=True)
class _Application:
    """An opcode applied to terms."""

    head: Hashable
    """The opcode, attributes and callees."""
    operands: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class _Summary:
    """The value of a computation."""

    number: int
    root: Term = ()
    declared: tuple[Shape | None, ...] = ()
    """The shapes of its parameters without layouts."""
    error: NotLayout | Differs | None = None
    """The reason why the text is compared instead of terms."""


class Terms(ModuleNumbering[_Summary]):
    """All terms of both sides: equal values have equal numbers."""

    def __init__(self, texts: Set[str]) -> None:
        """Computations whose text is in `texts`, which both sides share, are compared as text."""
        super().__init__()
        self._texts = texts
        self._views: dict[int, _View] = {}
        self._staged: dict[Hashable, list[int]] = {}
        self._applications: dict[int, _Application] = {}
        self._acting: set[int] = set()
        """The numbers of computations with external effects."""

    def _numbered(
        self, computation: Computation, callees: Mapping[int, tuple[int, ...]], module: Module
    ) -> _Summary:
        try:
            summary = self._summary(computation, callees, module)
        except (NotLayout, Differs, AttributeSyntaxError, ShapeSyntaxError) as error:
            reason = error if isinstance(error, NotLayout | Differs) else NotLayout(f"{error}")
            number = self.number(("text", computation.text, tuple(callees.items())))
            summary = _Summary(number, error=reason)
        if (
            summary.error is not None
            or not computation.opcodes.isdisjoint(_STATEFUL)
            or _SIDE_EFFECT in computation.text
            or any(not self._acting.isdisjoint(numbers) for numbers in callees.values())
        ):
            self._acting.add(summary.number)
        return summary

    def _summary(
        self, computation: Computation, callees: Mapping[int, tuple[int, ...]], module: Module
    ) -> _Summary:
        if computation.text in self._texts:
            return _Summary(self.number(("text", computation.text, tuple(callees.items()))))
        if computation.parse_errors or computation.root is None:
            raise NotLayout(f"text in %{computation.name} that cannot be read")
        shapes = [parameter.shape_or_none for parameter in computation.parameters]
        parameters = {
            number: self._opaque(("parameter", number), shape)
            for parameter, shape in zip(computation.parameters, shapes, strict=True)
            if (number := parameter.parameter_number) is not None
        }
        values, effects = self._terms(computation, parameters, callees, module)
        root = values[computation.root.name]
        declared = tuple(None if shape is None else without_layout(shape) for shape in shapes)
        number = self.number(("computation", declared, root, effects))
        return _Summary(number, root, declared)

    # ---- terms

    def _terms(
        self,
        computation: Computation,
        parameters: dict[int, Term],
        callees: Mapping[int, tuple[int, ...]],
        module: Module,
    ) -> tuple[dict[str, Term], tuple[Term, ...]]:
        values: dict[str, Term] = {}
        effects: list[Term] = []
        for instruction in computation.instructions:
            operands = tuple(_operands(instruction, values))
            called = callees.get(instruction.number, ())
            acts = (
                instruction.opcode in _STATEFUL
                or _SIDE_EFFECT in instruction.attributes_text
                or not self._acting.isdisjoint(called)
            )
            if UNKNOWN in called:
                raise NotLayout(f"%{instruction.name} calls an undefined computation, or itself")
            if instruction.opcode != "parameter":
                context = called, len(effects) if acts else UNKNOWN
                term = self._term(instruction, operands, context, module)
            elif instruction.parameter_number in parameters:
                term = parameters[instruction.parameter_number]
            else:
                raise NotLayout(f"%{instruction.name} is a parameter without a value")
            if acts:
                effects.append(term)
            values[instruction.name] = term
        return values, tuple(effects)

    def _term(
        self,
        instruction: Instruction,
        operands: tuple[Term, ...],
        context: Hashable,
        module: Module,
    ) -> Term:
        """The value of an instruction; `context` holds its callees and its order among effects."""
        opcode, shape = instruction.opcode, instruction.shape_or_none
        if opcode == "tuple":
            return operands
        if opcode == "get-tuple-element" and operands and isinstance(operands[0], tuple):
            index = instruction.attribute("index")
            if isinstance(index, int) and index < len(operands[0]):
                return operands[0][index]
        if opcode in _MOVES and isinstance(shape, ArrayShape) and len(operands) == 1:
            moved = self._moved(instruction, operands[0], shape)
            if moved is not None:
                return moved
        if opcode == "fusion":
            body = module.callee(instruction)
            if body is not None and body.root is not None and body.opcodes <= _MOVES:
                # It only moves data.
                values, _ = self._terms(body, dict(enumerate(operands)), {}, module)
                return values[body.root.name]
        aliases = _new_aliases(instruction, module)
        if opcode == "custom-call":
            read = inputs_read(instruction)
            operands = operands[:read]
            aliases = frozenset(alias for alias in aliases if alias.operand < read)
        head: tuple[Hashable, ...] = (opcode, _attributes(instruction), aliases, context)
        if opcode == "constant":
            literal = literal_meaning(instruction.operands_text)
            head += (literal, instruction.name if "..." in literal else "")
        if opcode == "bitcast":  # the layouts are its meaning
            head += (*(str(operand.shape) for operand in instruction.operands), str(shape))
        return self._opaque(_Application(head, operands), shape)

    def _moved(self, instruction: Instruction, source: Term, shape: ArrayShape) -> int | None:
        before = instruction.operand_shape(0)
        if not isinstance(before, ArrayShape) or any(shape.dynamic) or any(before.dynamic):
            return None
        index_map = _map_of(instruction, before, shape)
        return None if index_map is None else self._view(source, index_map, shape)

    def _opaque(self, what: Hashable, shape: Shape | None, index: Index = ()) -> Term:
        """An opaque value, with a term for each leaf of its shape."""
        if isinstance(shape, TupleShape):
            return tuple(
                self._opaque(what, element, (*index, place))
                for place, element in enumerate(shape.elements)
            )
        number = self.number((what, index, None if shape is None else without_layout(shape)))
        if isinstance(what, _Application):
            self._applications[number] = what
        if isinstance(shape, ArrayShape) and number not in self._views:
            every = identity(shape.elements)
            self._views[number] = _View(number, shape.dtype, shape.dims, every)
        return number

    def _view(self, source: Term, index_map: IndexMap, shape: ArrayShape) -> int | None:
        """An array that reads a term through an index map; None if the term is not an array."""
        view = self._views.get(source) if isinstance(source, int) else None
        if view is None:
            return None
        total = view.map.after(index_map)
        base = self._views[view.base]
        if not total.steps and (base.dtype, base.dims) == (shape.dtype, shape.dims):
            return view.base
        alike = (view.base, shape.dtype, shape.dims)
        number = self._numbers.get((alike, total.steps))
        if number is None:
            # Single-step maps are equal by their steps; others are compared with earlier maps.
            for candidate in self._staged.get(alike, ()):
                if self._views[candidate].map.equals(total):
                    return candidate
            number = self.number((alike, total.steps))
            self._views[number] = _View(view.base, shape.dtype, shape.dims, total)
            self._staged.setdefault(alike, []).append(number)
        return number

    def explain(self, before: Term, after: Term) -> str:
        """The element in which two views of an array differ; empty if their arrays differ."""

        def inside(pair: tuple[Term, Term]) -> Iterable[tuple[Term, Term]]:
            old, new = pair
            if old == new:
                return ()
            if isinstance(old, tuple) or isinstance(new, tuple):
                if isinstance(old, tuple) and isinstance(new, tuple) and len(old) == len(new):
                    return zip(old[::-1], new[::-1], strict=True)
                return ()
            was, now = self._applications.get(old), self._applications.get(new)
            return [(was.operands, now.operands)] if was and now and was.head == now.head else ()

        for old, new in reached([(before, after)], inside):
            if old == new or isinstance(old, tuple) or isinstance(new, tuple):
                continue
            a, b = self._views.get(old), self._views.get(new)
            if a and b and (a.base, a.dtype, a.dims) == (b.base, b.dtype, b.dims):
                place = a.map.difference(b.map) or 0
                return (
                    f"element {place} of {a.dtype}[{','.join(map(str, a.dims))}] was element "
                    f"{a.map.source(place)} of their common source, and is element "
                    f"{b.map.source(place)}"
                )
        return ""


def _operands(instruction: Instruction, values: Mapping[str, Term]) -> Iterator[Term]:
    for operand in instruction.operands:
        if not operand.name:  # the parser cut the cycle there
            raise Differs(f"%{instruction.name} is computed from itself")
        if operand.name not in values:
            raise Differs(
                f"%{instruction.name} reads %{operand.name}, which is not defined before it"
            )
        term = values[operand.name]
        for number in operand.shape_index:
            if not isinstance(term, tuple) or number >= len(term):
                raise NotLayout("an element of a non-tuple")
            term = term[number]
        yield term


def _new_aliases(instruction: Instruction, module: Module) -> frozenset[Alias]:
    """The aliases of an instruction that are not already those of a call inside a fusion."""
    aliases = instruction.attribute("output_to_operand_aliasing")
    if not isinstance(aliases, tuple):
        return frozenset()
    body = module.callee(instruction) if instruction.opcode == "fusion" else None
    pairs = (alias for alias in aliases if isinstance(alias, Alias))
    return frozenset(alias for alias in pairs if not _is_written_in_place(alias, body))


def _is_written_in_place(alias: Alias, body: Computation | None) -> bool:
    """True if a custom call in the body of a fusion already has that alias."""
    root = None if body is None else body.root
    if root is None:
        return False
    *_, (value, index) = origins(root, alias.output_index, ("bitcast",))
    declared = value.attribute("output_to_operand_aliasing")
    if value.opcode != "custom-call" or not isinstance(declared, tuple):
        return False
    for inner in declared:
        if isinstance(inner, Alias) and inner.output_index == index and not inner.operand_index:
            source = source_of(value.operands[inner.operand], ("bitcast",))
            if source is not None and source.parameter_number == alias.operand:
                return not alias.operand_index
    return False


def _map_of(instruction: Instruction, before: ArrayShape, after: ArrayShape) -> IndexMap | None:
    """The index map of a data movement; None if it is not an index map."""
    opcode, order = instruction.opcode, instruction.integers_attribute("dimensions") or ()
    if opcode != "bitcast" and before.dtype != after.dtype:
        raise Differs(f"%{instruction.name} turns {before} into {after}")
    match opcode:
        case "copy" if before.dims == after.dims:
            return identity(after.elements)
        case "reshape" if before.elements == after.elements:
            return identity(after.elements)
        case "transpose" if sorted(order) == list(range(before.rank)):
            if tuple(before.dims[number] for number in order) == after.dims:
                return index_maps.transpose(before.dims, order)
        case "broadcast" if len(order) == before.rank and len(set(order)) == len(order):
            if all(
                number < after.rank and after.dims[number] == size
                for number, size in zip(order, before.dims, strict=True)
            ):
                return index_maps.broadcast(before.dims, after.dims, order)
        case "bitcast":
            return index_maps.bitcast(before, after)
    raise Differs(f"%{instruction.name}: {opcode} from {before} to {after}")


def _attributes(instruction: Instruction) -> Hashable:
    """The attributes that affect values, with the number of called computations."""
    tail = without_metadata(instruction.attributes_text)
    kept: list[Hashable] = [entry for entry in attributes(tail) if entry[0] not in _NOT_IN_TERMS]
    if "channel_id" in tail:  # `attributes` leaves out its number
        kept.append(instruction.attributes.get("channel_id"))
    if instruction.opcode == "custom-call":
        kept.append(payload_key(instruction))
    return tuple(kept)


# Modules ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Equality:
    """The result of a proof that two modules compute the same values."""

    computations: tuple[str, ...]
    """The computations whose text differs."""
    moves: int
    """The number of changed instructions that only move data, which are compared as maps."""
    elements: int
    """The number of elements in the results of these instructions."""


def _check_heads(before: Module, after: Module) -> None:
    for module in (before, after):
        if module.parse_errors:
            raise NotLayout("text between the computations that cannot be read")
        if len({body.name for body in module.computations}) != len(module.computations):
            raise NotLayout("two computations with the same name")
    if before.header != after.header:
        raise NotLayout("the header of the module differs")
    if before.entry is None or after.entry is None or before.entry.name != after.entry.name:
        raise NotLayout("the entry differs")
    old, new = before.entry.root, after.entry.root
    if old is None or new is None or old.type_text != new.type_text:
        raise Differs("the shape of the result differs")


def _check_control(old: Computation, new: Computation) -> None:
    for instruction in new.instructions:
        former = old.instruction(instruction.name)
        if (
            former is None
            or "control-predecessors" not in instruction.attributes_text + former.attributes_text
        ):
            continue
        was = set(control_predecessors(former.attributes_text))
        now = set(control_predecessors(instruction.attributes_text))
        if was & set(new.index) != now & set(old.index):
            raise Differs(f"the control predecessors of %{instruction.name} differ")


def _refuse(name: str, old: _Summary, new: _Summary, terms: Terms) -> NoReturn:
    """Raise the reason why a computation differs."""
    for summary in (old, new):
        if summary.error is not None:
            raise summary.error
    where = terms.explain(old.root, new.root)
    if where:
        raise Differs(f"%{name}: {where}")
    if old.declared != new.declared:
        raise Differs(f"the parameters of %{name} differ")
    raise NotLayout(f"%{name} computes its result differently")


def prove_equal(before: Module, after: Module) -> Equality:
    """Prove that two modules compute the same values for all inputs.

    >>> from hlo_lint.hlo.parser.module import parse_file
    >>> text = "ENTRY e {{ p = f32[2,3]{{0,1}} parameter(0) {} }}"
    >>> moved = "t = f32[3,2]{1,0} bitcast(p) ROOT r = f32[3,2]{1,0} copy(t)"
    >>> spelled = "ROOT r = f32[3,2]{1,0} transpose(p), dimensions={1,0}"
    >>> one, two = (parse_file(text.format(root)).modules[0] for root in (moved, spelled))
    >>> prove_equal(one, two).moves
    1

    Raises:
        Differs: they compute different values; the message gives the reason.
        NotLayout: they differ by more than data movement, so their values may or may not be equal.
    """
    _check_heads(before, after)
    texts = [{body.text for body in module.computations} for module in (before, after)]
    terms = Terms(texts[0] & texts[1])
    old, new = terms.computations(before), terms.computations(after)
    changed = []
    moved: list[Instruction] = []
    for body in after.computations:
        former = before.computation(body.name)
        if former is None or former.text == body.text:
            continue
        changed.append(body.name)
        _check_control(former, body)
        for instruction in body.instructions:
            was = former.instruction(instruction.name)
            is_new = was is None or was.row != instruction.row
            if is_new and instruction.opcode in _MOVES - {"parameter"}:
                moved.append(instruction)
    for name in (*changed, *(name for name in new if name in old)):
        if old[name].number != new[name].number:
            _refuse(name, old[name], new[name], terms)
    shapes = [instruction.shape_or_none for instruction in moved]
    elements = sum(shape.elements for shape in shapes if isinstance(shape, ArrayShape))
    return Equality(tuple(changed), len(moved), elements)
