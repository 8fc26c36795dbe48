"""Library calls, fusions and regions that XLA's emitters or libraries reject."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from hlo_lint.analysis.callees import callees, configuration
from hlo_lint.analysis.calls import calls_of, instructions_of
from hlo_lint.analysis.emitted_regions import may_misuse, misused
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.analysis.shape_inference.shape_check import check_shape
from hlo_lint.dumps.pass_lists import jax_release
from hlo_lint.hlo.attributes.configuration import Json
from hlo_lint.hlo.attributes.splitting import attribute_span
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.kinds import kind_at
from hlo_lint.hlo.records import (
    InstructionRecord,
    attributes_before_metadata,
    attributes_of,
    opcode_of,
    type_of,
)
from hlo_lint.hlo.shape import ArrayShape, TupleShape, shape_or_none
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Severity, Stage
from hlo_lint.rules.evidence import PublicReport, RefusedByXla

_GEMM = """
p = f32[6,4]{{1,0}} parameter(0)
q = f32[4,35]{{1,0}} parameter(1)
b = f32[{columns}]{{0}} parameter(2)
ROOT g = (f32[6,35]{{1,0}}, s8[64]{{0}}) custom-call(p, q, b), \
custom_call_target="__cublas$lt$matmul", \
backend_config={{"gemm_backend_config":{{"beta":0,"epilogue":"BIAS"}}}}{mark}
"""
_PLAIN = """
p = f32[6,4]{{1,0}} parameter(0)
q = f32[4,35]{{1,0}} parameter(1)
ROOT g = (f32[6,35]{{1,0}}, s8[64]{{0}}) custom-call(p, q), \
custom_call_target="__cublas$lt$matmul", \
backend_config={{"gemm_backend_config":{{"beta":0,"epilogue":"DEFAULT",\
"dot_dimension_numbers":{{"lhs_contracting_dimensions":["{dimension}"],\
"rhs_contracting_dimensions":["0"]}}}}}}{mark}
"""
_ONEDNN = """
p = f32[6,4]{{1,0}} parameter(0)
q = f32[4,3]{{1,0}} parameter(1)
ROOT g = f32[6,3]{{1,0}} custom-call(p, q), custom_call_target="__onednn$matmul", backend_config=\
{{"onednn_matmul_config":{{"fusions":{{"ops":["LINEAR","TANH","LINEAR"],\
"alpha_typecast":{scales}}}}}}}{mark}
"""
_SCAN = """
p = f32[100]{{0}} parameter(0)
z = f32[] constant(0)
ROOT s = (f32[100]{{0}}, u8[0]{{0}}) custom-call({operands}), \
custom_call_target="__cub$DeviceScanUnassignedScratchSize"{mark}
"""
_TOP = """
p = {dtype}[100]{{0}} parameter(0)
ROOT t = ({dtype}[{k}]{{0}}, s32[{k}]{{0}}) custom-call(p), custom_call_target="__gpu$TopK"{mark}
"""
_ATTENTION = """
q = bf16[2,8,4,16]{{3,2,1,0}} parameter(0)
k = bf16[2,32,4,16]{{3,2,1,0}} parameter(1)
ROOT a = (bf16[2,4,8,16]{{3,2,1,0}}, u8[0]{{0}}) custom-call({operands}), \
custom_call_target="__cudnn$fmhaSoftmax", backend_config={{"cudnn_fmha_backend_config":\
{{"mask_type":"CAUSAL","max_seg_per_batch":1,"is_paged_attention":false}}}}{mark}
"""
_FACTORS = """
p = f32[2,8,{columns}]{{2,1,0}} parameter(0)
ROOT c = f32[2,8,{columns}]{{2,1,0}} custom-call(p), custom_call_target="Cholesky"{mark}
"""
_SMALL = """
body {{
  q = c64[8]{{0}} parameter(0)
  ROOT r = c64[8]{{0}} {operation}
}}

small {{
  s = c64[8]{{0}} parameter(0)
  ROOT t = c64[8]{{0}} call(s), to_apply=body
}}

ENTRY e {{
  p = c64[8]{{0}} parameter(0)
  ROOT c = c64[8]{{0}} call(p), to_apply=small, \
frontend_attributes={{xla_cpu_small_call="true"}}{mark}
}}
"""
_COMMANDS = """
moved {{
  x = f32[64]{{0}} parameter(0)
  i = s32[] constant(32)
  ROOT d = f32[32]{{0}} {operation}
}}

command_buffer {{
  q = f32[64]{{0}} parameter(0)
  s = ((f32[64]{{0}}), f32[32]{{0}}) fusion-start(q), kind=kLoop, calls=moved
  ROOT r = f32[32]{{0}} fusion-done(s)
}}

