"""Shapes of scans: carries, inputs, outputs."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lint.analysis.verifier.checks import on
from hlo_lint.analysis.verifier.scope import Scope, Violation
from hlo_lint.hlo.ir import Instruction
from hlo_lint.rules.base import Good
from hlo_lint.rules.verifier import VerifierRule


class BadScan(VerifierRule):
    """A scan whose step does not match its state, or a non-associative scan after expansion.

    ## Why
    A step takes a slice of each input and the carries, and returns a slice of each output and the
    carries (`HandleScan` in `xla/service/hlo_verifier.cc`). After layout-assignment only
    associative scans remain: scan_expander turns others into loops.
    """

    messages = ("Non-associative scan reached layout-sensitive HloVerifier",)
    table = """
        scan-dimension: ShapeVerifier::HandleScan
          scan: a single dimension
            step { ROOT t = (f32[], f32[]) tuple(f32[] x, f32[] c) }
            z = f32[] constant(0)
            ROOT r = (f32[8], f32[]) scan(f32[8,2] p, z), dimensions={0,1}, num_carries=1,  // error
                is_associative=true, to_apply=step
        scan-associative: ShapeVerifier::HandleScan
          scan: associative, after layout-assignment
            // hlo-lint: stage gpu post-layout
            step { ROOT t = (f32[], f32[]) tuple(f32[] x, f32[] c) }
            z = f32[] constant(0)
            ROOT r = (f32[8], f32[]) scan(f32[8] p, z), dimensions={0}, num_carries=1,  // error
                is_associative=false, to_apply=step
        scan-shape: ShapeVerifier::HandleScan (scan)
          scan: carries, inputs and outputs match its step
            step { ROOT t = (f32[], f32[]) tuple(f32[] x, f32[] c) }
            z = f32[] constant(0)
            ROOT r = (f32[8], f32[]) scan(f32[8] p, z), dimensions={0}, num_carries=3,  // error
                is_associative=true, to_apply=step
    """
    examples = (
        Good.entry("""
            step { ROOT t = (f32[], f32[]) tuple(f32[] x, f32[] c) }
            z = f32[] constant(0)
            ROOT r = (f32[8], f32[]) scan(f32[8] p, z), dimensions={0}, num_carries=1,
                is_associative=true, to_apply=step
        """),
    )

    @on("scan")
    def associative(self, scope: Scope, scan: Instruction) -> Iterator[Violation]:
        """Scans after layout-assignment are associative."""
        if not scope.stage.scan and scan.attribute_text("is_associative") != "true":
            message = "this scan after layout-assignment is not associative: expected a loop"
            yield Violation("scan-associative", scan, message)
