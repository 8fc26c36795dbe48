"""Flops and bytes of modules, held against XLA's own `HloCostAnalysis`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hlo_lint.analysis.cost import ModuleCosts
from hlo_lint.analysis.opcode_costs import Cost
from hlo_lint.analysis.roofline import gpu_device, tpu_device, tpu_of_dump
from hlo_lint.dumps.directory import open_dump
from hlo_lint.hlo.parser.module import parse_file
from tests.conftest import DUMPS, FIXTURES, ROOT, present
from tests.texts import counted, entry

TARGETS = ROOT / "hlo_lint" / "apps" / "jax" / "capture" / "targets"


def costs(text: str, *, loops_once: bool = False) -> ModuleCosts:
    return ModuleCosts(parse_file(text).modules[0], loops_once=loops_once)


def programs() -> dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]]:
    """Programs with the shapes of their arguments, all f32."""
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    def loss(w: Any, x: Any, v: Any) -> Any:
        return jnp.mean((jax.nn.gelu(x @ w) @ v) ** 2)

    def convolved(x: Any, k: Any, **how: Any) -> Any:
        return jax.lax.conv_general_dilated(x, k, **how)

    def layers(x: Any, w: Any) -> Any:
        return jax.lax.scan(lambda c, a: (jnp.tanh(c @ a), None), x, w)[0]

    image, kernel = (2, 3, 33, 32), (8, 3, 3, 3)
    heads = (2, 64, 4, 32)
    strided = {"window_strides": (2, 2), "padding": "SAME"}
    dilated = {
        "window_strides": (1, 1),
        "padding": ((1, 1), (2, 1)),
        "lhs_dilation": (2, 3),
        "rhs_dilation": (2, 1),
    }
    return {
        "gradient of a perceptron": (jax.grad(loss), ((128, 256), (64, 128), (256, 16))),
        "softmax": (jax.nn.softmax, ((256, 512),)),
        "attention": (jax.nn.dot_product_attention, (heads, heads, heads)),
        "strided convolution": (lambda x, k: convolved(x, k, **strided), (image, kernel)),
        "dilated convolution": (lambda x, k: convolved(x, k, **dilated), ((2, 3, 9, 10), kernel)),
        "gradient of a convolution": (
            jax.grad(lambda k, x: convolved(x, k, **strided).sum()),
            (kernel, image),
        ),
        "sort": (jnp.sort, ((1024,),)),
        "running sum": (jnp.cumsum, ((1024,),)),
        "pooling": (
            lambda x: jax.lax.reduce_window(
                x, 0.0, jax.lax.add, (1, 1, 3, 3), (1, 1, 2, 2), "VALID"
            ),
            (image,),
        ),
        "update": (lambda x, u: x.at[3].add(u), ((1000, 64), (64,))),
        "transposition": (lambda x: x.T + 1, ((256, 512),)),
        "Fourier transform": (lambda x: jnp.fft.rfft2(x).real, ((3, 24, 64),)),
        "loop": (layers, ((16, 32), (7, 32, 32))),
    }


@pytest.mark.slow
def test_flops_and_bytes_are_those_of_xla() -> None:
    """Flops are equal; bytes within a twentieth, where no operand is only sliced."""
    jax = pytest.importorskip("jax")
    for name, (function, shapes) in programs().items():
        arguments = [jax.ShapeDtypeStruct(shape, "float32") for shape in shapes]
        compiled = jax.jit(function).lower(*arguments).compile()
        theirs = compiled.cost_analysis()
        theirs = theirs[0] if isinstance(theirs, list) else theirs  # jax before 0.5
        ours = costs(compiled.as_text(), loops_once=True).total
        assert ours.flops == pytest.approx(theirs["flops"]), name
        assert ours.transcendentals == theirs.get("transcendentals", 0), name
        if name not in ("loop",):  # its body slices the stack of weights
            assert ours.bytes == pytest.approx(theirs["bytes accessed"], rel=0.05), name


def loop(limit: int = 10) -> str:
    """A loop whose body multiplies two matrices."""
    dot = "y = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    around = "  x = f32[8,8] parameter(0)\n  ROOT w = LOOP(x)"
    return counted({"x": "f32[8,8]"}, dot, "y", around, limit)


def test_a_loop_counts_as_often_as_it_runs_and_no_instruction_costs_nothing() -> None:
    assert costs("HloModule m").total == Cost()
    five, ten = costs(loop(5)), costs(loop())
    assert ten.total.flops == 2 * five.total.flops == 10 * (2 * 8**3 + 2)
    assert costs(loop(), loops_once=True).total.flops == 2 * 8**3 + 2


def test_a_loop_of_unknown_length_counts_once_and_is_named() -> None:
    unknown = loop().replace("constant(10)", "get-tuple-element(p), index=0")
    assert costs(unknown).total.flops == 2 * 8**3 + 2
    assert [loop.name for loop in costs(unknown).unknown_loops] == ["w"]
    assert not costs(loop()).unknown_loops


@pytest.mark.parametrize("step", ["stride=0", "lhs_dilate=0", "stride=0 lhs_dilate=0"])
def test_a_convolution_with_a_step_of_0_counts_no_flops(step: str) -> None:
    window = f"window={{size=3 {step} pad=1_1}}, dim_labels=b0f_0io->b0f"
    image, kernel = "p = f32[1,8,1] parameter(0)", "k = f32[3,1,1] parameter(1)"
    text = entry(f"  {image}\n  {kernel}\n  ROOT c = f32[1,8,1] convolution(p, k), {window}")
    assert costs(text).total.flops == 0


def fusion(result: str, lines: str, operands: str = "p, i") -> str:
    """A fusion over rows, `p`, the number of one of them, `i`, and an update, `u`."""
    parameters = """\
  p = f32[1000,64] parameter(0)
  i = s32[] parameter(1)
  u = f32[1,64] parameter(2)
