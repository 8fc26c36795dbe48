"""Every attribute means to us what it means to XLA's own parser, in spellings that no dump has.

Each case is one instruction in a small module. What XLA reads is compared field by field with its
protocol buffer; what it refuses we refuse, with the exceptions in the tables below.
"""

from __future__ import annotations

import tarfile
from functools import cache
from math import prod
from random import Random
from zlib import crc32

import pytest

from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError
from hlo_lint.hlo.attributes.reading import read_attribute
from hlo_lint.text.source import decode
from tests.conftest import ROOT, present
from tests.oracle.compare import disagreements
from tests.oracle.xla import Answer, Refusal, XlaModule, oracle_of

pytestmark = pytest.mark.slow

MODULE = """\
HloModule cases{header}

add {{
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}}

less {{
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = pred[] compare(x, y), direction=LT
}}

same {{
  ROOT x = f32[4,8] parameter(0)
}}

step {{
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  z = f32[8] add(x, y)
  ROOT t = (f32[8], f32[8]) tuple(z, z)
}}

ENTRY e {{
  a = f32[4,8] parameter(0)
  b = f32[8,4] parameter(1)
  s = s32[] parameter(2)
  t = token[] after-all()
  v = f32[8] parameter(3)
  p = pred[] parameter(4)
  ROOT n = {instruction}
}}
"""

CALL = 'f32[4,8] custom-call(a), custom_call_target="f"'
TUPLE = '(f32[4,8], (s32[])) custom-call(), custom_call_target="f"'
CONVOLUTION = "f32[4,8] convolution(a, b), dim_labels=bf_io->bf"
REDUCE = "f32[4,8] all-reduce(a), to_apply=add"

SHARDINGS = [
    "{replicated}", "{manual}", "{unknown}", "{maximal device=3}", "{ maximal /*x*/ device=3 }",
    "{devices=[2,1]0,1}", "{devices=[1,2]1,0}", "{devices=[2,1]<=[2]}",
    "{devices=[2,4]<=[4,2]T(1,0)}", "{devices=[2,1,2]<=[4] last_tile_dim_replicate}",
    "{devices=[2,1,2]<=[4] last_tile_dims={manual}}",
    "{devices=[2,1,2,2]<=[8] last_tile_dims={manual,replicated}}",
    "{devices=[2,1]<=[2] shard_as 3}", "{devices=[2,1]<=[2] shard_like 3}",
    '{devices=[2,1]<=[2] shard_like 3 metadata={op_name="a" source_line=7}}',
    '{replicated metadata={{op_name="a"}, {op_name="b"}}}', "{unknown shard_as 1}",
    "{mesh['x'=2,'y'=4], [{'x'}, {'y'}]}",
    "{mesh['x'=2,'y'=4], [{'x', ?}, {?}], replicated={'y':(1)2}}",
    "{mesh['x'=2,'y'=4], [{'x','y':(1)2}, {}], unreduced={'y':(2)2}}",
    "{mesh['x'=2,'y'=4], [{'x'}, {}], unreduced=max{'y'}}",
    "{mesh['x'=2,'y'=4], [{'x'}, {}], manual={'y'}}",
    "{mesh['x'=2,'y'=4], device_ids=([4,2]T(1,0)), [{'x'}, {'y'}]}",
    "{mesh['x'=2,'y'=4], device_ids=(0,1,2,3,4,5,7,6), [{'x'}, {'y'}]}", "{mesh[], replicated}",
    "{mesh['x'=2], replicated}", "{mesh['x'=2,'y'=2], manual}", "{mesh['x'=2,'y'=2], unreduced}",
    "{mesh['x'=2], unreduced=max}", "{mesh['x'=2], []}", "{maximal_mesh[device_id=3]}",
    """{mesh['x'=2], replicated, metadata={op_name="a"}}""",
    """{mesh['x'=2], [{'x'}, {}], metadata={{op_name="a"}, {op_name="b"}}}""",
]  # fmt: skip
GROUPS = [
    "{}", "{{0,1},{2,3}}", "{{0,1},{2}}", "{ {0, 1}, {} }", "[2,4]<=[8]", "[2,4]<=[4,2]T(1,0)",
    "mesh['x'=2,'y'=4] {'x','y':(1)2}", "mesh['x'=2,'y'=4], device_ids=([4,2]T(1,0)) {'y':(1)2}",
    "mesh['x'=2,'y'=2], device_ids=(0,1,3,2) {'x'}",
]  # fmt: skip
WINDOWS = [
    "{size=3x3}", "{size=3x3 stride=2x1}",
    "{size=3x3 stride=2x1 pad=1_1x0_-2 lhs_dilate=2x2 rhs_dilate=3x1 rhs_reversal=1x0}",
    "{rhs_dilate=3x1\n size=3x3}",
]  # fmt: skip

