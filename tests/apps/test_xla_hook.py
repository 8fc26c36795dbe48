"""XLA itself calls the checks while it compiles, and goes on with what the fixes made."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import pytest

import hlo_lint
from hlo_lint.apps.jax import xla_hook as live
from hlo_lint.kernels.calls import triton_calls
from hlo_lint.kernels.custom_calls.triton import AutotunedKernelCall
from hlo_lint.text.edits import Edit, Fix, Safety
from hlo_lint.text.errors import UsageError
from hlo_lint.xla.bindings import long_text
from tests.conftest import FIXTURES

pytestmark = pytest.mark.slow

jax = pytest.importorskip("jax")
pytest.importorskip("jax.extend.xla", reason="the hook came with jax 0.10.2")


def text_of(case: str) -> str:
    (path,) = (FIXTURES / "payloads" / case).glob("*gpu_after_optimizations.txt")
    return path.read_text()


def program(case: str) -> Callable[..., Any]:
    """The custom call of a fixture, for the CPU, which has no such kernel."""
    from jax.extend.core import Primitive
    from jax.interpreters import mlir

    ((_, payload),) = triton_calls(hlo_lint.parse(text_of(case)))
    primitive: Any = Primitive(f"call_of_{case}")
    primitive.def_abstract_eval(lambda x, y: jax.core.ShapedArray(y.shape, y.dtype))
    rule = jax.ffi.ffi_lowering(
        payload.target,
        api_version=2,
        backend_config=zlib.compress(payload.message),
        operand_output_aliases={1: 0},
    )
    mlir.register_lowering(primitive, rule, platform="cpu")

    def add(x: Any, y: Any) -> Any:
        return primitive.bind(x, y * 1.5)

    return add


def compile_on_cpu(function: Callable[..., Any]) -> None:
    vector = jax.ShapeDtypeStruct((1024,), "float32")
    jax.jit(function).lower(vector, vector).compile()


def compile_until_xla_misses_the_kernel(case: str) -> None:
    """The CPU has no such kernel, which XLA says after the hook."""
    with pytest.raises(Exception, match="No registered implementation"):
        compile_on_cpu(program(case))


def found(reports: list[tuple[str, hlo_lint.Report]]) -> list[tuple[str, list[str]]]:
    return [(name, [each.rule for each in report.findings]) for name, report in reports]


def aliases(text: str) -> list[tuple[int, ...]]:
    ((_, payload),) = triton_calls(hlo_lint.parse(text))
    assert isinstance(payload.call, AutotunedKernelCall)
    return [tuple(alias) for alias in payload.call.input_output_aliases]


BROKEN = [("jit_add", ["autotuned-aliases-differ"])]


def test_what_is_found_becomes_a_warning_that_says_where() -> None:
    with live.install(platforms=["cpu"]) as checks, pytest.warns(live.LiveWarning) as caught:
        compile_until_xla_misses_the_kernel("add_wrong_legacy")
    assert found(checks.reports) == BROKEN
    assert not checks.mended
    assert "in the compilation of jit_add" in str(caught[0].message)
    assert "test_xla_hook.py" in str(caught[0].message)


def test_a_warning_is_what_a_check_of_the_same_function_finds() -> None:
    """And a check of what jax compiled, which has no dump either."""

    def convolved(x: Any) -> Any:  # XLA:CPU moves all of the result once more
        y = jax.lax.conv_general_dilated(x, jax.numpy.ones((3, 1, 3, 3)), (1, 1), "SAME")
        return y.transpose(3, 2, 0, 1).sum(0)

    small = hlo_lint.Settings(rules={"needless-transpose": {"min-bytes": 0}})
    image = jax.ShapeDtypeStruct((1, 1, 16, 8), "float32")
    with live.install(settings=small) as checks, pytest.warns(live.LiveWarning) as caught:
        compiled = jax.jit(convolved).lower(image).compile()
    with pytest.raises(hlo_lint.FindingsError) as raised:
        hlo_lint.check_jit(convolved, image, settings=small)
    (expected,) = raised.value.report.findings
    for report in (checks.reports[0][1], hlo_lint.lint(compiled, settings=small)):
        assert [(f.rule, f.message) for f in report.findings] == [(expected.rule, expected.message)]
    assert expected.message in str(caught[0].message)


def test_an_error_stops_the_compilation() -> None:
    with (
        live.install("raise", platforms=["cpu"]),
        pytest.raises(Exception, match=r"hlo_lint stops the compilation of jit_add\n"),
    ):
        compile_on_cpu(program("add_none_legacy"))


def test_xla_goes_on_with_the_mended_module() -> None:
    from jax.extend.xla import clear_hlo_module_transformation, register_hlo_module_transformation

    texts: list[str] = []
    with live.install("fix", platforms=["cpu"]) as checks:
        register_hlo_module_transformation(
            lambda proto: texts.append(long_text(proto)), name="after", platforms=["cpu"]
        )
        try:
            compile_until_xla_misses_the_kernel("add_wrong_legacy")
        finally:
            clear_hlo_module_transformation("after", platforms=["cpu"])
    assert found(checks.reports) == BROKEN
    assert aliases(checks.mended[0].files[0].before) == [(1, 0, 4096)]
    assert aliases(texts[-1]) == [(1, 2, 4096)]


def test_a_right_module_goes_on_as_it_is() -> None:
    with live.install("fix", platforms=["cpu"]) as checks:
        compile_until_xla_misses_the_kernel("add_right_legacy")
        vector = jax.numpy.arange(4.0)
        assert jax.jit(lambda x: x * 2 + 1)(vector).tolist() == [1, 3, 5, 7]
    assert ("jit_add", []) in found(checks.reports)
    assert not checks.mended


def test_nothing_is_looked_at_any_more_once_removed() -> None:
    checks = live.install("raise", platforms=["cpu"])
    other = live.install("warn", platforms=["cpu"], ignore=["autotuned-aliases-differ"])
    checks.remove()
    compile_until_xla_misses_the_kernel("add_wrong_legacy")
    other.remove()
    compile_until_xla_misses_the_kernel("add_wrong_legacy")
    assert not checks.reports
    assert found(other.reports) == [("jit_add", [])]


@pytest.mark.parametrize(("action", "select"), [("mend", None), ("warn", ["no-such-rule"])])
def test_an_unknown_word_installs_nothing(action: str, select: list[str] | None) -> None:
    with pytest.raises(UsageError):
        live.install(action, select)


class Halved(hlo_lint.Rule):
    """A rule whose fix is wrong: it writes a sum in place of a product.

    ## Why
    To see that nothing wrong goes on.
    """

    skip_fusion_bodies = False  # XLA:CPU hands the module over after fusion

    def check(self, computation: hlo_lint.Computation) -> hlo_lint.Findings:
        """Each product."""
        for product in computation.with_opcode("multiply"):
            yield hlo_lint.Finding(product, "a product")

    def fix(self, instruction: hlo_lint.Instruction, module: hlo_lint.Module) -> Fix:
        """A sum of the same operands."""
        place = module.span(instruction)
        text = instruction.text.replace("multiply", "add")
        return Fix("add", (Edit(place, text),), Safety.SAFE)


def test_a_fix_that_is_not_proven_is_refused() -> None:
    vector = jax.numpy.arange(4.0)
    with (
        live.install("fix", [Halved], platforms=["cpu"], verify=True) as checks,
        pytest.warns(live.LiveWarning) as caught,
    ):
        assert jax.jit(lambda x, y: x * y)(vector, vector).tolist() == [0, 1, 4, 9]
    assert not checks.mended
    assert "refused: halved at %" in str(caught[0].message)
    assert "not equal: executed with seed" in str(caught[0].message)


def test_a_fix_that_is_proven_goes_on() -> None:
    with live.install("fix", platforms=["cpu"], verify=True) as checks:
        compile_until_xla_misses_the_kernel("add_wrong_legacy")
    assert [str(verdict.proof.level) for verdict in checks.mended[0].verdicts] == ["structure"]