ENTRY e {{
  p = f32[64]{{0}} parameter(0)
  ROOT c = f32[32]{{0}} call(p), to_apply=command_buffer{mark}
}}
"""
_MOVE = "dynamic-slice(x, i), dynamic_slice_sizes={32}"
_CONVOLUTION = """
p = f32[2,9,9,4]{{3,2,1,0}} parameter(0)
q = f32[8,3,3,4]{{3,2,1,0}} parameter(1)
ROOT c = (f32[2,4,4,8]{{3,2,1,0}}, u8[0]{{0}}) custom-call(p, q), \
window={{size=3x3 stride={stride}}}, dim_labels=b01f_o01i->b01f, \
custom_call_target="__cudnn$convForward"{mark}
"""
_AFTER = "module_0001.m.0002.conv.after_conv-padding.before_pipeline-end.txt"
_FITS = {
    "module_0001.m.0001.conv.after_pipeline-start.before_conv-padding.txt": """
        HloModule m

        ENTRY e {
          p = f32[2,9,9,4]{3,2,1,0} parameter(0)
          q = f32[8,3,3,4]{3,2,1,0} parameter(1)
          ROOT r = f32[2,4,4,8]{3,2,1,0} convolution(p, q), window={size=3x3 stride=2x2}, \
dim_labels=b01f_o01i->b01f
        }
    """
}
_FUSED = """
f {{
  a = c64[8]{{0}} parameter(0)
  t = c64[8]{{0}} fft(a), fft_type=FFT, fft_length={{8}}
  ROOT n = c64[8]{{0}} negate(t)
}}

ENTRY e {{
  p = c64[8]{{0}} parameter(0)
  ROOT r = c64[8]{{0}} fusion(p), kind=kLoop, calls=f{mark}
}}
"""
_SIZES = """
f {{
  a = f32[8]{{0}} parameter(0)
  n = f32[8]{{0}} negate(a)
  s = f32[{size}]{{0}} slice(a), slice={{[0:{size}]}}
  ROOT t = (f32[8]{{0}}, f32[{size}]{{0}}) tuple(n, s)
}}

ENTRY e {{
  p = f32[8]{{0}} parameter(0)
  ROOT r = (f32[8]{{0}}, f32[{size}]{{0}}) fusion(p), kind=kLoop, calls=f{mark}
}}
"""
_REDUCES = """
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

f {{
  a = f32[64,32]{{1,0}} parameter(0)
  b = f32[{size},64]{{1,0}} parameter(1)
  z = f32[] constant(0)
  s = f32[64]{{0}} reduce(a, z), dimensions={{1}}, to_apply=add
  t = f32[{size}]{{0}} reduce(b, z), dimensions={{1}}, to_apply=add
  ROOT r = (f32[64]{{0}}, f32[{size}]{{0}}) tuple(s, t)
}}

ENTRY e {{
  p = f32[64,32]{{1,0}} parameter(0)
  q = f32[{size},64]{{1,0}} parameter(1)
  ROOT r = (f32[64]{{0}}, f32[{size}]{{0}}) fusion(p, q), kind=kInput, calls=f{mark}
}}
"""
_SCATTERED = """
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

f {{
  a = f32[8,8]{{1,0}} parameter(0)
  i = s32[4,1]{{1,0}} parameter(1)
  u = f32[4,1,8]{{2,1,0}} parameter(2)
  m = f32[8,8]{{1,0}} negate(a)
  {scattered}
  {root}
}}

ENTRY e {{
  p = f32[8,8]{{1,0}} parameter(0)
  i = s32[4,1]{{1,0}} parameter(1)
  u = f32[4,1,8]{{2,1,0}} parameter(2)
  ROOT r = f32[8,8]{{1,0}} fusion(p, i, u), kind=kInput, calls=f{mark}
}}
"""
_SCATTER = (
    "s = f32[8,8]{1,0} scatter(m, i, u), update_window_dims={1,2}, inserted_window_dims={}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add"
)
_WRAPPED = """
less {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}}

n {{
  a = f32[8]{{0}} parameter(0)
  ROOT b = f32[8]{{0}} negate(a)
}}

w {{
  a = f32[8]{{0}} parameter(0)
  ROOT b = f32[8]{{0}} {operation}
}}

ENTRY e {{
  p = f32[8]{{0}} parameter(0)
  s = ((f32[8]{{0}}), f32[8]{{0}}, u32[]) async-start(p), calls=w{mark}
  ROOT d = f32[8]{{0}} async-done(s)
}}
"""
_TRITON = """
f {{
  a = {dtype}[8]{{0}} parameter(0)
  ROOT n = {dtype}[8]{{0}} {opcode}(a)
}}