INSTRUCTIONS = [
    *(f"{CALL}, sharding={sharding}" for sharding in SHARDINGS),
    f"{TUPLE}, sharding={{{{replicated}}, {{maximal device=1}}}}",
    f"{TUPLE}, sharding={{{{mesh['x'=2], [{{'x'}}, {{}}]}}, {{mesh['x'=2], []}}}}",
    *(f"{REDUCE}, replica_groups={groups}" for groups in GROUPS),
    f"{REDUCE}, replica_groups={{}}, channel_id=3, use_global_device_ids=true",
    "f32[4,8] all-gather(a), replica_groups={{0,1}}, dimensions={0}, constrain_layout=true",
    "f32[4,8] collective-broadcast(a), replica_groups={{0,1}}, channel_id=1",
    "f32[4,8] collective-permute(a), source_target_pairs={{0,1},{1,0}}, channel_id=2",
    "f32[4,8] collective-permute(a), source_target_pairs={}",
    "f32[4,8] collective-permute(a, a, t, t), source_target_pairs={{0,1}}, slice_sizes={{1,2}}",
    *(
        f"f32[4,8,8,4] convolution(a, b), dim_labels=b01f_01io->b01f, window={window}"
        for window in WINDOWS
    ),
    f"{CONVOLUTION}, window={{}}, feature_group_count=2, operand_precision={{high,default}}",
    f"{CONVOLUTION}, convolution_kind=dgrad",
    f"{CALL}, window={{size=3}}, dim_labels=b0f_0io->bf0, feature_group_count=2",
    "f32[4,8] reduce-window(a, s), window={size=1x1 pad=0_1x0_0}, to_apply=add",
    "f32[4,8] select-and-scatter(a, a, s), window={size=1x1}, select=less, scatter=add",
    "f32[4,4] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "f32[4,4] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
    "operand_precision={high,highest}, algorithm=dot_bf16_bf16_f32_x3",
    "f32[4,8] ragged-dot(a, b, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
    "lhs_ragged_dims={0}, rhs_group_dims={0}",
    "f32[4,8] gather(a, b), offset_dims={0}, collapsed_slice_dims={}, start_index_map={0}, "
    "index_vector_dim=1, slice_sizes={1,2}, indices_are_sorted=true, operand_batching_dims={0}, "
    "start_indices_batching_dims={1}",
    "f32[4,8] scatter(a, b, b), update_window_dims={0}, inserted_window_dims={}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, unique_indices=true, to_apply=add",
    "f32[9,8] pad(a, s), padding=1_4x-1_1",
    "f32[9,8] pad(a, s), padding=1_1_1x0_0",
    "f32[2,2] slice(a), slice={[0:4:2], [1:3]}",
    "f32[4,8] dynamic-slice(a, s, s), dynamic_slice_sizes={4,8}",
    "f32[4,8] cosine(a), result_accuracy={mode=highest}",
    "f32[4,8] cosine(a), result_accuracy={tolerance={atol=1e-5,rtol=0.25,ulps=3}}",
    "f32[4,8] cosine(a), result_accuracy={mode=default}",
    "f32[4,8] cosine(a), statistics={visualizing_index=1,stat-1=33.5,stat-2=44}",
    'f32[4,8] cosine(a), metadata={op_name="a" source_file="b c" source_line=3 stack_frame_id=0}',
    'f32[4,8] cosine(a), frontend_attributes={a="b",c={"d":1},e={a={}}}',
    r'f32[4,8] cosine(a), frontend_attributes={a="b\"c\n\\d\303\251"}',
    "f32[4,8] cosine(a), control-predecessors={s, b}",
    'f32[4,8] cosine(a), backend_config={"a":"b", "c":[1,{}]}',
    r'f32[4,8] cosine(a), backend_config="{\"a\":1}"',
    'f32[4,8] cosine(a), origin={{"foo" {1}}}',
    'f32[4,8] cosine(a), origin={{"foo"}}',
    'f32[4,8] cosine(a), origin={{"foo"},["outer/inner"]}',
    "f32[4,8] cosine(a), origin={[synthetic_call]}",
    f'{TUPLE}, origin={{({{"x" {{1,2}}}}, ({{}}))}}',
    r'(f32[4,8], token[]) infeed(t), infeed_config="a\001b"',
    'token[] outfeed(a, t), outfeed_config="x", outfeed_shape=f32[4,8]{0,1}',
    "f32[4,8] rng(s, s), distribution=rng_normal",
    "u64[2] rng-get-and-update-state(), delta=4096",
    "u32[4] rng-bit-generator(s), algorithm=rng_default",
    "u32[4] rng-bit-generator(s), algorithm=rng_three_fry",
    "f32[4,8] reduce-precision(a), exponent_bits=4, mantissa_bits=3",
    "pred[4,8] compare(a, a), direction=GE, type=TOTALORDER",
    "pred[4,8] compare(a, a), direction=LT, order=TOTAL",
    "pred[4,8] compare(a, a), direction=LT, order=PARTIAL",
    "pred[] compare(s, s), direction=NE",
    "pred[] compare(p, p), direction=EQ",
    "c64[4,8] fft(a), fft_type=RFFT, fft_length={8}",
    "c64[4,8] fft(a), fft_type=FFT, fft_length={8}",
    "f32[4,8] cholesky(a), lower=true",
    "f32[4,8] triangular-solve(a, a), left_side=true, lower=true, unit_diagonal=true, "
    "transpose_a=ADJOINT",
    "(f32[4,2], s32[4,2]) topk(a), k=2, largest=true",
    "(f32[4,2], s32[4,2]) topk(a), k=2, largest=false",
    "f32[4,8] sort(a), dimensions={1}, is_stable=true, to_apply=less",
    "f32[4,8] batch-norm-inference(a, a, a, a, a), epsilon=0.001, feature_index=1",
    'f32[4,8] domain(a), domain={kind="sharding", entry={maximal device=0}, exit={replicated}}',
    "s32[] get-dimension-size(a), dimensions={1}",
    "f32[4,8] call(a), to_apply=same, is_composite=true, "
    'frontend_attributes={composite.attributes={a = 1 : i32},composite.name="f"}',
    "f32[4,8] conditional(s, a, a), branch_computations={same, same}",
    "f32[4,8] conditional(p, a, a), true_computation=same, false_computation=same",
    "f32[4,8] parameter(5), parameter_replication={true}",
    "(f32[4,8], f32[4,8], u32[]) copy-start(a), cross_program_prefetch_index=0",
    "(f32[4,8], u32[], token[]) send(a, t), channel_id=3, is_host_transfer=true",
    "f32[4,8] reshape(a), inferred_dimension=1",
    "f32[4,8] fusion(a), kind=kLoop, calls=same, output_to_operand_aliasing={{}: (0, {})}",
    "f32[4,8] iota(), iota_dimension=1",
    "(f32[8], f32[4,8]) scan(a, v), dimensions={0}, to_apply=step, num_carries=1, is_reverse=true, "
    "is_associative=false",
    "(f32[4,8], f32[4,8]) all-reduce-start(a), replica_groups={{0,1}}, to_apply=add, channel_id=1",
    "(f32[4,8], f32[8,8]) all-gather-start(a), replica_groups={{0,1}}, dimensions={0}",
    "(f32[4,8], f32[4,8], u32[], u32[]) collective-permute-start(a), source_target_pairs={{0,1}}",
    '((f32[4,8]), f32[4,8], u32[]) custom-call-start(a), custom_call_target="f", '
    'async_execution_thread="other", backend_config={"a":1}, frontend_attributes={b="c"}',
    "((f32[4,8]), f32[4,8], u32[]) fusion-start(a), kind=kLoop, calls=same, sharding={replicated}",
    "((f32[4,8], s32[], s32[]), f32[1,8], u32[]) dynamic-slice-start(a, s, s), "
    "dynamic_slice_sizes={1,8}",
    '((f32[4,8]), f32[4,8], u32[]) async-start(a), calls=same, metadata={op_name="b"}',
    f"{CALL}, schedule=SCHEDULE_LATEST, api_version=API_VERSION_STATUS_RETURNING",
    f"{CALL}, padding_type=PADDING_VALID, custom_call_has_side_effect=true",
    f"{CALL}, operand_layout_constraints={{f32[4,8]{{0,1}}}}",
    f'{CALL}, backend_config={{a = "b\\22", b = {{c = 1}}}}',
    f'{CALL}, backend_config="abc\\""',
    f"{CALL}, literal=f32[2]{{0}} {{1, 2}}",
    f"{CALL}, literal=s32[] 4",
    f"{CALL}, called_computations={{add, less}}",
    f"{CALL}, to_apply=add",
    '(f32[4,8], s32[]) custom-call(a), custom_call_target="f", '
    "output_to_operand_aliasing={{0}: (0, {}), {1}: (0, {})}",
]

