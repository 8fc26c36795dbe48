"""Views that no other test of the engine looks at."""

from __future__ import annotations

import hlo_lint
from hlo_lint import Findings, PassPair, Rule
from hlo_lint.engine.views import VIEWS
from hlo_lint.rules.findings import Finding
from tests.conftest import ROOT

CRASH = ROOT / "fixtures/dumps/gpu-jax0.10.0/cublaslt_fission_crash"


class ComputationAdded(Rule):
    """A computation that a pass added."""

    def check(self, pair: PassPair) -> Findings:
        kept = {computation.name for computation in pair.before.computations}
        for computation in pair.added:
            if computation.name not in kept and computation.root is not None:
                yield Finding(computation.root, f"{pair.pass_name} added {computation.name}")


def test_a_pair_is_the_input_and_the_output_of_one_pass() -> None:
    findings = hlo_lint.lint(CRASH, select=[ComputationAdded]).findings
    assert findings
    for finding in findings:
        assert finding.introduced_by is not None
        assert finding.introduced_by.path == finding.path
        assert finding.message.startswith(f"{finding.introduced_by.pass_name} added")
        assert f"after_{finding.introduced_by.pass_name}." in finding.path


def test_every_view_has_a_line_for_those_who_write_rules() -> None:
    page = (ROOT / "docs/writing-rules.md").read_text("utf-8")
    for name, view in VIEWS.items():
        assert view.about
        assert f"`{name}`" in page
