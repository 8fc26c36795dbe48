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
p = f32[6,4]{{1,0}} parameter(0)
q = f32[4,35]{{1,0}} parameter(1)
b = f32[{columns}]{{0}} parameter(2)
ROOT g = (f32[6,35]{{1,0}}, s8[64]{{0}}) custom-call(p, q, b), \
custom_call_target="__cublas$lt$matmul", \
backend_config={{"gemm_backend_config":{{"beta":0,"epilogue":"BIAS"}}}}  // error
"""
_PLAIN = """
ROOT g = (f32[6,35]{{1,0}}, s8[64]{{0}}) custom-call(f32[6,4]{{1,0}} p, f32[4,35]{{1,0}} q), \
custom_call_target="__cublas$lt$matmul", \
backend_config={{"gemm_backend_config":{{"beta":0,"epilogue":"DEFAULT",\
"dot_dimension_numbers":{{"lhs_contracting_dimensions":["{dimension}"],\
"rhs_contracting_dimensions":["0"]}}}}}}  // error
"""
_SCAN = """
p = f32[100]{{0}} parameter(0)
z = f32[] constant(0)
ROOT s = (f32[100]{{0}}, u8[0]{{0}}) custom-call({operands}), \
custom_call_target="__cub$DeviceScanUnassignedScratchSize"  // error
"""
_SMALL = """
body {{
  q = c64[8]{{0}} parameter(0)
  ROOT r = c64[8]{{0}} {operation}
}}

small {{
  ROOT t = c64[8]{{0}} call(c64[8]{{0}} s), to_apply=body
}}

ROOT c = c64[8]{{0}} call(c64[8]{{0}} p), to_apply=small, \
frontend_attributes={{xla_cpu_small_call="true"}}  // error
"""
_COMMANDS = """
moved {{
  x = f32[64]{{0}} parameter(0)
  i = s32[] constant(32)
  ROOT d = f32[32]{{0}} {operation}
}}

command_buffer {{
  s = ((f32[64]{{0}}), f32[32]{{0}}) fusion-start(f32[64]{{0}} q), kind=kLoop, calls=moved
  ROOT r = f32[32]{{0}} fusion-done(s)
}}

ROOT c = f32[32]{{0}} call(f32[64]{{0}} p), to_apply=command_buffer  // error
"""
_MOVE = "dynamic-slice(x, i), dynamic_slice_sizes={32}"
_CONVOLUTION = """
p = f32[2,9,9,4]{{3,2,1,0}} parameter(0)
q = f32[8,3,3,4]{{3,2,1,0}} parameter(1)
ROOT c = (f32[2,4,4,8]{{3,2,1,0}}, u8[0]{{0}}) custom-call(p, q), \
window={{size=3x3 stride={stride}}}, dim_labels=b01f_o01i->b01f, \
custom_call_target="__cudnn$convForward"  // error
"""
_AFTER = "module_0001.m.0002.conv.after_conv-padding.before_pipeline-end.txt"
_FITS = {
    "module_0001.m.0001.conv.after_pipeline-start.before_conv-padding.txt": """
        HloModule m

        ENTRY e {
          ROOT r = f32[2,4,4,8] convolution(f32[2,9,9,4] p, f32[8,3,3,4] q), \
window={size=3x3 stride=2x2}, dim_labels=b01f_o01i->b01f
        }
    """
}
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
        Bad.entry(_SCAN.format(operands="p, z")),
        Bad.entry(_SMALL.format(operation="fft(q), fft_type=FFT, fft_length={8}")),
        Bad.entry(_COMMANDS.format(operation=_MOVE)),
        Bad.entry(_CONVOLUTION.format(stride="1x1"), file=_AFTER, beside=_FITS),
        Bad.entry(_PLAIN.format(dimension=0), file=_AFTER, beside=_FITS),
        Good.entry(_PLAIN.format(dimension=1), file=_AFTER, beside=_FITS),
        Good.entry(_CONVOLUTION.format(stride="2x2"), file=_AFTER, beside=_FITS),
        Good.entry(_GEMM.format(columns=35)),
        Good.entry(_SCAN.format(operands="p")),
        Good.entry(_SMALL.format(operation="negate(q)")),
        Good.entry(_COMMANDS.format(operation="slice(x), slice={[32:64]}")),
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
