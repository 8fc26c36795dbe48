"""Memory that parameters give to results: aliases, donors."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lint.analysis.verifier.checks import on_entry
from hlo_lint.analysis.verifier.scope import Violation, header_span, shape_of
from hlo_lint.hlo.attributes.plain import Alias, Donor
from hlo_lint.hlo.attributes.shapes import ProgramShape
from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.shape import ArrayShape, Shape, part, spelled_index
from hlo_lint.rules.base import Bad, Good, Stage
from hlo_lint.rules.verifier import VerifierRule


class BadAliasing(VerifierRule):
    """An `input_output_alias` or `buffer_donor` that names a missing or unsuitable parameter.

    ## Why
    `input_output_alias` and `buffer_donor` in the header give the memory of parameters to results
    (`xla/hlo/ir/hlo_input_output_alias_config.cc`). XLA compares sizes only after
    layout-assignment: before it, XLA's size function returns 0.
    """

    messages = (
        "Expected aliased input … to have the same size",
        "is already aliased with one output, thus it cannot be added as a buffer donor",
        "is registered as a buffer donor. However, it is also in the input output alias config",
    )
    mentions = ("input_output_alias=", "buffer_donor=")
    table = """
        must-alias-shape: VerifyEntryComputationLayout
          must-alias: equal shapes and layouts in the header
            HloModule m, input_output_alias={ {}: (0, {}, must-alias) },  // error
                entry_computation_layout={(f32[8,3]{1,0})->f32[8,3]{0,1}}
            ROOT n = f32[8,3]{0,1} negate(f32[8,3]{1,0} p)
        input-output-alias: HloInputOutputAliasConfig::Verify
          input_output_alias names each array at most once
            HloModule m, input_output_alias={ {}: (1, {}, may-alias) }  // error
            ROOT n = f32[8,3]{1,0} negate(f32[8,3]{1,0} p)
        alias-size:
          aliased parameters and results have equal sizes, also before layout-assignment
            HloModule m, is_scheduled=true, input_output_alias={ {}: (0, {}, may-alias) }  // error
            ROOT r = f32[8] concatenate(f32[4] p, p), dimensions={0}
        buffer-donor: HloBufferDonorConfig::Verify
          buffer_donor names only arrays that are not aliased
            HloModule m, input_output_alias={ {}: (0, {}, may-alias) },  // error
                buffer_donor={ (0, {}) }
            ROOT n = f32[8,3]{1,0} negate(f32[8,3]{1,0} p)
    """
    examples = (
        Bad.entry("""
            HloModule m, input_output_alias={ {}: (0, {}, must-alias) }  // error
            ROOT r = s32[8] bitcast-convert(f32[8] p)
        """),
        Good.entry("""
            HloModule m, input_output_alias={ {}: (0, {}, must-alias) },
                entry_computation_layout={(f32[8,3]{1,0})->f32[8,3]{1,0}}
            ROOT n = f32[8,3]{1,0} negate(f32[8,3]{1,0} p)
        """),
        Good.entry("""
            HloModule m, input_output_alias={ {}: (0, {}, may-alias) }
            ROOT r = f32[4] slice(f32[8] p), slice={[0:4]}
        """),
    )

    @on_entry
    def parameters(self, module: Module, stage: Stage) -> Iterator[Violation]:
        """`input_output_alias` and `buffer_donor` name each array of the entry at most once."""
        if "input_output_alias=" not in module.header and "buffer_donor=" not in module.header:
            return
        shapes = _entry_shapes(module)
        if shapes is None:
            return
        parameters, result = shapes
        header = header_span(module)
        # Before layout-assignment XLA assumes size 0 for all arrays, and without the verifier a
        # compiler drops an optional alias.
        is_unsure = stage.assumed or not stage.layouts
        aliased: set[tuple[int, tuple[int, ...]]] = set()
        outputs: set[tuple[int, ...]] = set()
        for alias in _listed(module, "input_output_alias"):
            if not isinstance(alias, Alias):
                return
            output, place = alias.output_index, (alias.operand, alias.operand_index)
            where = f"parameter {alias.operand} at index {spelled_index(alias.operand_index)}"
            ours = part(result, output)
            theirs = part(parameters.get(alias.operand), alias.operand_index)
            error = ""
            if theirs is None:
                error = f"no {where} to alias"
            elif ours is None:
                error = f"no output at index {spelled_index(output)} to alias"
            elif not isinstance(ours, ArrayShape) or not isinstance(theirs, ArrayShape):
                error = f"{where} is aliased, but is not an array"
            elif place in aliased or output in outputs:
                error = f"{where} or its output is aliased twice"
            elif alias.kind == "must-alias":
                yield from _must_alias(module, alias, ours, theirs)
            elif (theirs.byte_size or 0) > (ours.byte_size or 0):
                pass  # releases up to jax 0.4 make and run such modules
            elif ours.byte_size != theirs.byte_size:
                message = (
                    f"{where} has {theirs.byte_size} bytes, the output that aliases it "
                    f"{ours.byte_size}: {theirs} and {ours}"
                )
                yield Violation("alias-size", header, message, is_warning=is_unsure)
            if error:
                yield Violation("input-output-alias", header, error)
            aliased.add(place)
            outputs.add(output)
        for donor in _listed(module, "buffer_donor"):
            if not isinstance(donor, Donor):
                return
            where = f"parameter {donor.parameter} at index {spelled_index(donor.shape_index)}"
            donated = part(parameters.get(donor.parameter), donor.shape_index)
            if not isinstance(donated, ArrayShape):
                message = f"{where} is a buffer donor, but not an array of the entry"
                yield Violation("buffer-donor", header, message)
            elif (donor.parameter, donor.shape_index) in aliased:
                message = f"{where} is both a buffer donor and in input_output_alias"
                yield Violation("buffer-donor", header, message)


def _listed(module: Module, name: str) -> tuple[object, ...]:
    value = module.attribute_or_none(name)
    return value if isinstance(value, tuple) else ()


def _must_alias(
    module: Module, alias: Alias, ours: ArrayShape, theirs: ArrayShape
) -> Iterator[Violation]:
    """A must-alias pair has equal shapes and layouts: in the header, if it states them."""
    program = module.attribute_or_none("entry_computation_layout")
    if isinstance(program, ProgramShape) and alias.operand < len(program.parameters):
        result = part(program.result, alias.output_index)
        parameter = part(program.parameters[alias.operand], alias.operand_index)
        if isinstance(result, ArrayShape) and isinstance(parameter, ArrayShape):
            ours, theirs = result, parameter
    ordered = ours.layout is None or theirs.layout is None or ours.layout == theirs.layout
    if ours.with_layout(None) != theirs.with_layout(None) or not ordered:
        message = (
            f"output {spelled_index(alias.output_index)} is {ours}, but must alias parameter "
            f"{alias.operand}, which is {theirs}"
        )
        yield Violation("must-alias-shape", header_span(module), message)


def _entry_shapes(module: Module) -> tuple[dict[int, Shape], Shape] | None:
    entry = module.entry
    result = None if entry is None else shape_of(entry.root)
    if entry is None or result is None:
        return None
    parameters = {}
    for parameter in entry.with_opcode("parameter"):
        number, shape = parameter.parameter_number, parameter.shape_or_none
        if shape is None or number is None:
            return None
        parameters[number] = shape
    return parameters, result
