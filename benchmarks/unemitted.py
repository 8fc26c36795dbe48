"""Modules that XLA verifies and its emitters refuse: does `check --ask-xla` say so, and where?

    python -m benchmarks.unemitted

Each text is a final module. XLA's compiler for the chip of its column refuses it with all passes
off, or dies; the finding has to be at the marked line. Prints a Markdown table.
"""

# ruff: noqa: E501

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Final

from hlo_lint.apps.asking import refusals
from hlo_lint.dumps.directory import open_dump

_FILES: Final = {
    "gpu": "module_0001.m.sm_9.0a_gpu_after_optimizations.txt",
    "tpu": "module_0000.m.cl_933746096.after_optimizations_before_buffer_assignment.txt",
    "cpu": "module_0000.m.cpu_after_optimizations.txt",
}
_ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"
_LESS = (
    "less { a = f32[] parameter(0)\n b = f32[] parameter(1)\n"
    " ROOT c = pred[] compare(a, b), direction=LT }\n"
)
_P = "p = f32[8]{0} parameter(0)\n"
_TRITON: Final = (
    'kind=kCustom, calls=f, backend_config={"fusion_backend_config":{"kind":"__triton",'
    '"block_level_fusion_config":{"output_tiles":[{"sizes":["8"]}],"num_warps":"1","num_ctas":"1",'
    '"num_stages":"1"}}} // here'
)


def _fused(body: str, dtype: str = "f32", attributes: str = "kind=kLoop, calls=f // here") -> str:
    """A fusion of an operation on `a`."""
    return (
        f"f {{ a = {dtype}[8]{{0}} parameter(0)\n {body} }}\n"
        f"ENTRY e {{ p = {dtype}[8]{{0}} parameter(0)\n"
        f" ROOT r = {dtype}[8]{{0}} fusion(p), {attributes}\n }}"
    )


def _entry(body: str, above: str = "") -> str:
    return f"{above}ENTRY e {{ {body} // here\n }}"


def _collective(dtype: str, opcode: str, reducer: str) -> str:
    return _entry(
        f"p = {dtype}[8]{{0}} parameter(0)\n ROOT r = {dtype}[8]{{0}} {opcode}(p), "
        "replica_groups={{0,1}}, to_apply=op",
        f"op {{ a = {dtype}[] parameter(0)\n b = {dtype}[] parameter(1)\n"
        f" ROOT c = {dtype}[] {reducer}(a, b) }}\n",
    )


def _call(types: str, result: str, target: str, config: str = "") -> str:
    """A custom call of parameters of some types."""
    given = [f"p{n} = {dtype} parameter({n})\n" for n, dtype in enumerate(types.split("; "))]
    names = ", ".join(f"p{number}" for number in range(len(given)))
    tail = f", backend_config={config}" if config else ""
    body = f'ROOT r = {result} custom-call({names}), custom_call_target="{target}"{tail}'
    return _entry("".join(given) + body)


