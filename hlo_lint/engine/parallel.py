"""Check each pipeline of a dump separately: from the cache, here, or on other machines.

The result equals that of `Checker.check_dump`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hlo_lint.dumps.directory import Dump, Skipped
from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.engine.executors import Executor, Work, WorkersLostError, open_executor
from hlo_lint.engine.input_size import PARALLEL_MIN_BYTES, cost_of
from hlo_lint.engine.parts import check_part, content_digest, moved, places, relocated, signature
from hlo_lint.engine.reporter import Part, Result
from hlo_lint.engine.runner import Checker, Progress

if TYPE_CHECKING:  # it needs sqlite3
    from hlo_lint.engine.cache.parts import CachedParts

_BATCH_COST = 2 << 20
"""The cost, in bytes, of small pipelines that are sent to a process together."""
_BATCHES_PER_JOB = 4
"""The least number of batches per job: with fewer, processes idle at the end."""


def check_in_parts(
    checker: Checker,
    dump: Dump,
    jobs: int = 1,
    progress: Progress = lambda _: None,
    cache: CachedParts | None = None,
    address: str | None = None,
) -> Result:
    """The result of `checker.check_dump`, by `jobs` processes or a cluster, and by a cache.

    Pipelines whose workers died are skipped.

    Raises:
        DumpError: the processes died before the first result, for example of too little memory.
    """
    # Texts that were given in memory or edited cannot be read by other processes.
    if any(file.is_read for pipeline in dump for file in pipeline.dumps):
        return checker.check_dump(dump, progress)
    check_folders = partial(checker.check_folders, dump.pipelines)
    with open_executor(address, jobs, checker.task) as executor:
        parts = parts_of(dict(enumerate(dump)), executor, progress, cache, check_folders)
    for position, pipeline in enumerate(dump):
        checker.reporter.add_part(parts[position])
        checker.logs += [pipeline.dumps[log] for log in parts[position].logs]
    return checker.conclude(dump.skipped)


def parts_of(
    pipelines: Mapping[int, Pipeline],
    executor: Executor,
    progress: Progress = lambda _: None,
    cache: CachedParts | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> dict[int, Part]:
    """The part of each pipeline, by position; pipelines with equal content are checked once.

    `meanwhile` is called once, if possible while other processes check.
    """
    digests = _digests(pipelines, executor, needs_all=cache is not None)
    parts: dict[int, Part] = {}
    if cache is not None:
        kept = cache.get(
            list(pipelines.values()), [digests.get(position) for position in pipelines]
        )
        parts = {
            position: part
            for position, part in zip(pipelines, kept, strict=True)
            if part is not None
        }
        for position in parts:
            progress(len(pipelines[position].dumps))
    first_of: dict[bytes, int] = {}
    copies: dict[int, int] = {}
    new: dict[int, Pipeline] = {}
    for position in pipelines:
        if position in parts:
            continue
        digest = digests.get(position)
        first = position if digest is None else first_of.setdefault(digest, position)
        if first == position:
            new[position] = pipelines[position]
        else:
            copies[position] = first
    try:
        for position, part in _checked(new, executor, progress, meanwhile):
            parts[position] = part
            if cache is not None:
                cache.put(pipelines[position], digests.get(position), part)
    except WorkersLostError as error:
        if not parts:
            raise
        unchecked = {position: pipelines[position] for position in new if position not in parts}
        parts |= {position: _lost(pipeline, str(error)) for position, pipeline in unchecked.items()}
    for position, first in copies.items():
        parts[position] = relocated(parts[first], places(pipelines[first], pipelines[position]))
        progress(len(pipelines[position].dumps))
    return parts


def _lost(pipeline: Pipeline, reason: str) -> Part:
    """The part of a pipeline that no worker has checked."""
    result = Result(skipped=[Skipped(str(dump.path), reason, cut=True) for dump in pipeline.dumps])
    return Part(result, frozenset(), frozenset(), (), ())


def _checked(
    pipelines: Mapping[int, Pipeline],
    executor: Executor,
    progress: Progress,
    meanwhile: Callable[[], None],
) -> Iterator[tuple[int, Part]]:
    if _is_for_here(pipelines, executor):
        meanwhile()
        for position, pipeline in pipelines.items():
            yield position, check_part(executor.task, pipeline, progress)
        return
    results = _mapped(check_part, pipelines, executor)
    meanwhile()
    for position, part in results:
        progress(len(pipelines[position].dumps))
        yield position, part


def _digests(
    pipelines: Mapping[int, Pipeline], executor: Executor, *, needs_all: bool
) -> dict[int, bytes | None]:
    """The digest of each pipeline; without a cache, only of pipelines that may be equal."""
    wanted = pipelines
    if not needs_all:
        alike: dict[tuple[object, ...], list[int]] = {}
        for position, pipeline in pipelines.items():
            alike.setdefault(signature(pipeline), []).append(position)
        wanted = {
            position: pipelines[position]
            for group in alike.values()
            if len(group) > 1
            for position in group
        }
    if _is_for_here(wanted, executor, PARALLEL_MIN_BYTES):
        return {
            position: content_digest(executor.task, pipeline)
            for position, pipeline in wanted.items()
        }
    return dict(_mapped(content_digest, wanted, executor))


def _is_for_here(pipelines: Mapping[int, Pipeline], executor: Executor, least: int = 0) -> bool:
    """True if this process does the work itself: local workers gain nothing below `least` bytes."""
    if not executor.is_local:
        return False
    few = executor.jobs < 2 or len(pipelines) < 2
    return few or sum(pipeline.size for pipeline in pipelines.values()) < least


def _mapped(
    work: Work, pipelines: Mapping[int, Pipeline], executor: Executor
) -> Iterator[tuple[int, Any]]:
    """The result for each pipeline; paths are sent as absolute paths, and mapped back."""
    batches = _batches(pipelines, executor.jobs)
    if executor.is_local:
        return executor.map(work, batches)
    there = {position: moved(pipeline, Path.absolute) for position, pipeline in pipelines.items()}

    def returned(position: int, value: Any) -> tuple[int, Any]:
        if isinstance(value, Part):
            value = relocated(value, places(there[position], pipelines[position]))
        return position, value

    absolute = [{position: there[position] for position in batch} for batch in batches]
    return starmap(returned, executor.map(work, absolute))


def _batches(pipelines: Mapping[int, Pipeline], jobs: int) -> list[dict[int, Pipeline]]:
    """Batches of pipelines, the largest alone and first, small pipelines together.

    Each message to a process takes time.
    """
    costs = {position: cost_of(pipeline) for position, pipeline in pipelines.items()}
    least = min(_BATCH_COST, sum(costs.values()) // (jobs * _BATCHES_PER_JOB))
    batches: list[dict[int, Pipeline]] = []
    filled = least
    for position in sorted(pipelines, key=lambda position: (-costs[position], position)):
        if filled >= least:
            batches.append({})
            filled = 0
        batches[-1][position] = pipelines[position]
        filled += costs[position]
    return batches
