"""Values as terms: what each instruction computes, with chains of data movement as index maps.

Two computations are equal if their roots are the same term and what they do besides is the same.
A term is an opcode applied to terms, or an array that reads another one through an index map;
layouts are in it only where a bitcast reads them. So an added copy, a transpose spelled out, a
fusion of one reshape or another order of the lines change no term. Other algebra is not known
here: `a+b` and `b+a` are different terms, and nothing is said about their values.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from hlo_lint.analysis.buffers import source_of
from hlo_lint.engine.proof import index_maps
from hlo_lint.engine.proof.index_maps import IndexMap, identity
from hlo_lint.engine.proof.payloads import inputs_read, payload_key
from hlo_lint.hlo.attributes.plain import Alias
from hlo_lint.hlo.attributes.splitting import control_predecessors
from hlo_lint.hlo.ir import CALLING_ATTRIBUTES, Computation, Instruction, Module
from hlo_lint.hlo.opcodes import COMMUNICATES
from hlo_lint.hlo.shape import ArrayShape, BufferShape, Shape, TupleShape

Term: TypeAlias = "int | tuple[Term, ...]"
"""The number of a term, or the terms of a tuple's elements."""

_VALUELESS: Final = frozenset(
    "metadata origin statistics backend_config control-predecessors output_to_operand_aliasing "
    "kind operand_layout_constraints inferred_dimension".split()
)
"""Attributes that change no value; of a custom call `backend_config` does."""
_STATEFUL: Final = COMMUNICATES | {"infeed", "outfeed", "rng", "rng-get-and-update-state"}
"""Opcodes that act on something outside: how often and in which order counts."""
_MOVES: Final = frozenset({"parameter", "reshape", "copy", "transpose", "bitcast", "broadcast"})


class NotLayout(Exception):
    """Two modules whose terms say nothing about their values; says where they part."""


class Differs(Exception):
    """Two modules that do not compute the same; says where."""


@dataclass(frozen=True, slots=True)
class _View:
    """An array as it reads another one."""

    base: int
    dtype: str
    dims: tuple[int, ...]
    map: IndexMap


@dataclass(slots=True)
class Table:
    """All terms of both sides: equal values have equal numbers."""

    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _keys: list[Any] = field(default_factory=list)
    _views: dict[int, _View] = field(default_factory=dict)
    _staged: dict[Hashable, list[int]] = field(default_factory=dict)

    def number(self, key: Hashable) -> int:
        """The number of a term that is not a view."""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._keys)
            self._keys.append(key)
        return number

    def of_shape(self, key: Hashable, shape: Shape | None) -> Term:
        """An opaque value: one term for each leaf of its shape."""
        if isinstance(shape, TupleShape):
            return tuple(
                self.of_shape((key, place), element) for place, element in enumerate(shape.elements)
            )
        if not isinstance(shape, ArrayShape):
            return self.number((key, str(shape)))
        number = self.number((key, shape.dtype, shape.dims, shape.dynamic))
        self._views.setdefault(
            number, _View(number, shape.dtype, shape.dims, identity(shape.elements))
        )
        return number

    def moved(self, source: Term, index_map: IndexMap, shape: ArrayShape) -> int | None:
        """An array that reads a term; None if that is not a known array."""
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
            # Digits decide for maps of one step; others are compared with those that are there.
            for other in self._staged.get(alike, ()):
                if self._views[other].map.equals(total):
                    return other
            number = self.number((alike, total.steps))
            self._views[number] = _View(view.base, shape.dtype, shape.dims, total)
            self._staged.setdefault(alike, []).append(number)
        return number

    def explain(self, one: Term, other: Term) -> str:
        """The element in which two views of one array differ; empty if they read others."""
        if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
            return next(filter(None, map(self.explain, one, other)), "")
        if not isinstance(one, int) or not isinstance(other, int) or one == other:
            return ""
        a, b = self._views.get(one), self._views.get(other)
        if a is None or b is None or a.base != b.base or (a.dtype, a.dims) != (b.dtype, b.dims):
            return self._explain_keys(self._keys[one], self._keys[other])
        place = a.map.difference(b.map) or 0
        return (
            f"element {place} of {a.dtype}[{','.join(map(str, a.dims))}] was element "
            f"{a.map.source(place)} of what both read, and is element {b.map.source(place)}"
        )

    def _explain_keys(self, one: Any, other: Any) -> str:
        """The operands of two applications of one opcode."""
        one, other = _application(one), _application(other)
        if one is None or other is None or one.head != other.head:
            return ""
        if len(one.operands) != len(other.operands):
            return ""
        return next(filter(None, map(self.explain, one.operands, other.operands)), "")


