"""A hunt as a test: `hunt(passes=["my-pass"], minutes=1)` raises where a pass is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from hlo_lint.apps.hunt.campaign import Campaign
from hlo_lint.apps.hunt.causes import BugCause
from hlo_lint.apps.hunt.judges import judges_of
from hlo_lint.xla.limits import Deadline


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
        jax: a release; `python` an interpreter with jaxlib; by default this one.
        target: `cpu`, or a chip to compile for: `h200`, `v5e`.
        seed: of the first module.
        folder: keep verdicts and causes here.

    Raises:
        AssertionError: for what is found, with the reduced module of each cause.
    """
    with TemporaryDirectory(prefix="hlo_lint_") as temporary:
        campaign = Campaign.at(Path(folder or temporary))
        pythons = [] if python is None else [str(python)]
        releases = [] if jax is None else [jax]
        with judges_of(releases, pythons, [target], passes=passes, rules=False) as judges:
            seeds = range(max(seed, campaign.last + 1), 1 << 62)
            campaign.run(judges, Deadline(60 * minutes), campaign.generated(seeds))
            campaign.settle(judges, Deadline(60 * minutes))
        new = {
            cause.signature: cause.text
            for cause in campaign.settled.values()
            if isinstance(cause, BugCause) and not cause.issue
        }
        unsettled = [row[1] for row in campaign.table() if row[-1] == "not reduced yet"]
        assert not new, "\n\n".join(f"{of}\n{text}" for of, text in new.items())
        assert not unsettled, "\n".join(unsettled)
        return campaign.judged