CONSTANTS = [
    ("f32[2]", "{nan, -nan(0x12)}"), ("f32[2]", "{nan(0x400001), -nan}"),
    ("f32[4]", "{-0, 1e-45, 3.40282e+38, 0.5}"), ("f32[]", "-inf"),
    ("f64[2]", "{1e308, 2.2250738585072011e-308}"), ("f16[3]", "{65504, 1e-8, nan(0x1)}"),
    ("bf16[3]", "{nan(0x41), -nan, 0.1001}"), ("c64[2]", "{(1, -2.5), (-inf, 0)}"),
    ("c128[]", "(1e300, 2)"), ("pred[2,2]", "{{1, false}, {true, 0}}"), ("s4[2]", "{-8, 7}"),
    ("u4[2]", "{0, 15}"), ("s2[2]", "{-2, 1}"), ("u2[4]", "{0, 1, 2, 3}"), ("s8[2]", "{-128, 127}"),
    ("u8[]", "255"), ("s16[2]", "{-32768, 32767}"), ("u16[]", "65535"),
    ("s32[2]", "{-2147483648, 2147483647}"), ("u32[]", "4294967295"),
    ("s64[2]", "{-9223372036854775808, 9223372036854775807}"),
    ("u64[2]", "{18446744073709551615, 0}"), ("f8e4m3fn[3]", "{nan, 448, -nan}"),
    ("f8e5m2[3]", "{nan, inf, 57344}"), ("f8e4m3[2]", "{240, 0.0625}"),
    ("f8e3m4[2]", "{15.5, 0.1}"), ("f8e4m3b11fnuz[2]", "{30, nan}"),
    ("f8e4m3fnuz[2]", "{240, nan}"), ("f8e5m2fnuz[2]", "{57344, 0.3}"),
    ("f8e8m0fnu[2]", "{1, nan}"), ("f4e2m1fn[2]", "{6, -0.5}"),
    ("s32[2,3]", "{ { /*i0=0*/ 1, 2, 3 }, // a row\n { 4, 5, 6 } }"),
    ("s32[2,3]{0,1}", "{ { 1, 2, 3 }, { 4, 5, 6 } }"), ("f32[0]", "{}"), ("f32[2,0]", "{ {}, {} }"),
    ("f32[4,8]", "{...}"), ("(f32[2], (s32[], pred[1]))", "({1, 2}, (3, {true}))"),
]  # fmt: skip

