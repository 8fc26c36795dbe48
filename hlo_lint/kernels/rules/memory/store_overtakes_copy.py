"""Stores to shared memory that race with asynchronous copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule
from hlo_lint.rules.evidence import MeasuredHarm
from hlo_lint.text.edits import Edit, Fix, Safety
from hlo_lint.text.source import Span

if TYPE_CHECKING:  # loaded where there is PTX
    from hlo_lint.kernels.ptx import Ptx

_KERNEL = """
.version 8.0
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 smem[];

.visible .entry k(.param .u64 p)
{{
\t.reg .b32 \t%r<4>;
\t.reg .b64 \t%rd<3>;
\tld.param.u64 \t%rd1, [p];
\tmov.u32 \t%r1, smem;
\tmov.u32 \t%r2, 0;
\tcp.async.cg.shared.global [%r1], [%rd1], 16;
\tcp.async.commit_group;
{wait}\tbar.sync \t0;
\tst.shared.b32 \t[%r1], %r2;  // error
\tret;
}}
"""


class StoreOvertakesCopy(Rule):
    """A store to shared memory that a cp.async may still be filling.

    ## Why
    A `cp.async` writes shared memory asynchronously until a `wait_group` completes it; a barrier
    does not wait for it. A pipelined kernel that reuses its buffers after the loop, for example in
    its epilogue, must wait for copies that were started but never used. Without the wait, a late
    copy overwrites the new data: rarely, and only for some shapes.

    ## Fix
    Waits for all copies before the barrier that leads to the store. It costs the copies' latency.
    """

    evidence = (
        MeasuredHarm(
            "On an A100 and an H100 a matrix product of NVIDIA/Fuser with this race has about 10 "
            "wrong elements in a million.",
            "ptx/last_wait_removed/triton_sm80_three_stages.ptx",
        ),
    )
    examples = (
        Bad(_KERNEL.format(wait=""), fixed=_KERNEL.format(wait="\tcp.async.wait_group 0;\n")),
        Good(_KERNEL.format(wait="\tcp.async.wait_group 0;\n")),
    )

    def check(self, ptx: Ptx) -> Findings:
        """Stores to memory that a copy in flight may still write."""
        from hlo_lint.kernels.ptx import hazards, insert_wait

        for hazard in hazards(ptx):
            offset, text = insert_wait(ptx.text, hazard)
            edit = Edit(Span(offset, offset), text)
            # Without a barrier in between, the wait covers only the thread's own copies.
            safety = Safety.UNSAFE if hazard.before == hazard.span else Safety.SAFE
            fix = Fix("wait for the copies before the barrier", (edit,), safety)
            yield Finding(hazard.span, hazard.message, notes=hazard.notes, fix=fix)
