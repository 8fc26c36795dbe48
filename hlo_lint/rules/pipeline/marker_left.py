"""Marker custom calls that are left after the pass that should remove them."""

from __future__ import annotations

from typing import Final

from hlo_lint.analysis.calls import instructions_of
from hlo_lint.analysis.kinds import types_in
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.analysis.side_effects import MARKERS, SHARDY
from hlo_lint.analysis.verifier.scope import header_span
from hlo_lint.hlo.ir import Computation
from hlo_lint.rules.base import Bad, Finding, Findings, Good, RefusedByXla, Rule, Severity, Stage

_PROGRAM = """
ROOT c = f32[8]{{0}} custom-call(f32[8]{{0}} p), custom_call_target="{target}"  // error
"""
_REMOVERS: Final = (
    "the partitioner",
    "host-offloader",
    "convert-memory-placement-to-internal-annotations",
)
"""Passes that remove all of their markers when they run."""


class MarkerLeft(Rule):
    """A custom call that marks a value for a pass, left after that pass or in a final module.

    ## Why
    Frontends mark values with custom calls that compute nothing: a move to the host, a sharding, a
    layout. A pass removes each of these markers. If that pass did not run, or did not handle a
    marker, the call stays, and the program fails when it is loaded or run, because no such custom
    call is registered. The partitioner removes all of its markers: it did not partition a value
    whose marker is left. The same holds for host-offloader and for the pass that turns placements
    into markers of host-offloader. Once host-offloader has removed the last `MoveToHost`, some
    value must be in host memory.
    """

    severity = Severity.ERROR
    opcodes = frozenset({"custom-call"})
    evidence = (
        RefusedByXla("No registered implementation for custom call to MoveToHost", passes="none"),
    )
    examples = (
        Bad.final(_PROGRAM.format(target="MoveToHost")),
        Bad.step(
            """
            - c = f32[8] custom-call(f32[8] p), custom_call_target="Sharding", sharding={replicated}
            - ROOT n = f32[8] negate(c)
            + ROOT c = f32[8] custom-call(f32[8] p), custom_call_target="Sharding"  // error
            """,
            by="spmd-partitioning",
        ),
        Bad.step(
            """
            HloModule m  // error
            - h = f32[8]{0} custom-call(f32[8]{0} p), custom_call_target="MoveToHost"
            - d = f32[8]{0} custom-call(h), custom_call_target="MoveToDevice"
            - ROOT n = f32[8]{0} negate(d)
            + ROOT n = f32[8]{0} negate(f32[8]{0} p)
            """,
            by="host-offloader",
        ),
        Good.final(_PROGRAM.format(target="my_kernel")),
    )

    def check_removers(self, pair: PassPair) -> Findings:
        """Markers left by the partitioner, or by any other pass that should remove them."""
        name = pair.pass_name
        remover = "the partitioner" if name == "spmd-partitioning" else name
        if remover not in _REMOVERS:
            return
        marks, left = (
            [
                call
                for call in instructions_of(module, "custom-call")
                if MARKERS.get(call.custom_call_target) == remover
            ]
            for module in (pair.before, pair.after)
        )
        for call in left:
            message = f"{name} did not remove this {call.custom_call_target}"
            yield Finding(call, message, severity=Severity.WARNING)
        moves = [call.name for call in marks if call.custom_call_target == "MoveToHost"]
        if moves and not left and not any("S(5)" in text for text in types_in(pair.after)):
            message = f"{name} removed %{moves[0]}, a MoveToHost, but no value is in host memory"
            yield Finding(header_span(pair.after), message, severity=Severity.WARNING)

    def check(self, computation: Computation, stage: Stage) -> Findings:
        """Markers left in a final module."""
        # A text of unknown stage may be from before host-offloader, which reads MoveToHost.
        if not stage.final or stage.assumed:
            return
        for call in computation.with_opcode("custom-call"):
            target = call.custom_call_target
            remover = "the Shardy partitioner" if target.startswith(SHARDY) else MARKERS.get(target)
            if remover is not None:
                yield Finding(call, f"{remover} should have removed this {target}")