HEADERS = [
    ", replica_count=2, num_partitions=3",
    ", alias_passthrough_params=true",
    ", allow_spmd_sharding_propagation_to_parameters={true,false,true,false,true}",
    ", allow_spmd_sharding_propagation_to_output=true",
    ", input_output_alias={ {}: (0, {}) }",
    ", input_output_alias={ {}: (0, {}, must-alias) }",
    ", input_output_alias={}",
    ", buffer_donor={ (0, {}), (1, {}) }",
    ', frontend_attributes={a="b",c={d = 1}}',
    ", is_scheduled=true",
    ", entry_computation_layout={(f32[4,8]{0,1}, f32[8,4]{1,0}, s32[], f32[8]{0}, pred[])"
    "->f32[4,8]{0,1}}",
]

TEXTS = {
    **{line: MODULE.format(header="", instruction=line) for line in INSTRUCTIONS},
    **{
        f"{shape} {value}": MODULE.format(
            header="", instruction=f"{shape} constant({value})".replace("\n", "\n    ")
        )
        for shape, value in CONSTANTS
    },
    **{
        header: MODULE.format(header=header, instruction="f32[4,8] negate(a)") for header in HEADERS
    },
}

NEWER = (*("order=", "unreduced=max", '["outer/inner"]'),)
"""Parts of spellings that 0.10 refuses."""


