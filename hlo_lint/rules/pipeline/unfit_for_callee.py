"""Library calls or regions that XLA's emitters reject."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from hlo_lint.analysis.callees import callees, configuration
from hlo_lint.analysis.calls import instructions_of
from hlo_lint.analysis.emitted_regions import misused
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.analysis.shape_inference.shape_check import check_shape
from hlo_lint.dumps.pass_lists import jax_release
from hlo_lint.hlo.attributes.configuration import Json
from hlo_lint.hlo.attributes.splitting import attribute_span
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.kinds import kind_at
from hlo_lint.hlo.shape import ArrayShape, TupleShape, shape_or_none
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Severity, Stage
from hlo_lint.rules.evidence import RefusedByXla

_GEMM = """
ROOT g = (f32[6,35]{{1,0}}, s8[64]{{0}}) custom-call(f32[6,4]{{1,0}} p, f32[4,35]{{1,0}} q, \
f32[{columns}]{{0}} bias), custom_call_target="__cublas$lt$matmul",  // error
    backend_config={{"gemm_backend_config":{{"beta":0,"epilogue":"BIAS"}}}}
"""
_PRODUCT = ("__cublas$gemm", "__cublas$lt$matmul")
_CONVOLVED: Mapping[str, tuple[int | None, ...]] = {
    "__cudnn$convForward": (0, 1, None),
    "__cudnn$convBackwardInput": (None, 1, 0),
    "__cudnn$convBackwardFilter": (0, None, 1),
    "__cudnn$convBiasActivationForward": (0, 1, None),
}
"""The operands that are input, kernel and output of the convolution; None for the result."""
_PACKED = frozenset({"s8", "u8"})
"""Element types whose arrays may have vectors of features in an extra dimension."""


class UnfitForCallee(Rule):
    """A library call or region that XLA's emitter rejects.

    ## Why
    XLA's own custom calls have no signature: the pass that makes a call and the thunk that runs it
    must agree on operands, results and configuration, and nothing in between checks this. A missing
    operand fails a RET_CHECK of the emitter; a bias that is too short is read past its end. A cuDNN
    convolution or a cuBLAS product computes an HLO convolution or dot, so the rule compares its
    shapes with those that HLO infers. A kernel reads its operands in the layouts of
    `operand_layout_constraints`, whatever layouts they have. A small call of
    XLA:CPU has no thread pool, and a command buffer contains only operations that have a command.
    The restrictions, with their releases and sources, are in `hlo_lint/analysis/callees.toml`.
    Other restrictions of emitters are asked of XLA: `hlo-lint check --ask-xla`.

    The finding is a warning if a restriction applies only to some releases and the module's release
    is unknown.
    """

    severity = Severity.ERROR
    opcodes = frozenset({"custom-call"})
    mentions = ("address_computation", "command_buffer", "xla_cpu_small_call")
    evidence = (RefusedByXla("output_shape.dimensions().size() == num_batch_dims", passes="none"),)
    reports = "openxla/xla@24c1fac9bb, openxla/xla@fcf97e619e"
    examples = (
        Bad.entry(_GEMM.format(columns=7)),
        Bad.final("""
            p = f32[8,4]{1,0} parameter(0)
            ROOT c = f32[8,4]{1,0} custom-call(p), custom_call_target="my_kernel",  // error
                operand_layout_constraints={f32[8,4]{0,1}}
        """),
        Bad.entry("""
            z = f32[] constant(0)
            ROOT s = (f32[100]{0}, u8[0]{0}) custom-call(f32[100]{0} p, z),  // error
                custom_call_target="__cub$DeviceScanUnassignedScratchSize"
        """),
        Bad.entry("""
            body { ROOT r = c64[8] fft(c64[8] q), fft_type=FFT, fft_length={8} }
            small { ROOT t = c64[8] call(c64[8] s), to_apply=body }
            ROOT c = c64[8] call(c64[8] p), to_apply=small,  // error
                frontend_attributes={xla_cpu_small_call="true"}
        """),
        Bad.entry("""
            moved { ROOT d = f32[32] dynamic-slice(f32[64] x, s32[] i), dynamic_slice_sizes={32} }
            command_buffer {
              s = ((f32[64], s32[]), f32[32]) fusion-start(f32[64] q, s32[] j), kind=kLoop,
                  calls=moved
              ROOT r = f32[32] fusion-done(s)
            }
            ROOT c = f32[32] call(f32[64] p, s32[] i), to_apply=command_buffer  // error
        """),
        Bad.step("""
            - ROOT c = f32[2,4,4,8] convolution(f32[2,9,9,4] p, f32[8,3,3,4] q),
            -     window={size=3x3 stride=2x2}, dim_labels=b01f_o01i->b01f
            + ROOT c = (f32[2,4,4,8], u8[0]) custom-call(f32[2,9,9,4] p, f32[8,3,3,4] q),  // error
            +     window={size=3x3 stride=1x1}, dim_labels=b01f_o01i->b01f,
            +     custom_call_target="__cudnn$convForward"
        """),
        Bad.step("""
            - ROOT g = f32[6,35] dot(f32[6,4] p, f32[4,35] q), lhs_contracting_dims={1},
            -     rhs_contracting_dims={0}
            + ROOT g = (f32[6,35], s8[64]) custom-call(f32[6,4] p, f32[4,35] q),  // error
            +     custom_call_target="__cublas$lt$matmul", backend_config={"gemm_backend_config":{
            +     "beta":0,"epilogue":"DEFAULT","dot_dimension_numbers":{
            +     "lhs_contracting_dimensions":["0"],"rhs_contracting_dimensions":["0"]}}}
        """),
        Good.step("""
            - ROOT g = f32[6,35] dot(f32[6,4] p, f32[4,35] q), lhs_contracting_dims={1},
            -     rhs_contracting_dims={0}
            + ROOT g = (f32[6,35], s8[64]) custom-call(f32[6,4] p, f32[4,35] q),
            +     custom_call_target="__cublas$lt$matmul", backend_config={"gemm_backend_config":{
            +     "beta":0,"epilogue":"DEFAULT","dot_dimension_numbers":{
            +     "lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}
        """),
        Good.step("""
            - ROOT c = f32[2,4,4,8] convolution(f32[2,9,9,4] p, f32[8,3,3,4] q),
            -     window={size=3x3 stride=2x2}, dim_labels=b01f_o01i->b01f
            + ROOT c = (f32[2,4,4,8], u8[0]) custom-call(f32[2,9,9,4] p, f32[8,3,3,4] q),
            +     window={size=3x3 stride=2x2}, dim_labels=b01f_o01i->b01f,
            +     custom_call_target="__cudnn$convForward"
        """),
        Good.entry(_GEMM.format(columns=35)),
        Good.entry("""
            ROOT s = (f32[100]{0}, u8[0]{0}) custom-call(f32[100]{0} p),
                custom_call_target="__cub$DeviceScanUnassignedScratchSize"
        """),
        Good.entry("""
            body { ROOT r = c64[8] negate(c64[8] q) }
            small { ROOT t = c64[8] call(c64[8] s), to_apply=body }
            ROOT c = c64[8] call(c64[8] p), to_apply=small,
                frontend_attributes={xla_cpu_small_call="true"}
        """),
        Good.entry("""
            moved { ROOT d = f32[32] slice(f32[64] x), slice={[32:64]} }
            command_buffer {
              s = ((f32[64]), f32[32]) fusion-start(f32[64] q), kind=kLoop, calls=moved
              ROOT r = f32[32] fusion-done(s)
            }
            ROOT c = f32[32] call(f32[64] p), to_apply=command_buffer
        """),
    )

    def check_convolutions(self, pair: PassPair) -> Findings:
        """New or changed cuDNN and cuBLAS calls whose shapes do not match."""
        misfits = [call for computation in pair.added for call in _misfits(computation)]
        if misfits and not any(any(_misfits(old)) for old in pair.before.computations):
            for call, message in misfits:
                yield Finding(call, f"{call.custom_call_target}: {message}")

    def check(self, module: Module, stage: Stage) -> Findings:
        """Calls that match no signature of their target, and regions that their emitter rejects."""
        calls, regions = callees()
        for call in instructions_of(module, "custom-call"):
            asked = call.attribute_or_none("operand_layout_constraints") if stage.layouts else None
            for number, shape in enumerate(asked if isinstance(asked, tuple) else ()):
                given = call.operand_shape(number)
                if not isinstance(shape, ArrayShape) or not isinstance(given, ArrayShape):
                    continue
                if shape.minor_to_major != given.minor_to_major:
                    message = f"takes operand {number} as {shape}, got {given}"
                    yield Finding(call, f"{call.custom_call_target} {message}", operand=number)
            rows = calls.get(call.custom_call_target, ())
            if not rows or (result := call.shape_or_none) is None:
                continue
            config = configuration(call.attribute_text("backend_config") or "")
            operands = [operand.shape for operand in call.operands]
            wrong = [row.mismatch(operands, result, config) for row in rows if row.holds(config)]
            if wrong and all(wrong):
                message = " or ".join(dict.fromkeys(wrong))
                yield Finding(call, f"{call.custom_call_target} {message}")
        release = jax_release(stage.release)
        for region in regions:
            # Some releases alone refuse it: XLA:CPU of jax 0.5.0 to 0.5.3 a dot in a small call.
            if not region.is_of(release):
                continue
            severity = Severity.WARNING if region.releases and not release else None
            for runner, message in misused(region, module):
                yield Finding(runner, message, severity=severity)


def _misfits(computation: Computation) -> Iterator[tuple[Instruction, str]]:
    """Library convolutions and products whose shapes do not match, with a message."""
    for call in computation.with_opcode("custom-call"):
        target = call.custom_call_target
        if target in _CONVOLVED or target.startswith(_PRODUCT):
            *_, operands = kind_at(computation, call.number)
            message = _misfit(target, call.type_text, operands, call.attributes_text)
            if message:
                yield call, message


@lru_cache(maxsize=1 << 10)
def _misfit(target: str, type_text: str, operands: Sequence[str | None], attributes: str) -> str:
    """The error in the shapes of a library call; empty if they match.

    It is cached because passes keep most calls.
    """
    shape = shape_or_none(type_text)
    result = shape.elements[0] if isinstance(shape, TupleShape) and shape.elements else shape
    shapes = dict(enumerate(shape_or_none(operand or "") for operand in operands))
    roles = _CONVOLVED.get(target, (0, 1, None))
    arrays = [result if number is None else shapes.get(number) for number in roles]
    if any(not isinstance(array, ArrayShape) or array.dtype in _PACKED for array in arrays):
        return ""
    left, right, output = map(str, arrays)
    opcode = "convolution"
    if target not in _CONVOLVED:
        opcode, span = "dot", attribute_span(attributes, "backend_config") or (0, 0)
        attributes = _dimensions(configuration(attributes[slice(*span)]))
    errors = check_shape(opcode, output, (left, right), attributes, ()).errors if attributes else ()
    return next(iter(errors), "")


def _dimensions(config: Mapping[str, Json]) -> str:
    """The dot attributes that the configuration of a product states."""
    attributes = ""
    for name in ("lhs_batch", "lhs_contracting", "rhs_batch", "rhs_contracting"):
        numbers = config.get(f"{name}_dimensions", ())
        if isinstance(numbers, Sequence) and numbers:
            attributes += f", {name}_dims={{{','.join(map(str, numbers))}}}"
    return attributes
