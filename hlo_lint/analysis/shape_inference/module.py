"""Shape inference over the computations of a module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from hlo_lint.analysis.shape_inference.operation import Signature
from hlo_lint.analysis.shape_inference.verdict import RULES, Inferred, Open, Verdict, facts, judge
from hlo_lint.ir import NAME, OPCODE, REFERENCES, TAIL, TYPE, Computation, Instruction, Module
from hlo_lint.shape import Shape, ShapeSyntaxError, parse_shape

_DEEPEST_CALL = 100


class ShapeInference:
    """The shapes that XLA would infer in computations that may call each other."""

    def __init__(self, computations: Iterable[Computation]) -> None:
        self._computations: dict[str, Computation] = {}
        for computation in computations:
            self._computations.setdefault(computation.name, computation)
        self._signatures: dict[str, Signature | None] = {}
        self._types: dict[Computation, Mapping[str, str]] = {}
        self._being_read: list[Computation] = []

    def infer(self, instruction: Instruction) -> Inferred:
        """The shape that follows from what an instruction reads; or why there is none.

        Layouts are given where the opcode constrains them.
        """
        return self._judge(instruction.computation, instruction.number).inferred

    def check(self, instruction: Instruction) -> tuple[str, ...]:
        """Why the printed shape of an instruction cannot be; empty where it can."""
        return self._judge(instruction.computation, instruction.number).complaints

    def shape(self, instruction: Instruction) -> Shape | None:
        """The printed shape, else the inferred one; None where neither is known."""
        text = self._types_in(instruction.computation).get(instruction.name, "")
        try:
            return parse_shape(instruction.type_text or text)
        except ShapeSyntaxError:
            return None

    def complaints(
        self, computation: Computation, *, calling: bool | None = None
    ) -> Iterator[tuple[Instruction, str]]:
        """Each printed shape that cannot be, and why.

        `calling` chooses among the instructions: those that call computations, or the others.
        """
        types = self._types_in(computation)
        for number, row in enumerate(computation.rows):
            rule = RULES.get(row[OPCODE])
            if rule is not None and calling in (None, rule.calls):
                for message in self._judge(computation, number, types).complaints:
                    yield computation.at(number), message

    def _judge(
        self, computation: Computation, number: int, types: Mapping[str, str] | None = None
    ) -> Verdict:
        row = computation.rows[number]
        rule = RULES.get(row[OPCODE])
        if rule is None:
            return Verdict(Open.UNKNOWN, ())
        if types is None:
            types = self._types_in(computation)
        operands = tuple(
            [
                types.get(name, "") if "#" not in name else _element(types, name)
                for name in row[REFERENCES]
            ]
        )
        callees: tuple[Signature | None, ...] = ()
        if rule.calls:
            called = computation.at(number).called
            callees = tuple(map(self._signature, called))
        tail = facts(row[TAIL]) if rule.attributes else ""
        return judge(row[OPCODE], row[TYPE], operands, tail, callees)

    def _types_in(self, computation: Computation) -> Mapping[str, str]:
        """The types of a computation as text, by name; those that are left out are inferred."""
        known = self._types.get(computation)
        if known is not None:
            return known
        types = {row[NAME]: row[TYPE] for row in reversed(computation.rows)}
        if "" in types.values() and computation not in self._being_read:
            self._being_read.append(computation)
            for number, row in enumerate(computation.rows):
                if not types[row[NAME]]:
                    inferred = self._judge(computation, number, types).inferred
                    if isinstance(inferred, Shape):
                        types[row[NAME]] = str(inferred)
            self._being_read.pop()
        self._types[computation] = types
        return types

    def _signature(self, name: str) -> Signature | None:
        if name not in self._signatures:
            self._signatures[name] = self._signature_of(self._computations.get(name))
        return self._signatures[name]

    def _signature_of(self, computation: Computation | None) -> Signature | None:
        if (
            computation is None
            or computation in self._being_read
            or len(self._being_read) >= _DEEPEST_CALL
        ):
            return None
        root = computation.root
        if root is None or computation.troubles:
            return None
        types = self._types_in(computation)
        parameters = tuple(types[each.name] for each in computation.parameters)
        return Signature(parameters, types[root.name])


def _element(types: Mapping[str, str], reference: str) -> str:
    """The type of a tuple with the index of an element behind it: `(f32[8], s32[])#1`."""
    name, sign, index = reference.partition("#")
    text = types.get(name, "")
    return text + sign + index if text else ""


def infer(instruction: Instruction, module: Module | None = None) -> Inferred:
    """The shape that XLA would infer for an instruction; or why there is none.

    Without its module, what depends on called computations is not known.

    >>> from hlo_lint.syntax.parse import parse_file
    >>> file = parse_file("ENTRY e { p = f32[8,3] parameter(0) ROOT t = transpose(p), "
    ...                   "dimensions={1,0} }")
    >>> module = file.modules[0]
    >>> str(infer(module.entry.root, module))
    'f32[3,8]'
    """
    return _inference(instruction, module).infer(instruction)


def check(instruction: Instruction, module: Module | None = None) -> tuple[str, ...]:
    """Why the printed shape of an instruction cannot be; empty where it can."""
    return _inference(instruction, module).check(instruction)


def _inference(instruction: Instruction, module: Module | None) -> ShapeInference:
    return ShapeInference((instruction.computation,) if module is None else module.computations)