_GEMM = (
    '{{"gemm_backend_config":{{"alpha_real":1,"beta":{beta},"epilogue":"{epilogue}",'
    '"dot_dimension_numbers":{{"lhs_contracting_dimensions":["1"],'
    '"rhs_contracting_dimensions":["0"]}}}}}}'
)
_SQUARE = "f32[8,8]{1,0}"
_LT = "__cublas$lt$matmul"
TEXTS: Final = {
    "gpu an operation outside of a fusion": _entry(f"{_P} ROOT r = f32[8]{{0}} reverse(p), dimensions={{0}}"),
    "gpu a stable sort": _entry(f"{_P} ROOT r = f32[8]{{0}} sort(p), dimensions={{0}}, is_stable=true, to_apply=less", _LESS),
    "gpu a topk": _entry("p = f32[64]{0} parameter(0)\n ROOT r = (f32[4]{0}, s32[4]{0}) topk(p), k=4, largest=true"),
    "gpu a triangular solve": _entry(f"p = {_SQUARE} parameter(0)\n q = {_SQUARE} parameter(1)\n ROOT r = {_SQUARE} triangular-solve(p, q), left_side=true, lower=true, transpose_a=NO_TRANSPOSE"),
    "gpu a cholesky": _entry(f"p = {_SQUARE} parameter(0)\n ROOT r = {_SQUARE} cholesky(p), lower=true"),
    "gpu a copy to another layout": _entry("p = f32[4,8]{1,0} parameter(0)\n k = f32[4,8]{1,0} copy(p)\n ROOT r = f32[4,8]{0,1} copy(k)"),
    "gpu a constant with a dot in its name": _entry("ROOT k.1 = f32[2]{0} constant({1, 2})"),
    "gpu a barrier": _entry(f"{_P} ROOT r = f32[8]{{0}} opt-barrier(p)"),
    "gpu a random number": _entry("z = f32[]  parameter(0)\n o = f32[] parameter(1)\n ROOT r = f32[8]{0} rng(z, o), distribution=rng_uniform"),
    "gpu a batch normalization": _entry("x = f32[2,3]{1,0} parameter(0)\n s = f32[3]{0} parameter(1)\n o = f32[3]{0} parameter(2)\n ROOT r = (f32[2,3]{1,0}, f32[3]{0}, f32[3]{0}) batch-norm-training(x, s, o), epsilon=0.001, feature_index=1"),
    "gpu a window of a pooling gradient": _entry(f"{_P} s = f32[4]{{0}} parameter(1)\n z = f32[] parameter(2)\n ROOT r = f32[8]{{0}} select-and-scatter(p, s, z), window={{size=2 stride=2}}, select=ge, scatter=add", _ADD + _LESS.replace("less", "ge").replace("LT", "GE")),
    "gpu complex numbers in Triton": _fused("ROOT n = c64[8]{0} negate(a)", "c64", _TRITON),
    "gpu a bit count in Triton": _fused("ROOT n = s32[8]{0} popcnt(a)", "s32", _TRITON),
    "gpu a reversal in Triton": _fused("ROOT n = f32[8]{0} reverse(a), dimensions={0}", "f32", _TRITON),
    "gpu a constant of rank 1 in Triton": _fused("k = f32[8]{0} constant({1,2,3,4,5,6,7,8})\n ROOT n = f32[8]{0} add(a, k)", "f32", _TRITON),
    "gpu a Triton fusion without blocks": _fused("ROOT n = f32[8]{0} negate(a)", "f32", 'kind=kCustom, calls=f, backend_config={"fusion_backend_config":{"kind":"__triton"}} // here'),
    "gpu a Triton fusion without warps": _fused("ROOT n = f32[8]{0} negate(a)", "f32", _TRITON.replace('"num_warps":"1",', "")),
    "gpu a Triton fusion of too few tiles": _fused("ROOT n = f32[8]{0} negate(a)", "f32", _TRITON.replace('{"sizes":["8"]}', "")),
    "gpu a Triton GEMM that is left": _fused("ROOT n = f32[8]{0} negate(a)", "f32", 'kind=kCustom, calls=f, backend_config={"fusion_backend_config":{"kind":"__triton_gemm"}} // here'),
    "gpu a custom fusion of no known name": _fused("ROOT n = f32[8]{0} negate(a)", "f32", 'kind=kCustom, calls=f, backend_config={"fusion_backend_config":{"kind":"__custom_fusion","custom_fusion_config":{"name":"nothing"}}} // here'),
    "gpu a Fourier transform in a loop fusion": _fused("ROOT n = c64[8]{0} fft(a), fft_type=FFT, fft_length={8}", "c64"),
    "gpu a custom call in a loop fusion": _fused('ROOT n = f32[8]{0} custom-call(a), custom_call_target="k"'),
    "gpu results of other sizes in a loop fusion": "f { a = f32[8]{0} parameter(0)\n n = f32[8]{0} negate(a)\n s = f32[4]{0} slice(a), slice={[0:4]}\n ROOT t = (f32[8]{0}, f32[4]{0}) tuple(n, s) }\nENTRY e { p = f32[8]{0} parameter(0)\n ROOT r = (f32[8]{0}, f32[4]{0}) fusion(p), kind=kLoop, calls=f // here\n }",
    "gpu a reducer that NCCL does not have": _collective("s32", "all-reduce", "xor"),
    "gpu a type that NCCL does not have": _collective("s16", "all-reduce", "add"),
    "gpu offsets of s32 of a ragged exchange": _entry("p = f32[8]{0} parameter(0)\n q = f32[8]{0} parameter(1)\n i = s32[2]{0} parameter(2)\n ROOT r = f32[8]{0} ragged-all-to-all(p, q, i, i, i, i), replica_groups={{0,1}}"),
    "gpu a GEMM without its bias": _call(f"{_SQUARE}; {_SQUARE}", f"({_SQUARE}, s8[64]{{0}})", _LT, _GEMM.format(beta=0, epilogue="BIAS")),
    "gpu a GEMM with a bias too many": _call(f"{_SQUARE}; {_SQUARE}; f32[8]{{0}}", f"({_SQUARE}, s8[64]{{0}})", _LT, _GEMM.format(beta=0, epilogue="DEFAULT")),
    "gpu a GEMM without its addend": _call(f"{_SQUARE}; {_SQUARE}", f"({_SQUARE}, s8[64]{{0}})", _LT, _GEMM.format(beta=1, epilogue="DEFAULT")),
    "gpu a GEMM without its configuration": _call(f"{_SQUARE}; {_SQUARE}", f"({_SQUARE}, s8[64]{{0}})", _LT),
    "gpu a GEMM of integers in cuBLASLt": _call("s16[8,8]{1,0}; s16[8,8]{1,0}", "(s16[8,8]{1,0}, s8[64]{0})", _LT, _GEMM.format(beta=0, epilogue="DEFAULT")),
    "gpu too many largest elements": _call("f32[100]{0}", "(f32[17]{0}, s32[17]{0})", "__gpu$TopK"),
    "gpu the largest elements of f16": _call("f16[100]{0}", "(f16[16]{0}, s32[16]{0})", "__gpu$TopK"),
    "gpu a convolution without a workspace": _call("f32[2,9,9,4]{3,2,1,0}; f32[8,3,3,4]{3,2,1,0}", "f32[2,7,7,8]{3,2,1,0}", "__cudnn$convForward"),
    "gpu a Triton call without its kernel": _call("f32[8]{0}", "f32[8]{0}", "__gpu$xla.gpu.triton", '"{name = \\"k\\"}"'),
    "gpu a sort in an asynchronous computation": _LESS + "w { a = f32[8]{0} parameter(0)\n ROOT b = f32[8]{0} sort(a), dimensions={0}, to_apply=less // here\n }\nENTRY e { p = f32[8]{0} parameter(0)\n s = ((f32[8]{0}), f32[8]{0}, u32[]) async-start(p), calls=w\n ROOT d = f32[8]{0} async-done(s) }",
    "cpu a cholesky": _entry(f"p = {_SQUARE} parameter(0)\n ROOT r = {_SQUARE} cholesky(p), lower=true"),
    "cpu a triangular solve": _entry(f"p = {_SQUARE} parameter(0)\n q = {_SQUARE} parameter(1)\n ROOT r = {_SQUARE} triangular-solve(p, q), left_side=true, lower=true, transpose_a=NO_TRANSPOSE"),
    "cpu a batch normalization": _entry("x = f32[2,3]{1,0} parameter(0)\n s = f32[3]{0} parameter(1)\n o = f32[3]{0} parameter(2)\n ROOT r = (f32[2,3]{1,0}, f32[3]{0}, f32[3]{0}) batch-norm-training(x, s, o), epsilon=0.001, feature_index=1"),
    "tpu a cholesky": _entry(f"p = {_SQUARE} parameter(0)\n ROOT r = {_SQUARE} cholesky(p), lower=true"),
    "tpu complex numbers": _entry("p = c64[8]{0} parameter(0)\n ROOT r = c64[8]{0} negate(p)"),
    "tpu numbers of 64 bits": _entry("p = f64[8]{0} parameter(0)\n ROOT r = f64[8]{0} negate(p)"),
    "tpu a call that is not registered": _call("f32[8]{0}", "f32[8]{0}", "nothing"),
    "tpu a topk": _entry("p = f32[64]{0} parameter(0)\n ROOT r = (f32[4]{0}, s32[4]{0}) topk(p), k=4, largest=true"),
}  # fmt: skip


def rows() -> Iterator[tuple[str, str, str, str]]:
    """Chip, text, verdict and XLA's words."""
    for title, body in TEXTS.items():
        chip, _, name = title.partition(" ")
        text = f"HloModule m, is_scheduled=true\n\n{dedent(body)}\n"
        wanted = text[: text.index("// here")].count("\n") + 1
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, _FILES[chip]).write_text(text, "utf-8")
            refused, _ = refusals(open_dump(folder))
        lines = [diagnostic.line for diagnostic in refused]
        verdict = "found" if lines == [wanted] else f"lines {lines}" if lines else "missed"
        words = refused[0].message.partition(": ")[2] if refused else ""
        yield chip, name, verdict, re.sub(r"/tmp\S+", "…", words)[:140]


def main() -> None:
    """Print the table."""
    print("| chip | module | verdict | XLA's words |\n|---|---|---|---|")
    for row in rows():
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