@dataclass(frozen=True, slots=True)
class Application:
    """An opcode applied to terms."""

    head: Hashable
    """Opcode, attributes, and what it calls."""
    operands: tuple[Term, ...]


def _application(key: Any) -> Application | None:
    while isinstance(key, tuple) and key:
        key = key[0]
    return key if isinstance(key, Application) else None


# Computations -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Summary:
    """The terms that a computation computes."""

    root: Term
    effects: tuple[Term, ...]
    parameters: tuple[Hashable, ...]


class _Side:
    """One module, its computations as terms."""

    def __init__(self, module: Module, table: Table, same: Callable[[str], bool]) -> None:
        self.computations = {body.name: body for body in module.computations}
        self._table = table
        self._same = same
        self._summaries: dict[str, _Summary] = {}
        self._active: set[str] = set()

    def summary(self, name: str) -> _Summary:
        """The terms of a computation, of its parameters."""
        summary = self._summaries.get(name)
        if summary is not None:
            return summary
        computation = self.computations.get(name)
        if computation is None or computation.root is None:
            raise NotLayout(f"no computation %{name}")
        if computation.parse_errors:
            raise NotLayout(f"text in %{name} that cannot be read")
        if name in self._active:
            raise NotLayout(f"%{name} calls itself")
        self._active.add(name)
        try:
            summary = self._summaries[name] = self._summarized(computation)
        finally:
            self._active.discard(name)
        return summary

    def _summarized(self, computation: Computation) -> _Summary:
        parameters = {
            parameter.parameter_number or 0: self._table.of_shape(
                ("parameter", parameter.parameter_number), parameter.shape_or_none
            )
            for parameter in computation.parameters
        }
        values, effects = self._terms(computation, parameters)
        declared = tuple(_logical(parameter.shape_or_none) for parameter in computation.parameters)
        root = values[computation.root.name] if computation.root is not None else ()
        return _Summary(root, effects, declared)

    def _terms(
        self, computation: Computation, parameters: dict[int, Term]
    ) -> tuple[dict[str, Term], tuple[Term, ...]]:
        values: dict[str, Term] = {}
        effects: list[Term] = []
        for instruction in computation.instructions:
            operands = tuple(self._operands(instruction, values))
            if instruction.opcode == "parameter":
                term = parameters[instruction.parameter_number or 0]
            else:
                term = self._term(instruction, operands, len(effects))
            if _acts_outside(instruction):
                effects.append(term)
            values[instruction.name] = term
        return values, tuple(effects)

    def _operands(self, instruction: Instruction, values: dict[str, Term]) -> Iterator[Term]:
        for operand in instruction.operands:
            if operand.name not in values:
                raise Differs(
                    f"%{instruction.name} reads %{operand.name}, which is not defined before it"
                )
            yield _part(values[operand.name], operand.index)

    def _term(self, instruction: Instruction, operands: tuple[Term, ...], acted: int) -> Term:
        opcode, shape = instruction.opcode, instruction.shape_or_none
        if opcode == "tuple":
            return operands
        if opcode == "get-tuple-element" and isinstance(operands[0], tuple):
            index = instruction.attribute("index")
            if isinstance(index, int) and index < len(operands[0]):
                return operands[0][index]
        if opcode in _MOVES and isinstance(shape, ArrayShape) and len(operands) == 1:
            moved = self._moved(instruction, operands[0], shape)
            if moved is not None:
                return moved
        if opcode == "fusion":
            inlined = self._inlined(instruction, operands)
            if inlined is not None:
                return inlined
        aliases = self._new_aliases(instruction)
        if opcode == "custom-call":
            read = inputs_read(instruction)
            operands = operands[:read]
            aliases = frozenset(alias for alias in aliases if alias.operand < read)
        head: tuple[Hashable, ...]
        head = (opcode, _attributes(instruction), aliases, self._callees(instruction))
        if opcode == "constant":
            literal = " ".join(instruction.operands_text.split())
            head += (literal, instruction.name if "..." in literal else "")
        if opcode == "bitcast":  # the layouts are its meaning
            head += (str(instruction.operands[0].shape), str(shape))
        if _acts_outside(instruction):
            head += (acted,)
        return self._table.of_shape((Application(head, operands),), shape)

    def _moved(self, instruction: Instruction, source: Term, shape: ArrayShape) -> int | None:
        before = instruction.operands[0].shape
        if not isinstance(before, ArrayShape) or any(shape.dynamic) or any(before.dynamic):
            return None
        index_map = _map_of(instruction, before, shape)
        return None if index_map is None else self._table.moved(source, index_map, shape)

    def _inlined(self, fusion: Instruction, operands: tuple[Term, ...]) -> Term | None:
        """The value of a fusion that only moves data."""
        names = fusion.called_computations
        body = self.computations.get(names[0]) if len(names) == 1 else None
        if body is None or body.root is None or not body.opcodes <= _MOVES:
            return None
        values, _ = self._terms(body, dict(enumerate(operands)))
        return values[body.root.name]

    def _new_aliases(self, instruction: Instruction) -> frozenset[Alias]:
        """The results that an instruction writes over its operands, though nothing in it does.

        A call that a fusion holds may write in place already; then the fusion only says so.
        """
        aliases = instruction.attribute("output_to_operand_aliasing")
        if not isinstance(aliases, tuple):
            return frozenset()
        body = None
        if instruction.opcode == "fusion" and len(instruction.called_computations) == 1:
            body = self.computations.get(instruction.called_computations[0])
        pairs = (alias for alias in aliases if isinstance(alias, Alias))
        return frozenset(alias for alias in pairs if not _is_written_in_place(alias, body))

    def _callees(self, instruction: Instruction) -> tuple[Hashable, ...]:
        return tuple(
            name if self._same(name) else self.summary(name)
            for name in instruction.called_computations
        )