"""
    kept = "".join(f"{row}\n" for row in parameters.splitlines() if row[2] in operands)
    body = f"body {{\n{kept}  zero = s32[] constant(0)\n{lines}\n}}\n\n"
    root = f"  ROOT f = {result} fusion({operands}), kind=kLoop, calls=body"
    return entry(kept + root, body)


def test_of_an_operand_that_a_fusion_slices_the_slice_counts() -> None:
    text = fusion(
        "f32[1,64]",
        """  slice = f32[1,64] dynamic-slice(p, i, zero), dynamic_slice_sizes={1,64}
  ROOT negate = f32[1,64] negate(slice)""",
    )
    assert costs(text).total == Cost(flops=64, bytes=2 * 64 * 4 + 4)


def test_a_fusion_that_updates_in_place_writes_the_update() -> None:
    update = "  ROOT update = f32[1000,64] dynamic-update-slice(p, u, i, zero)"
    text = fusion("f32[1000,64]", update, "p, i, u")
    assert costs(text).total.bytes == 2 * 64 * 4 + 4


def test_a_gemm_of_cublas_has_flops_and_its_workspace_moves_no_bytes() -> None:
    text = entry("""
  a = f16[64,128] parameter(0)
  b = f16[128,32] parameter(1)
  c = (f16[64,32], s8[4194304]) custom-call(a, b), custom_call_target="__cublas$gemm", \
backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],\
"rhs_contracting_dimensions":["0"]}}}
  ROOT r = f16[64,32] get-tuple-element(c), index=0
""")
    flops = 2 * 64 * 32 * 128
    bytes_moved = 2 * (64 * 128 + 128 * 32 + 64 * 32)
    assert costs(text).total == Cost(flops, 0, bytes_moved, {"f16": flops})


@pytest.mark.parametrize("case", ["gpu-jax0.11.2/attention", "cpu-jax0.10.2/mlp_train"])
def test_the_kernels_of_a_module_add_up_to_it(case: str) -> None:
    for compilation in open_dump(DUMPS / case):
        for dump in compilation.dumps:
            module = dump.file.modules[0]
            whole = ModuleCosts(module)
            parts = [whole.of(kernel).times(times) for kernel, times in whole.kernels()]
            assert sum(part.flops for part in parts) == whole.total.flops
            assert sum(part.bytes for part in parts) == whole.total.bytes


# Devices


def test_the_rates_of_a_gpu_are_those_of_its_data_sheet() -> None:
    """NVIDIA's: 989 dense TFLOPS in bf16, 494 in tf32, 67 in f32 and 3.35 TB/s."""
    h100 = present(gpu_device((TARGETS / "h100.pbtxt").read_text()))
    assert h100.matrix_flops["bf16"] == pytest.approx(989e12, rel=0.01)
    assert h100.matrix_flops["f32"] == pytest.approx(494e12, rel=0.01)
    assert h100.vector_flops == pytest.approx(67e12, rel=0.01)
    assert h100.bytes_per_second == pytest.approx(3.35e12, rel=0.01)


