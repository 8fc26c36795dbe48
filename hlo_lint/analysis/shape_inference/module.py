"""Shape inference over the computations of a module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat

from hlo_lint.analysis.shape_inference.operation import Signature
from hlo_lint.analysis.shape_inference.shape_check import (
    IGNORES_TYPE,
    Open,
    Refusal,
    ShapeCheck,
    check_shape,
    inference_of,
)
from hlo_lint.hlo.ir import Computation, Instruction, Module, cached_analysis
from hlo_lint.hlo.records import (
    attributes_before_metadata,
    attributes_of,
    opcode_of,
    operands_of,
    references_of,
    type_of,
)
from hlo_lint.hlo.shape import Shape, element_type, shape_or_none

_MAX_CALL_DEPTH = 100


class ShapeInference:
    """The shapes that XLA would infer in computations, and in their callees among them."""

    def __init__(self, computations: Iterable[Computation]) -> None:
        self._computations: dict[str, Computation] = {}
        for computation in computations:
            self._computations.setdefault(computation.name, computation)
        self._signatures: dict[str, Signature | None] = {}
        self._left_out: dict[Computation, dict[int, str]] = {}
        self._being_read: list[Computation] = []

    def shape(self, instruction: Instruction) -> Shape | None:
        """The printed shape, else the inferred shape, else None."""
        return shape_or_none(self._type(instruction.computation, instruction.number))

    def errors(self, computation: Computation) -> Iterator[tuple[Instruction, str]]:
        """The instructions whose printed shape is wrong, with the errors."""
        for number in range(len(computation.rows)):
            checked = self.check_shape(computation, number)
            for message in checked.errors:
                yield computation.at(number), message
            if checked.layout_error:
                yield computation.at(number), f"different layouts: {checked.layout_error}"

    def check_shape(
        self, computation: Computation, number: int, *, typed: bool = True
    ) -> ShapeCheck:
        """The inferred shape of an instruction by its position, and the printed shape's errors.

        Without `typed`, as if the text left its type out.
        """
        row = computation.rows[number]
        inference = inference_of(opcode_of(row))
        if inference is None:
            return ShapeCheck(Open.UNKNOWN)
        index = computation.index
        operands = []
        for name in references_of(row):
            name, _, element = name.partition("#")
            position = index.get(name)
            text = "" if position is None else self._type(computation, position)
            operands.append(element_type(text, element) if element and text else text)
        callees: tuple[Signature | None, ...] = ()
        if inference.calls:
            callees = tuple(map(self._signature, computation.at(number).called_computations))
        tail = attributes_before_metadata(attributes_of(row)) if inference.attributes else ""
        return check_shape(
            opcode_of(row), type_of(row) if typed else "", tuple(operands), tail, callees
        )

    def _type(self, computation: Computation, number: int) -> str:
        """The type of an instruction as text, inferred where it is left out."""
        row = computation.rows[number]
        printed = type_of(row)
        if printed and opcode_of(row) not in IGNORES_TYPE:
            return printed
        if computation not in self._left_out:
            self._infer_left_out(computation)
        return self._left_out[computation].get(number, printed)

    def _infer_left_out(self, computation: Computation) -> None:
        """Infer the types that the parser does not read, in the order of the text."""
        inferred_types = self._left_out[computation] = {}
        self._being_read.append(computation)
        for number, row in enumerate(computation.rows):
            if not type_of(row) or opcode_of(row) in IGNORES_TYPE:
                inferred = self.check_shape(computation, number).inferred
                if not isinstance(inferred, Refusal | Open):
                    inferred_types[number] = str(inferred)
        self._being_read.pop()

    def _signature(self, name: str) -> Signature | None:
        if name not in self._signatures:
            computation = self._computations.get(name)
            if computation in self._being_read or len(self._being_read) >= _MAX_CALL_DEPTH:
                return None  # a recursive call, which HLO forbids
            self._signatures[name] = None if computation is None else self._seen(computation)
        return self._signatures[name]

    def _seen(self, computation: Computation) -> Signature | None:
        """The signature of a computation; None if it has no root or unreadable text."""
        if (printed := signature_of(computation)) is not None:
            return printed
        if computation.root is None or computation.parse_errors:
            return None
        parameters = (
            self._type(computation, parameter.number) for parameter in computation.parameters
        )
        return Signature(tuple(parameters), self._type(computation, computation.root.number))


@cached_analysis
def inference_in(module: Module) -> ShapeInference:
    """The shapes of a module's instructions."""
    return ShapeInference(module.computations)


@cached_analysis
def signature_of(computation: Computation) -> Signature | None:
    """The signature of a computation as printed; None if a type is left out or unreadable."""
    rows, root = computation.rows, computation.root_number
    if root is None or computation.parse_errors or not all(map(type_of, rows)):
        return None
    types = parameter_types(computation)
    if "" in types:
        types = tuple([parameter.type_text for parameter in computation.parameters])
    return Signature(types, type_of(rows[root]))


@cached_analysis
def parameter_types(computation: Computation) -> tuple[str, ...]:
    """The parameter types as spelled, by number; "" for a missing parameter."""
    parameters = [row for row in computation.rows if opcode_of(row) == "parameter"]
    types = dict(zip(map(operands_of, parameters), map(type_of, parameters), strict=True))
    return tuple(map(types.get, map(str, range(len(parameters))), repeat("")))
