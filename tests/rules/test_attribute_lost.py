"""Steps in which a property of an instruction must arrive, or need not."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlo_lint
from hlo_lint.apps.testing import write_example
from hlo_lint.rules.base import Bad, Good

STEPS = (
    Bad.step("""
        HloModule m, num_partitions=4
          p = f32[8] parameter(0), sharding={devices=[4]<=[4]}
        - ROOT n = f32[8] negate(p), sharding={manual}
        + ROOT n = f32[8] negate(p), sharding={replicated}  // error
    """),
    Bad.step("""
          k = f32[8] copy(f32[8] p)
        - ROOT c = f32[8] custom-call(k), custom_call_target="t",
        -     backend_config={"operation_queue_id":"2"}
        + ROOT c = f32[8] custom-call(k), custom_call_target="t",  // error
        +     backend_config={"operation_queue_id":"0"}
    """),
    Bad.step(
        """
          k = f32[8] copy(f32[8] p)
        - ROOT c = f32[8] custom-call(k), custom_call_target="t", backend_config="b"
        + ROOT c = f32[8] custom-call(k), custom_call_target="t"  // error
        """,
        by="shardy-xla",
    ),
    Bad.step("""
          c = f32[8] custom-call(f32[8] p), custom_call_target="t", backend_config="b"
        - ROOT n = f32[8] negate(c)
        + c.clone = f32[8] custom-call(c), custom_call_target="t"  // error
        + ROOT n = f32[8] negate(c.clone)
    """),
    Bad.step("""
        add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
        - ROOT r = f32[8] all-reduce(f32[8] p), to_apply=add, channel_id=1, metadata={op_name="f"}
        + s = f32[8] all-reduce-start(f32[8] p), to_apply=add, channel_id=1  // error
        + ROOT d = f32[8] all-reduce-done(s)
    """),
    Bad.step("""
        - d = f32[8] dot(f32[8,8] p, f32[8] q), lhs_contracting_dims={1}, rhs_contracting_dims={0},
        -     operand_precision={highest,highest}
        + d = f32[8] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}  // error
          ROOT n = f32[8] negate(d)
    """),
    Good.step("""
        - d = f32[8] dot(f32[8,8] p, f32[8] q), lhs_contracting_dims={1}, rhs_contracting_dims={0},
        -     algorithm=dot_bf16_bf16_f32
        + d = f32[8] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
          ROOT n = f32[8] negate(d)
    """),
    Good.step("""
        - k = f32[8] negate(f32[8] p)
        - ROOT c = f32[8] custom-call(p), custom_call_target="t", backend_config="b"
        + s = ((f32[8]), f32[8], u32[]) custom-call-start(p), custom_call_target="t"
        + ROOT d = f32[8] custom-call-done(s)
    """),
    Bad.step("""
        +f { a = f32[8] parameter(0) ROOT r = f32[8] custom-call(a), custom_call_target="t" }
        - c = f32[8] custom-call(f32[8] p), custom_call_target="t", backend_config="b"
        - ROOT n = f32[8] negate(c)
        + s = ((f32[8]), f32[8], u32[]) async-start(f32[8] p), calls=f  // error
        + d = f32[8] async-done(s)
        + ROOT n = f32[8] negate(d)
    """),
    Bad.step("""
        f { a = f32[8] parameter(0) ROOT s = f32[8] negate(a) }
        - ROOT c = f32[8] fusion(f32[8] p), kind=kCustom, calls=f,
        -     backend_config={"kind":"__triton","block_level_fusion_config":{}}
        + ROOT c = f32[8] fusion(f32[8] p), kind=kCustom, calls=f,  // error
        +     backend_config={"kind":"__triton"}
    """),
    Good.step("""
        +f {
        + x = f32[8,8] parameter(0)
        + ROOT d.3 = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        +}
          p = f32[8,8] parameter(0)
        - d.1 = f32[8,8] dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        - ROOT d.2 = f32[8,8] dot(d.1, p), lhs_contracting_dims={1}, rhs_contracting_dims={0},
        -     operand_precision={highest,highest}
        + g = f32[8,8] fusion(p), kind=kOutput, calls=f
        + ROOT d.2 = f32[8,8] dot(g, p), lhs_contracting_dims={1}, rhs_contracting_dims={0},
        +     operand_precision={highest,highest}
    """),
    Good.step("""
        - t = (f32[2], f32[2]) tuple(f32[2] p, f32[2] q), frontend_attributes={a="b"}
        - s = (f32[2], (f32[2], f32[2])) tuple(p, t)
        - ROOT c = f32[2] custom-call(s), custom_call_target="k"
        + u = (f32[2], f32[2], f32[2]) tuple(p, p, q)
        + ROOT c = f32[2] custom-call(u), custom_call_target="k"
    """),
    Good.step("""
        f { a = f32[8] parameter(0) ROOT s = f32[8] negate(a) }
        - ROOT c = f32[8] fusion(f32[8] p), kind=kCustom, calls=f, backend_config="b"
        + ROOT c = f32[8] fusion(f32[8] p), kind=kLoop, calls=f
    """),
    Good.step("""
        HloModule m, num_partitions=2
        - x = f32[8] collective-permute(f32[8] p), channel_id=1, source_target_pairs={{0,1},{1,0}},
        -     frontend_attributes={_xla_send_recv_validation="{{0,2},{1,3}}"}
        + b = f32[8] collective-permute(f32[8] p), channel_id=1, source_target_pairs={{1,0}},
        +     frontend_attributes={_xla_send_recv_validation="{{1,3}}"}
        + f = f32[8] collective-permute(p), channel_id=2, source_target_pairs={{0,1}},
        +     frontend_attributes={_xla_send_recv_validation="{{0,2}}"}
        + d = u32[] partition-id()
        + t = pred[] convert(d)
        + x = f32[8] select(t, f, b)
          ROOT n = f32[8] negate(x)
    """),
    Good.step("""
        HloModule m, num_partitions=2
        - x = f32[8] collective-permute(f32[8] p), channel_id=1, source_target_pairs={{0,1},{1,0}},
        -     frontend_attributes={_xla_send_recv_validation="{{0,2},{1,3}}"}
        - ROOT n = f32[8] negate(x)
        + x = f32[8] collective-permute(f32[8] p), channel_id=1, source_target_pairs={{0,1},{1,0}},
        +     frontend_attributes={_xla_send_recv_validation="{{0,1},{1,1}}"}
        + x.clone = f32[8] collective-permute(x), channel_id=2, source_target_pairs={{0,1},{1,0}},
        +     frontend_attributes={_xla_send_recv_validation="{{0,1},{0,1}}"}
        + ROOT n = f32[8] negate(x.clone)
    """),
)


@pytest.mark.parametrize("step", STEPS)
def test_a_lost_attribute_is_found_where_it_should_arrive(step: Bad | Good, tmp_path: Path) -> None:
    found = hlo_lint.lint(write_example(step, tmp_path), ["attribute-lost"]).findings
    assert [each.line for each in found] == (step.marked if isinstance(step, Bad) else [])