@cache
def _answers(release: str) -> dict[str, Answer]:
    oracle = present(oracle_of(release))
    return dict(zip(TEXTS, oracle.read(list(TEXTS.values())), strict=True))


@pytest.mark.parametrize("case", TEXTS)
def test_an_attribute_means_what_it_means_to_xla(release: str, case: str) -> None:
    found = _answers(release)[case]
    if release == "0.10" and any(part in case for part in NEWER):
        assert isinstance(found, Refusal)
        return
    assert isinstance(found, XlaModule), found
    assert disagreements(TEXTS[case], found) == []


MALFORMED = [
    *(
        ("sharding", text)
        for text in (
            *("replicated", "{device=3}", "{maximal}", "{devices=[2,1]0}", "{devices=[2,1]<=[3]}"),
            *("{devices=[2,1]<=[2]T(0,1)}", "{mesh['x'=2], [{'y'}, {}]}"),
            *("{mesh['x'=2], x}", "{mesh['x'=2]}", "{mesh['x'=4], [{'x':(1)3}, {}]}"),
            *("{mesh['x'=2], device_ids=(0), [{}]}", "{last_tile_dims={x}}", "{shard_as}"),
        )
    ),
    *(
        ("replica_groups", text)
        for text in (
            *("{0,1}", "{{0,1}", "[2]<=[2]", "[2,4]<=[4]", "[2,4]", "mesh['x'=2]"),
            *("mesh['x'=2] {'y'}", "mesh[x=2] {'x'}", "@mesh {'x'}"),
        )
    ),
    *(
        ("window", text)
        for text in ("{size=3x}", "{size=3x3 stride=1}", "{pad=1}", "{size=3 of=1}", "size=3")
    ),
    *(
        ("dim_labels", text)
        for text in ("b01f", "bf_io", "b01f_01io->b0f", "bbf_io->bf", "b02f_02io->b02f")
    ),
    *(("source_target_pairs", text) for text in ("{{0,1},}", "{0,1}", "0")),
    *(("padding", text) for text in ("1", "1_", "1_1x")),
    *(("slice", text) for text in ("{0:1}", "{[0]}", "{[0:1:1:1]}")),
    ("result_accuracy", "{atol=1}"),
    ("statistics", "{a}"),
    ("origin", "{x}"),
    ("operand_layout_constraints", "{f32[2]{0,1}}"),
    ("dimensions", "{0,x}"),
    ("channel_id", "x"),
    ("use_global_device_ids", "1"),
]
"""Values that XLA refuses wherever they stand."""

READ_BY_0_10 = {"{devices=[2,1]<=[3]}", "[2,4]<=[4]"}
"""Of these only 0.11 counts the devices."""