ENTRY e {{
  p = {dtype}[8]{{0}} parameter(0)
  ROOT r = {dtype}[8]{{0}} fusion(p), kind=kCustom, calls=f, backend_config=\
{{"fusion_backend_config":{{"kind":"__triton"}}}}{mark}
}}
"""
_UNFUSED = {
    next(iter(_FITS)): """
        HloModule m

        ENTRY e {
          p = c64[8]{0} parameter(0)
          t = c64[8]{0} fft(p), fft_type=FFT, fft_length={8}
          ROOT n = c64[8]{0} negate(t)
        }
    """
}
_SLICED = """
f {{
  a = f32[4,8]{{1,0}} parameter(0)
  i = s32[] parameter(1)
  z = s32[] {zero}
  d = f32[1,8]{{1,0}} dynamic-slice(a, i, z), dynamic_slice_sizes={{1,8}}
  ROOT c = f32[1,8]{{1,0}} custom-call(d), custom_call_target="k"
}}

ENTRY e {{
  p = f32[4,8]{{1,0}} parameter(0)
  i = s32[] parameter(1)
  n = s32[] constant(0)
  ROOT r = f32[1,8]{{1,0}} fusion(p, i{operand}), kind=kCustom, calls=f, backend_config=\
{{"fusion_backend_config":{{"kind":"__custom_fusion",\
"custom_fusion_config":{{"name":"dynamic_address_computation"}}}}}}{mark}
}}
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
    shapes with those that HLO infers. Regions with special emitters have restrictions, too: a small
    call of XLA:CPU has no thread pool, a command buffer contains only operations that have a
    command, a loop fusion computes its result element by element, an input fusion with several
    reductions runs them together, and an asynchronous wrapper is a single operation with its own
    thunk, not a loop or a sort. Triton has no complex numbers, and XLA's Triton emitter lacks some
    opcodes. The restrictions, with their releases and sources, are in
    `hlo_lint/analysis/callees.toml`.

    The finding is a warning if a restriction applies only to some releases and the module's release
    is unknown.
    """

    messages = (
        "Unsupported async done wrapped instruction:",
        "Unsupported elementwise operation",
        "Complex types are unsupported in Triton codegen:",
        "CustomCall TopK requires k <=",
        "Unsupported GpuTopK data type:",
    )
    severity = Severity.ERROR
    opcodes = frozenset({"async-start", "call", "custom-call", "fusion"})
    evidence = (
        RefusedByXla("output_shape.dimensions().size() == num_batch_dims", passes="none"),
        PublicReport("openxla/xla@24c1fac9bb"),
        PublicReport("openxla/xla@fcf97e619e"),
    )
    examples = (
        Bad.entry(_GEMM.format(columns=7, mark="  // error")),
        Bad.entry(_SCAN.format(operands="p, z", mark="  // error")),
        Bad.entry(_ATTENTION.format(operands="q, k", mark="  // error")),
        Bad.entry(_FACTORS.format(columns=4, mark="  // error")),
        Bad.module(
            _SMALL.format(operation="fft(q), fft_type=FFT, fft_length={8}", mark="  // error")
        ),
        Bad.module(_COMMANDS.format(operation=_MOVE, mark="  // error")),
        Bad.entry(_ONEDNN.format(scales="5", mark="  // error")),
        Bad.entry(_ONEDNN.format(scales="[5,6]", mark="  // error").replace("TANH", "BIAS")),
        Bad.entry(_CONVOLUTION.format(stride="1x1", mark="  // error"), file=_AFTER, beside=_FITS),
        Bad.module(_FUSED.format(mark="  // error"), file=_AFTER, beside=_UNFUSED),
        Bad.module(_SIZES.format(size=4, mark="  // error"), file=_AFTER, beside=_UNFUSED),
        Bad.module(_REDUCES.format(size=16, mark="  // error"), file=_AFTER, beside=_UNFUSED),
        Bad.module(
            _WRAPPED.format(operation="sort(a), dimensions={0}, to_apply=less", mark="  // error"),
            file=_AFTER,
            beside=_UNFUSED,
        ),
        Bad.module(
            _TRITON.format(dtype="c64", opcode="negate", mark="  // error"),
            file=_AFTER,
            beside=_UNFUSED,
        ),
        Bad.module(
            _TRITON.format(dtype="s32", opcode="popcnt", mark="  // error"),
            file=_AFTER,
            beside=_UNFUSED,
        ),
        Bad.module(
            _SCATTERED.format(
                scattered=_SCATTER, root="ROOT n = f32[8,8]{1,0} abs(s)", mark="  // error"
            ),
            file=_AFTER,
            beside=_UNFUSED,
        ),
        Good.module(
            _SCATTERED.format(scattered="", root=f"ROOT {_SCATTER}", mark=""),
            file=_AFTER,
            beside=_UNFUSED,
        ),
        Bad.module(_SLICED.format(zero="constant(0)", operand="", mark="  // error")),
        Good.module(_SLICED.format(zero="parameter(2)", operand=", n", mark="")),
        Good.module(_REDUCES.format(size=64, mark=""), file=_AFTER, beside=_UNFUSED),
        Good.module(
            _WRAPPED.format(operation="fusion(a), kind=kLoop, calls=n", mark=""),
            file=_AFTER,
            beside=_UNFUSED,
        ),
        Good.module(
            _TRITON.format(dtype="s32", opcode="negate", mark=""), file=_AFTER, beside=_UNFUSED
        ),
        Good.module(_SIZES.format(size=8, mark=""), file=_AFTER, beside=_UNFUSED),
        Bad.entry(_PLAIN.format(dimension=0, mark="  // error"), file=_AFTER, beside=_FITS),
        Good.entry(_PLAIN.format(dimension=1, mark=""), file=_AFTER, beside=_FITS),
        Good.entry(_CONVOLUTION.format(stride="2x2", mark=""), file=_AFTER, beside=_FITS),
        Good.entry(_GEMM.format(columns=35, mark="")),
        Bad.entry(_TOP.format(dtype="f32", k=17, mark="  // error")),
        Bad.entry(_TOP.format(dtype="f16", k=16, mark="  // error")),
        Good.entry(_TOP.format(dtype="f32", k=16, mark="")),
        Good.entry(_ONEDNN.format(scales="[5,6]", mark="")),
        Good.entry(_SCAN.format(operands="p", mark="")),
        Good.entry(_ATTENTION.format(operands="q, k, k", mark="")),
        Good.entry(_FACTORS.format(columns=8, mark="")),
        Good.module(_SMALL.format(operation="negate(q)", mark="")),
        Good.module(_COMMANDS.format(operation="slice(x), slice={[32:64]}", mark="")),
    )

    def check_convolutions(self, change: PassPair) -> Findings:
        """New or changed cuDNN and cuBLAS calls whose shapes do not match."""
        misfits = [call for computation in change.added for call in _misfits(computation)]
        if misfits and not any(any(_misfits(old)) for old in change.before.computations):
            for call, message in misfits:
                yield Finding(call, f"{call.custom_call_target}: {message}")

    def check_made(self, change: PassPair) -> Findings:
        """New or changed regions that their emitter rejects."""
        module = change.after
        if module.has_tiles:
            return
        backend, release = (change.release or "gpu").partition("-")[0], jax_release(change.release)
        regions = [
            region
            for region in callees()[1]
            if region.is_of_pass and backend in region.backends and region.is_of(release)
        ]
        fused = [body for body in change.added if body.name in module.fusion_computations]
        new = list(_new(change, {region.opcode for region in regions}))
        suspects = [
            {body.name for body in bodies if may_misuse(region, body)}
            for region in regions
            for bodies in [fused if region.opcode == "fusion" else change.added]
        ]
        every = frozenset().union(*suspects)
        callers = [
            computation.at(number)
            for computation in (module.computations if every else ())
            for number, called in calls_of(computation).items()
            if not every.isdisjoint(called)
        ]
        for region, names in zip(regions, suspects, strict=True):
            runners = {runner.name: runner for runner in new if runner.opcode == region.opcode}
            for runner in callers:
                if runner.opcode == region.opcode and not names.isdisjoint(
                    runner.called_computations
                ):
                    runners[runner.name] = runner
            misuses = list(misused(region, module, runners.values()))
            if misuses and not any(misused(region, change.before)):
                for runner, message in misuses:
                    yield Finding(runner, message, severity=Severity.WARNING)

    def check(self, module: Module, stage: Stage) -> Findings:
        """Calls that match no signature of their target, and regions that their emitter rejects."""
        calls, regions = callees()
        for call in instructions_of(module, "custom-call"):
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
            if region.is_of_pass or not region.is_of(release):
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


def _new(change: PassPair, opcodes: set[str]) -> Iterator[Instruction]:
    """Instructions of these opcodes that are new, or whose type or attributes changed."""
    changed = {id(pair.after): pair for pair in change.changed}
    for computation in change.added:
        rows = computation.rows
        pair = changed.get(id(computation))
        kept = {} if pair is None else {after: before for before, after in pair.kept}
        for number in range(len(rows)) if pair is None else pair.added:
            if opcode_of(rows[number]) not in opcodes:
                continue
            before = pair.before.rows[kept[number]] if pair and number in kept else None
            if before is not None and _runs_alike(before, rows[number]):
                continue
            yield computation.at(number)


def _runs_alike(before: InstructionRecord, after: InstructionRecord) -> bool:
    """True if two instructions differ at most in operands and metadata."""
    return (
        opcode_of(before) == opcode_of(after)
        and type_of(before) == type_of(after)
        and attributes_before_metadata(attributes_of(before))
        == attributes_before_metadata(attributes_of(after))
    )