@pytest.mark.parametrize("name", ["jax0.10.0-h100", "jax0.10.2-h200", "jax0.11.2-h200"])
def test_what_each_release_is_told_of_a_gpu_is_enough(name: str) -> None:
    path = FIXTURES / "programs" / "gpu_targets" / f"{name}.txtpb"
    device = present(gpu_device(path.read_text()))
    assert device.matrix_flops["f16"] > 10 * device.vector_flops


def test_a_description_without_matrix_units_gets_those_of_its_generation() -> None:
    text = (TARGETS / "h100.pbtxt").read_text().partition("matrix_unit_description")[0] + "}"
    device = present(gpu_device(text))
    assert device.matrix_flops["f16"] == pytest.approx(1070e12, rel=0.01)  # at the boost clock


@pytest.mark.parametrize("text", ["", "gpu_device_info { core_count: 132 }", "}{"])
def test_a_description_that_says_too_little_is_no_device(text: str) -> None:
    assert gpu_device(text) is None


def test_a_kernel_takes_as_long_as_its_memory_or_its_arithmetic() -> None:
    v5e = present(tpu_device("v5e"))
    assert v5e.seconds(Cost(bytes=819_000_000)) == pytest.approx(1e-3)
    busy = Cost(flops=394 * 10**9, bytes=819, matrix_flops={"bf16": 394 * 10**9})
    assert v5e.seconds(busy) == pytest.approx(2e-3)
    assert tpu_device("v9") is None


def test_the_tpu_of_a_dump_is_known_by_the_name_of_its_generation() -> None:
    lite = 'tpu_topology_args { version: TPU_VERSION_VIPERFISH variant: "lite" }'
    assert tpu_of_dump(lite) == tpu_device("v5e")
    assert tpu_of_dump(lite.replace('variant: "lite"', "")) == tpu_device("v5p")
    assert tpu_of_dump("tpu_topology_args { version: TPU_VERSION_PUFFERFISH }") == tpu_device("v4")
    assert tpu_of_dump("tpu_topology_args { version: TPU_VERSION_OTHER }") is None


def test_loops_in_loops_that_claim_any_number_of_iterations_cost_a_float() -> None:
    config = 'backend_config={"known_trip_count":{"n":"1000000000000000"}}'
    lines = ["c { p = f32[4] parameter(0) ROOT t = pred[] constant(true) }"]
    lines.append("body0 { p = f32[4] parameter(0) ROOT r = f32[4] negate(p) }")
    for n in range(1, 39):
        loop = f"while(p), condition=c, body=body{n - 1}, {config}"
        lines.append(f"body{n} {{ p = f32[4] parameter(0) ROOT r = f32[4] {loop} }}")
    root = f"p = f32[4] parameter(0) ROOT r = f32[4] while(p), condition=c, body=body38, {config}"
    nested = costs(entry(root, "\n".join((*lines, ""))))
    assert float(nested.total.bytes) > 1e70
    assert [float(times) for _, times in nested.kernels()]


def test_bitcasts_that_are_read_by_two_each_are_followed_once() -> None:
    chain = "".join(f"  b{i} = f32[8] bitcast(b{i - 1}, b{i - 2})\n" for i in range(2, 60))
    before = (
        "f {\n  b0 = f32[8] parameter(0)\n  b1 = f32[8] bitcast(b0)\n"
        f"{chain}  ROOT n = f32[8] negate(b59)\n}}\n\n"
    )
    lines = "  p = f32[8] parameter(0)\n  ROOT c = f32[8] fusion(p), kind=kLoop, calls=f"
    assert costs(entry(lines, before)).total.bytes == 64


def test_a_window_of_any_size_is_counted_at_once() -> None:
    text = entry("""
  x = f32[1,99999999,1] parameter(0)
  k = f32[99999999,1,1] parameter(1)
  ROOT c = f32[1,99999999,1] convolution(x, k), window={size=99999999 pad=9_9}, \
dim_labels=b0f_0io->b0f
""")
    assert costs(text).total.flops == 2 * 99999999**2