HOLDERS = {
    "sharding": f"{CALL}, sharding=%s", "replica_groups": f"{REDUCE}, replica_groups=%s",
    "window": f"{CALL}, window=%s", "dim_labels": f"{CALL}, window={{size=1x1}}, dim_labels=%s",
    "source_target_pairs": "f32[4,8] collective-permute(a), source_target_pairs=%s",
    "padding": "f32[4,8] pad(a, s), padding=%s", "slice": "f32[4,8] slice(a), slice=%s",
    "result_accuracy": "f32[4,8] cosine(a), result_accuracy=%s",
    "statistics": f"{CALL}, statistics=%s", "origin": f"{CALL}, origin=%s",
    "operand_layout_constraints": f"{CALL}, operand_layout_constraints=%s",
    "dimensions": "f32[4,8] broadcast(v), dimensions=%s",
    "channel_id": f"{REDUCE}, replica_groups={{}}, channel_id=%s",
    "use_global_device_ids": f"{REDUCE}, replica_groups={{}}, use_global_device_ids=%s",
}  # fmt: skip


@cache
def _malformed(release: str) -> list[Answer]:
    oracle = present(oracle_of(release))
    return oracle.read(
        [
            MODULE.format(header="", instruction=HOLDERS[name].replace("%s", text))
            for name, text in MALFORMED
        ]
    )


@pytest.mark.parametrize("number", range(len(MALFORMED)), ids=lambda n: " ".join(MALFORMED[n]))
def test_what_xla_refuses_we_refuse(release: str, number: int) -> None:
    name, text = MALFORMED[number]
    if release != "0.10" or text not in READ_BY_0_10:
        assert isinstance(_malformed(release)[number], Refusal)
    with pytest.raises(AttributeSyntaxError) as raised:
        read_attribute(name, text)
    assert 0 <= raised.value.offset <= len(text)


# ---- random devices

MAX_RANDOM = 200


def _some(chance: Random, axes: list[str]) -> list[str]:
    """Takes none, one or two of the axes away, in order: XLA dies of another order."""
    count = chance.choice((0, 0, 1, 1, 2))
    taken = {axis[:3]: axis for axis in axes[:count]}
    axes[:] = axes[count:]
    return [taken[name] for name in sorted(taken)]


def _random_iota(chance: Random, count: int) -> str:
    dims = []
    for factor in (2, 3, 2, 2):
        if count % factor == 0 and chance.random() < 0.7:
            dims.append(factor)
            count //= factor
    if count > 1 or not dims:
        dims.append(count)
    if len(dims) == 1:
        return f"<=[{dims[0]}]"
    order = ",".join(map(str, chance.sample(range(len(dims)), len(dims))))
    return f"<=[{','.join(map(str, dims))}]T({order})"


def _random_tiles(chance: Random) -> str:
    kinds = chance.choice(
        ([], [], ["replicated"], ["manual"], ["unreduced"], ["manual", "replicated"])
    )
    kinds = chance.sample(kinds, len(kinds))
    dims = [chance.choice((1, 2, 2, 3, 4)) for _ in range(2 + len(kinds))]
    dims[0] = max(dims[0], 2)
    count = prod(dims)
    listed = ",".join(map(str, chance.sample(range(count), count)))
    devices = listed if chance.random() < 0.5 else _random_iota(chance, count)
    last = f" last_tile_dims={{{','.join(kinds)}}}" if kinds else ""
    return f"{{devices=[{','.join(map(str, dims))}]{devices}{last}}}"


def _random_mesh(chance: Random) -> tuple[str, dict[str, int]]:
    sizes = {name: chance.choice((2, 4, 8)) for name in "xyz"[: chance.choice((1, 2, 3))]}
    mesh = "mesh[" + ",".join(f"'{name}'={size}" for name, size in sizes.items()) + "]"
    count = prod(sizes.values())
    if chance.random() < 0.3:
        devices = chance.sample(range(count), count)
        devices[0], devices[-1] = max(devices[0], devices[-1]), min(devices[0], devices[-1])
        mesh += f", device_ids=({','.join(map(str, devices))})"
    return mesh, sizes


def _random_axes(chance: Random, sizes: dict[str, int]) -> list[str]:
    axes = []
    for name, size in sizes.items():
        parts = [f"'{name}':(1)2", f"'{name}':(2){size // 2}"]
        axes += parts if size > 2 and chance.random() < 0.5 else [f"'{name}'"]
    return chance.sample(axes, len(axes))


