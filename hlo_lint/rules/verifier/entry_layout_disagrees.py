"""`entry_computation_layout` compared with the entry computation."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lint.analysis.shape_inference.module import parameter_types
from hlo_lint.analysis.shape_inference.types import compatible, describe_mismatch, layout_mismatch
from hlo_lint.analysis.verifier.checks import on_entry
from hlo_lint.analysis.verifier.scope import Violation, header_span
from hlo_lint.analysis.verifier.shapes import type_errors
from hlo_lint.hlo.attributes.shapes import ProgramShape
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.shape import Shape, arrays
from hlo_lint.rules.base import Bad, Good, Stage
from hlo_lint.rules.verifier import VerifierRule


class EntryLayoutDisagrees(VerifierRule):
    """An entry computation whose parameters or result differ from the header.

    ## Why
    Callers allocate and lay out arguments by `entry_computation_layout`, but the program reads them
    by its parameters' types (`VerifyEntryComputationLayout` in `xla/service/hlo_verifier.cc`).
    """

    messages = (
        "Shape of the root instruction of entry computation",
        "Shape of the entry computation parameter",
        "Number of parameters in entry computation layout",
    )
    mentions = ("entry_computation_layout=",)
    table = """
        entry-result: VerifyEntryComputationLayout
          the root of the entry has the result shape of the header
            // hlo-lint: stage post-layout
            HloModule m, entry_computation_layout={(f32[8,3]{1,0})->f32[8,3]{1,0}}
            ROOT n = f32[8,3]{0,1} negate(f32[8,3]{1,0} p)  // error
        entry-parameter-count: VerifyEntryComputationLayout
          the entry has as many parameters as the header
            HloModule m, entry_computation_layout={(f32[8,3]{1,0})->f32[8,3]{1,0}}  // error
            ROOT n = f32[8,3]{1,0} negate(f32[8,3]{1,0} p)
            q = f32[] parameter(1)
        entry-parameters: VerifyEntryComputationLayout
          parameters have the shapes of the header
            // hlo-lint: stage post-layout
            HloModule m, entry_computation_layout={(f32[8,3]{1,0})->f32[8,3]{1,0}}
            p = f32[8,3]{0,1} parameter(0)  // error
            ROOT n = f32[8,3]{1,0} negate(p)
        entry-memory:
          parameters and the result are in the memory spaces of the header
            HloModule m, is_scheduled=true, entry_computation_layout={(f32[8]{0})->f32[8]{0}}
            p = f32[8]{0:S(1)} parameter(0)  // error
            ROOT n = f32[8]{0} negate(p)
        entry-layout: VerifyEntryComputationLayout
          layouts in the header are valid
            HloModule m, entry_computation_layout={(f32[8,3]{1,0})->f32[8,3]{1,1}}  // error
            ROOT n = f32[8,3]{1,0} negate(f32[8,3]{1,0} p)
    """
    examples = (
        Bad.entry("""
            HloModule m, is_scheduled=true, entry_computation_layout={(f32[8]{0})->f32[8]{0}}
            ROOT n = f32[8]{0:S(1)} negate(f32[8]{0} p)  // error
        """),
        Good.entry("""
            HloModule m, entry_computation_layout={(f32[8,3]{1,0})->f32[8,3]{1,0}}
            ROOT n = f32[8,3]{1,0} negate(f32[8,3]{1,0} p)
        """),
    )

    @on_entry
    def layout(self, module: Module, stage: Stage) -> Iterator[Violation]:
        """`entry_computation_layout` matches the parameters and the result of the entry."""
        entry = module.entry
        if entry is None or "entry_computation_layout=" not in module.header:
            return
        if _is_printed_alike(module, entry):
            return
        program = module.attribute_or_none("entry_computation_layout")
        if not isinstance(program, ProgramShape):
            return
        header = header_span(module)
        for shape in (*program.parameters, program.result):
            for array in arrays(shape):
                if array.layout is not None and not array.has_valid_layout:
                    message = f"the layout of {array} does not name each dimension once"
                    yield Violation("entry-layout", header, message)
                    return
        parameters, count = entry.with_opcode("parameter"), len(program.parameters)
        if len(parameters) != count:
            message = (
                f"entry_computation_layout has {count} parameters, but the entry has "
                f"{len(parameters)}"
            )
            yield Violation("entry-parameter-count", header, message)
            return
        promised = [
            ("entry-parameters", parameter, f"parameter {number}", program.parameters[number])
            for parameter in parameters
            if (number := parameter.parameter_number) is not None and number < count
        ]
        if entry.root is not None:
            promised.append(("entry-result", entry.root, "the result", program.result))
        for check, place, title, wanted in promised:
            if error := _error(place, title, wanted, stage):
                yield Violation(check, place, error)
            elif error := _other_memory(place, title, wanted, stage):
                yield Violation("entry-memory", place, error, is_warning=True)


def _is_printed_alike(module: Module, entry: Computation) -> bool:
    """True if the header prints exactly the types of the parameters and the root."""
    parameters = parameter_types(entry)
    result = "" if entry.root is None else entry.root.type_text
    # XLA prints a comment before each fifth parameter.
    counted = [
        text if number % 5 or not number else f"/*index={number}*/{text}"
        for number, text in enumerate(parameters)
    ]
    return f"entry_computation_layout={{({', '.join(counted)})->{result}}}" in module.header and (
        not any(map(type_errors, {*parameters, result}))
    )


def _other_memory(at: Instruction, what: str, wanted: Shape, stage: Stage) -> str:
    """A message if the header has a different memory space; else empty."""
    for ours, theirs in zip(arrays(at.shape_or_none), arrays(wanted), strict=False):
        spaces = ours.memory_space, theirs.memory_space
        if stage.layouts and spaces[0] and spaces[0] != spaces[1]:
            return (
                f"{what} is in memory space {spaces[0]}, but in {spaces[1]} in "
                "entry_computation_layout"
            )
    return ""


def _error(at: Instruction, what: str, wanted: Shape, stage: Stage) -> str:
    shape = at.shape_or_none
    if shape is None or shape == wanted:
        return ""
    if not compatible(shape, wanted):
        ours, theirs = describe_mismatch(shape, wanted)
        return f"{what} is {ours}, but {theirs} in entry_computation_layout"
    mismatch = layout_mismatch(shape, wanted, filled=stage.exact_layouts)
    # Before layout-assignment, the header states layouts that values do not have yet.
    if stage.layouts and mismatch:
        return f"{what} has a different layout in entry_computation_layout: {mismatch}"
    return ""