def _part(term: Term, index: tuple[int, ...]) -> Term:
    for number in index:
        if not isinstance(term, tuple) or number >= len(term):
            raise NotLayout("an element of what is not a tuple")
        term = term[number]
    return term


def _is_written_in_place(alias: Alias, body: Computation | None) -> bool:
    """True if a call in the body of a fusion writes that result over that parameter."""
    value, index = (None if body is None else body.root), alias.output_index
    while value is not None:
        match value.opcode:
            case "tuple" if index and index[0] < len(value.operands):
                value, index = value.operands[index[0]].instruction, index[1:]
            case "get-tuple-element":
                number = value.attribute("index")
                index = (number, *index) if isinstance(number, int) else index
                value = value.operands[0].instruction
            case "bitcast":
                value = value.operands[0].instruction
            case _:
                break
    declared = None if value is None else value.attribute("output_to_operand_aliasing")
    if value is None or value.opcode != "custom-call" or not isinstance(declared, tuple):
        return False
    for inner in declared:
        if isinstance(inner, Alias) and inner.output_index == index and not inner.operand_index:
            source = source_of(value.operands[inner.operand], ("bitcast",))
            if source is not None and source.parameter_number == alias.operand:
                return not alias.operand_index
    return False


def _acts_outside(instruction: Instruction) -> bool:
    has_effect = "custom_call_has_side_effect=true" in instruction.attributes_text
    return has_effect or instruction.opcode in _STATEFUL


def _map_of(instruction: Instruction, before: ArrayShape, after: ArrayShape) -> IndexMap | None:
    """The sources of the elements of a data movement; None if that is not an index map."""
    opcode, order = instruction.opcode, instruction.integers_attribute("dimensions") or ()
    if opcode != "bitcast" and before.dtype != after.dtype:
        raise Differs(f"%{instruction.name} makes {after} of {before}")
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
    """The attributes that bear on values, computations by their number only."""
    kept: list[Hashable] = []
    for name, text in sorted(instruction.attributes.items()):
        if name in CALLING_ATTRIBUTES:
            kept.append(name)
        elif name not in _VALUELESS:
            kept.append((name, " ".join(text.split())))
    if instruction.opcode == "custom-call":
        kept.append(payload_key(instruction))
    return tuple(kept)


def _logical(shape: Shape | None) -> Hashable:
    """A shape without its layouts."""
    match shape:
        case ArrayShape(dtype=dtype, dims=dims, dynamic=dynamic):
            return dtype, dims, dynamic
        case TupleShape(elements=elements):
            return tuple(map(_logical, elements))
        case BufferShape(element=element):
            return ("buffer", _logical(element))
        case _:
            return str(shape)


