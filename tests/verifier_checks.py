"""Checks of XLA's verifier that no rule of the family `verifier` has, for `docs/verifier.md`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final


def _rows(table: str) -> Mapping[str, tuple[str, str, str]]:
    lines = table.replace("\\\n", "").strip().splitlines()
    rows = ([cell.strip() for cell in line.split("|")] for line in lines)
    return {check: (place, demand, rest) for check, place, demand, rest in rows}


ELSEWHERE: Final = _rows(r"""
done-without-start | VerifyAsynchronousInstructionPairs | a done follows a start \
    | start-without-done
start-with-two-dones | VerifyAsynchronousInstructionPairs | a start has one done \
    | start-without-done
start-without-done | VerifyAsynchronousInstructionPairs | a start has a done | start-without-done
orphan-update | VerifyAsynchronousInstructionPairs | an update belongs to a chain \
    | start-without-done
reshape-is-bitcast | InstructionVerifier::HandleReshape \
    | a reshape outside of fusions moves no byte | reshape-moves-data
layout-changed | InstructionVerifier::Postprocess \
    | instructions that may not change a layout do not | layout-changed
slice-memory-space | InstructionVerifier::Postprocess \
    | slices do not lead from one memory to another | host-memory-leak
host-memory | InstructionVerifier::Postprocess | nothing is in host memory before it may be \
    | host-memory-leak
collective-layout | | layouts that collectives, sorts, reductions and dots give \
    | collective-not-outermost
layout-across-ranks | | layouts across ranks and in tuples | layout-changed
""")
"""Checks of rules in other families: the place in `hlo_verifier.cc`, the demand, and the rule."""

LEFT_OUT: Final = _rows(r"""
sparse-convolution | ShapeVerifier::HandleConvolution | convolution: operands of sparsity \
    | no supported release prints a sparse convolution, so that its inference is unknown here
async-thread | CheckAsyncOpComputationThreadName \
    | asynchronous operations run on the thread of their computation \
    | XLA's parser puts the computation on the thread of its start
fused-reshape | | reshapes in fusions move no byte | a rule about layouts, see the family `layout`
bitcast-meaning | | the meaning of a bitcast \
    | a bitcast of equal bytes is what it says, and XLA makes such ones in any order
channel-shared | | channels that several kinds of collectives share \
    | jax itself gives every collective of a `shard_map` channel 1
buffer-overlap | | buffers that overlap | needs a buffer assignment, see the family `memory`
""")
"""Checks that no rule has: the place in `hlo_verifier.cc`, the demand, and why."""
