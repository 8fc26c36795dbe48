"""The view of a check: a computation with its callees, at a stage of its module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hlo_lint.analysis.calls import callee_name, calls_of
from hlo_lint.analysis.stage import Stage
from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError
from hlo_lint.hlo.ir import Computation, Instruction, Module, cached_analysis
from hlo_lint.hlo.shape import Shape
from hlo_lint.text.patterns import late
from hlo_lint.text.source import Span


class Header(NamedTuple):
    """The part of a module's configuration that checks of instructions depend on."""

    replicas: int
    partitions: int
    is_scheduled: bool
    is_counted: bool = False
    """True if the header or the stage gives a count: XLA prints those that are not 1."""
    is_spmd: bool = False
    """True if the header says that the SPMD partitioner runs; XLA never prints that."""


class Violation(NamedTuple):
    """A condition of XLA's verifier that a module violates."""

    check: str
    """The name of the check in `docs/verifier.md`: `while-shapes`."""
    at: Instruction | Span
    """An instruction, or a stretch of the module's text in characters."""
    message: str
    operand: int | None = None
    """The operand the caret stands under; None for the whole instruction."""
    notes: tuple[str, ...] = ()
    is_warning: bool = False
    """True if XLA accepts it."""


class Scope(NamedTuple):
    """A computation, its callees, and the stage."""

    computation: Computation
    module: Module
    stage: Stage
    header: Header

    def called(self, instruction: Instruction) -> tuple[Computation | None, ...]:
        """The computations that an instruction calls, in order; None for a missing computation."""
        names = calls_of(instruction.computation).get(instruction.number)
        if names is None:  # an opcode that calls nothing
            names = instruction.called_computations
        return tuple(map(self.module.computation, names))

    def callee(self, instruction: Instruction) -> Computation | None:
        """The first computation that an instruction calls; None if it is missing."""
        return next(iter(self.called(instruction)), None)

    def named(self, instruction: Instruction, attribute: str) -> Computation | None:
        """The computation that an attribute names; None if it is missing."""
        return self.module.computation(callee_name(instruction, attribute) or "")


_find_counts = late(r", (replica_count|num_partitions)=(\d{1,9})\b").findall


@cached_analysis
def header_counts(module: Module) -> Mapping[str, int]:
    """`replica_count` and `num_partitions` of a header, cached: headers are long."""
    return {name: int(text) for name, text in _find_counts(module.header)}


def header_of(module: Module, stage: Stage) -> Header:
    """The counts of a stage, else those of the header, else 1."""
    counts = header_counts(module)
    replicas, partitions = stage.replica_count, stage.num_partitions
    return Header(
        counts.get("replica_count", 1) if replicas is None else replicas,
        counts.get("num_partitions", 1) if partitions is None else partitions,
        module.is_scheduled,
        bool(counts) or replicas is not None or partitions is not None,
        "use_spmd_partitioning=true" in module.header,
    )


def header_span(module: Module) -> Span:
    """The place of the header, in characters of the module's text."""
    start = max(module.text.find(module.header), 0) if module.header else 0
    return Span(start, start + len(module.header.split(",", 1)[0]))


# Attributes


_is_semantic = late(
    r"the mesh has no axis |axis .* has no such part|\d+ devices for \d+ places"
    r"|a transposition names|negative device"
).match


def device_list_error(name: str, text: str) -> str:
    """The semantic error in a well-formed list of devices, or ""."""
    from hlo_lint.hlo.attributes.reading import read_attribute  # many texts have no attributes

    try:
        read_attribute(name, text)
    except AttributeSyntaxError as error:
        return error.message if _is_semantic(error.message) else ""
    return ""


# Operands and parameters


def parameter(computation: Computation | None, number: int) -> Instruction | None:
    """A parameter by its number."""
    for instruction in computation.with_opcode("parameter") if computation is not None else ():
        if instruction.parameter_number == number:
            return instruction
    return None


def shape_of(instruction: Instruction | None) -> Shape | None:
    """The printed shape of an instruction, or None."""
    return None if instruction is None else instruction.shape_or_none