# Modules ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Equality:
    """Two modules that compute the same."""

    computations: tuple[str, ...]
    """Those whose text differs."""
    moves: int
    """Instructions that only move data, in what differs: zero if none was compared by its map."""
    elements: int
    """The elements of those instructions' results."""


class _Comparison:
    def __init__(self, before: Module, after: Module) -> None:
        self.table = Table()
        self._before, self._after = before, after
        self._verdicts: dict[str, bool] = {}
        self._old = _Side(before, self.table, self.same)
        self._new = _Side(after, self.table, self.same)

    def same(self, name: str) -> bool:
        """True if a computation of both sides computes the same."""
        verdict = self._verdicts.get(name)
        if verdict is None:
            self._verdicts[name] = False  # while it is looked at; a call of itself proves nothing
            try:
                verdict = self._is_same(name)
            except (NotLayout, Differs):
                verdict = False
            self._verdicts[name] = verdict
        return verdict

    def _is_same(self, name: str) -> bool:
        old, new = self._old.computations.get(name), self._new.computations.get(name)
        if old is None or new is None:
            return False
        if old.text == new.text:
            return all(
                self.same(callee)
                for instruction in old.instructions
                for callee in instruction.called_computations
            )
        return self._old.summary(name) == self._new.summary(name)

    def run(self) -> Equality:
        self._check_heads()
        changed = []
        for name, old in self._old.computations.items():
            new = self._new.computations.get(name)
            if new is None:
                continue
            if old.text != new.text:
                changed.append(name)
                self._check_control(old, new)
            if not self.same(name):
                self._refuse(name)
        moved = [
            new
            for name in changed
            for new in self._new.computations[name].instructions
            if new.opcode in _MOVES - {"parameter"} and _is_new(new, self._old.computations[name])
        ]
        shapes = [instruction.shape_or_none for instruction in moved]
        elements = sum(shape.elements for shape in shapes if isinstance(shape, ArrayShape))
        return Equality(tuple(changed), len(moved), elements)

    def _check_heads(self) -> None:
        before, after = self._before, self._after
        for module in (before, after):
            if module.parse_errors:
                raise NotLayout("text between the computations that cannot be read")
            if len({body.name for body in module.computations}) != len(module.computations):
                raise NotLayout("two computations of one name")
        if before.header != after.header:
            raise NotLayout("the header of the module differs")
        if before.entry is None or after.entry is None or before.entry.name != after.entry.name:
            raise NotLayout("the entry differs")
        old, new = before.entry.root, after.entry.root
        if old is None or new is None or old.type_text != new.type_text:
            raise Differs("the shape of the result differs")

    def _check_control(self, old: Computation, new: Computation) -> None:
        for instruction in new.instructions:
            former = old.instruction(instruction.name)
            if (
                former is None
                or "control-predecessors"
                not in instruction.attributes_text + former.attributes_text
            ):
                continue
            was, now = (
                set(control_predecessors(former.attributes_text)),
                set(control_predecessors(instruction.attributes_text)),
            )
            if was & set(new.index) != now & set(old.index):
                raise Differs(f"the control predecessors of %{instruction.name} differ")

    def _refuse(self, name: str) -> None:
        """Raise the reason why a computation is not the same."""
        old, new = self._old.summary(name), self._new.summary(name)
        where = self.table.explain(old.root, new.root)
        if where:
            raise Differs(f"%{name}: {where}")
        if old.parameters != new.parameters:
            raise Differs(f"the parameters of %{name} differ")
        raise NotLayout(f"%{name} computes its result in another way")


def _is_new(instruction: Instruction, before: Computation) -> bool:
    former = before.instruction(instruction.name)
    return former is None or former.row != instruction.row


def prove_equal(before: Module, after: Module) -> Equality:
    """The proof that two modules compute the same for all inputs.

    >>> from hlo_lint.hlo.parser.module import parse_file
    >>> text = "ENTRY e {{ p = f32[2,3]{{0,1}} parameter(0) {} }}"
    >>> moved = "t = f32[3,2]{1,0} bitcast(p) ROOT r = f32[3,2]{1,0} copy(t)"
    >>> spelled = "ROOT r = f32[3,2]{1,0} transpose(p), dimensions={1,0}"
    >>> one, two = (parse_file(text.format(root)).modules[0] for root in (moved, spelled))
    >>> prove_equal(one, two).moves
    1

    Raises:
        Differs: they do not, and the reason.
        NotLayout: they differ by more than data movement; nothing is known.
    """
    return _Comparison(before, after).run()
