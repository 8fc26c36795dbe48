"""Modules that jax prints before layout-assignment, and after it: the text shows which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hlo_lint.dumps.layout_evidence import Evidence, evidence_in
from hlo_lint.hlo.parser.module import parse_file
from tests.texts import entry

jax = pytest.importorskip("jax")
jnp, linalg = jax.numpy, jax.numpy.linalg


def solve(x: Any) -> Any:
    return jax.scipy.linalg.lu_solve(jax.scipy.linalg.lu_factor(x), x.T)


@pytest.mark.parametrize(
    "function", [solve, linalg.cholesky, linalg.svd, linalg.qr, linalg.eigh, lambda x: x.T.ravel()]
)
def test_jax_prints_layouts_that_bind_once_it_has_compiled(function: Callable[[Any], Any]) -> None:
    lowered = jax.jit(function).lower(jnp.ones((3, 3), jnp.float32))
    assert evidence_in(parse_file(lowered.as_text("hlo"))).binds is False
    assert evidence_in(parse_file(lowered.compile().as_text())).binds is True


PINNED = """
  p = f32[2,3]{{1,0}} parameter(0)
  c = f32[2,3]{{0,1}} custom-call(p), custom_call_target="f"{constraints}
  ROOT n = f32[2,3]{order} {opcode}(c)
"""
CONSTRAINTS = ", operand_layout_constraints={f32[2,3]{1,0}}"


@pytest.mark.parametrize(
    ("constraints", "opcode", "order", "bind"),
    [
        pytest.param(CONSTRAINTS, "negate", "{0,1}", False, id="its kernel needs the order"),
        pytest.param(CONSTRAINTS, "copy", "{0,1}", False, id="a copy keeps the order"),
        pytest.param(CONSTRAINTS, "copy", "{1,0}", None, id="a copy changes the order"),
        pytest.param("", "negate", "{0,1}", None, id="nothing asks for the order"),
    ],
)
def test_the_order_of_a_custom_call(
    constraints: str, opcode: str, order: str, bind: bool | None
) -> None:
    body = PINNED.format(constraints=constraints, opcode=opcode, order=order)
    assert evidence_in(parse_file(entry(body))).binds is bind


CALLED = """\
HloModule m

{computation} {{ x = f32[2,3]{{1,0}} parameter(0) ROOT y = f32[2,3]{{1,0}} negate(x) }}

ENTRY e {{
  p = f32[2,3]{{1,0}} parameter(0)
  c = f32[2,3]{{0,1}} copy(p)
  d = f32[2,3]{{1,0}} copy(c)
  k = f32[2,3]{{1,0}} {line}
  ROOT n = f32[2,3]{{1,0}} negate(k)
}}
"""
"""The copies change an order, as hand-written stubs in models that XLA benchmarks do."""


@pytest.mark.parametrize(
    ("line", "evidence"),
    [
        ("negate(d)", Evidence.NOT_INFERRED),
        ("call(d), to_apply=f", Evidence.UNASSIGNED),
        ('call(d), to_apply=f, frontend_attributes={inlineable="false"}', Evidence.NOT_INFERRED),
        ("call(d), to_apply=parallel_f", Evidence.NOT_INFERRED),
        ('custom-call(d), custom_call_target="Sharding"', Evidence.UNASSIGNED),
        ("fusion(d), kind=kLoop, calls=f", Evidence.LATER_PASSES),
    ],
)
def test_what_passes_remove_before_layout_assignment_decides(line: str, evidence: Evidence) -> None:
    computation = "parallel_f" if "parallel_f" in line else "f"
    text = CALLED.format(computation=computation, line=line)
    assert evidence_in(parse_file(text)) is evidence