def _random_named(chance: Random) -> str:
    mesh, sizes = _random_mesh(chance)
    axes = _random_axes(chance, sizes)
    dimensions = [[*_some(chance, axes), *chance.choice(([], [], ["?"]))] for _ in range(2)]
    spread = ", ".join(f"{{{', '.join(each)}}}" for each in dimensions)
    taken = {kind: _some(chance, axes) for kind in ("replicated", "unreduced", "manual")}
    rest = [f", {kind}={{{', '.join(some)}}}" for kind, some in taken.items() if some]
    return f"{{{mesh}, [{spread}]{''.join(rest)}}}"


def _random_groups(chance: Random) -> str:
    if chance.random() < 0.5:
        count, size = chance.choice((1, 2, 3, 4)), chance.choice((2, 3, 4))
        return f"[{count},{size}]{_random_iota(chance, count * size)}"
    mesh, sizes = _random_mesh(chance)
    return f"{mesh} {{{','.join(_random_axes(chance, sizes)[:1])}}}"


def test_random_shardings_and_groups_mean_what_they_mean_to_xla(release: str) -> None:
    chance = Random(0)
    instructions = [f"{CALL}, sharding={_random_tiles(chance)}" for _ in range(MAX_RANDOM)]
    instructions += [f"{CALL}, sharding={_random_named(chance)}" for _ in range(MAX_RANDOM)]
    instructions += [
        f"{REDUCE}, replica_groups={_random_groups(chance)}" for _ in range(MAX_RANDOM)
    ]
    texts = [MODULE.format(header="", instruction=each) for each in instructions]
    oracle = present(oracle_of(release))
    read = 0
    for line, text, found in zip(instructions, texts, oracle.read(texts), strict=True):
        if isinstance(found, XlaModule):
            assert disagreements(text, found) == [], line
            read += 1
    assert read > len(texts) // 2


# ---- real dumps

ARCHIVES = ROOT.parent / "shared" / "dumps"
ONE_IN = 40


@cache
def _sample() -> list[str]:
    """One text of the archives in so many, the same ones each time."""
    found = []
    for archive in sorted(ARCHIVES.glob("*.tar.xz")):
        with tarfile.open(archive) as tar:
            for member in tar:
                chosen = crc32(member.name.encode()) % ONE_IN == 0
                if chosen and member.size < 1 << 20 and (file := tar.extractfile(member)):
                    data = file.read()
                    if data.startswith(b"HloModule"):
                        found.append(decode(data))
    return found


@pytest.mark.skipif(not ARCHIVES.is_dir(), reason="the archives of dumps are not here")
def test_a_sample_of_the_archives_means_what_it_means_to_xla(release: str) -> None:
    oracle = present(oracle_of(release))
    texts = _sample()
    assert len(texts) > 50
    read = 0
    for text, found in zip(texts, oracle.read(texts), strict=True):
        if isinstance(found, XlaModule):
            assert disagreements(text, found) == []
            read += 1
    assert read > len(texts) // 2


def test_an_attribute_that_nobody_compares_is_a_difference(release: str) -> None:
    text = MODULE.format(header="", instruction="f32[4,8] negate(a)")
    oracle = present(oracle_of(release))
    (found,) = oracle.read([text])
    assert isinstance(found, XlaModule)
    changed = text.replace("negate(a)", "negate(a), of_tomorrow={1}")
    assert disagreements(text, found) == []
    (difference,) = disagreements(changed, found)
    assert "attribute of_tomorrow" in difference


def test_a_value_that_xla_reads_otherwise_is_a_difference(release: str) -> None:
    first = MODULE.format(header="", instruction="f32[4,8] iota(), iota_dimension=1")
    second = first.replace("iota_dimension=1", "iota_dimension=0")
    oracle = present(oracle_of(release))
    (found,) = oracle.read([first])
    assert isinstance(found, XlaModule)
    assert disagreements(second, found) == ["e: %n: dimensions: [0] here, [1] in XLA"]
