"""A hunt as a test: `hunt(passes=["my-pass"], minutes=1)` raises where a pass is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from hlo_lint.apps.hunt.campaign import HuntPlan
from hlo_lint.apps.hunt.causes import BugCause
from hlo_lint.apps.hunt.judge import compilers_of


def hunt(
    *,
    passes: Sequence[str] = (),
    minutes: float = 1.0,
    jax: str | None = None,
    python: str | Path | None = None,
    target: str = "cpu",
    seed: int = 0,
    folder: str | Path | None = None,
) -> int:
    """Judge modules for some minutes; the number of modules that were judged.

    Args:
        passes: run these passes of XLA, and no other; by default all.
        minutes: the time for all of it.
        jax: a release; `python` an interpreter with jaxlib; by default this one.
        target: `cpu`, `gpu`, or a chip to compile for: `h200`, `v5e`.
        seed: of the first module.
        folder: keep verdicts and causes here.

    Raises:
        AssertionError: for what is found, with the reduced module of each cause.
    """
    with TemporaryDirectory(prefix="hlo_lint_") as temporary:
        compilers = tuple(compilers_of([jax] if jax else [], [python] if python else [], [target]))
        place = Path(folder or temporary)
        plan = HuntPlan(place, compilers, minutes, tuple(passes), seed, rules=False)
        campaign = plan.run()
        new = [
            f"{cause.signature}\n{cause.text}"
            for cause in campaign.settled.values()
            if isinstance(cause, BugCause) and not cause.issue
        ]
        unsettled = [row[1] for row in campaign.table() if row[-1] == "not reduced yet"]
        assert not new + unsettled, "\n\n".join(new + unsettled)
        return len(campaign.seeds)
