"""The judges that a hunt asks for: each release of jax with each target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hlo_lint.apps.hunt.judge import ChipJudge, CpuJudge, Judge
from hlo_lint.apps.jax.capture.targets import target_of
from hlo_lint.xla.environments import Platform, environment_of, interpreter_at
from hlo_lint.xla.parser import XlaParser

CPU = "cpu"


@contextmanager
def judges_of(
    releases: Sequence[str],
    pythons: Sequence[str],
    targets: Sequence[str],
    *,
    passes: Sequence[str] = (),
    rules: bool = True,
    announce: Callable[[str], None] = lambda _: None,
) -> Iterator[dict[str, Judge]]:
    """The judges by release and target, `0.10.2 cpu`; of this Python where none is named.

    Raises:
        UsageError: for a release, a Python or a target that is not one.
        CaptureError: an environment cannot be made.
    """
    judges: dict[str, Judge] = {}
    with ExitStack() as stack:
        for target in targets or (CPU,):
            given: list[Path | None] = [Path(python) for python in pythons]
            platform = Platform.CPU
            if target != CPU:
                platform = Platform.TPU if target_of(target).is_tpu else Platform.GPU
            given += [environment_of(name, announce, platform).path for name in releases]
            for python in given or [None]:
                if target == CPU:
                    with XlaParser(python) as parser:
                        name = f"{parser.release} {CPU}"
                    judge: Judge = CpuJudge(python, passes=passes, rules=rules)
                else:
                    name = f"{interpreter_at(python).jax if python else 'installed'} {target}"
                    judge = ChipJudge(python, target_of(target), passes=passes, rules=rules)
                judges[name] = stack.enter_context(judge)
        yield judges
