"""Checks the pipelines of a dump each on its own: from the cache, here, or on other machines.

The result is that of `Checker.check_dump`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hlo_lint.dumps.directory import Dump
from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.engine.executors import Executor, Work, open_executor
from hlo_lint.engine.input_size import PARALLEL_MIN_BYTES, cost_of
from hlo_lint.engine.parts import check_part, content_digest, moved, places, relocated, signature
from hlo_lint.engine.reporter import Part, Result
from hlo_lint.engine.runner import Checker, Progress

if TYPE_CHECKING:  # it needs sqlite3
    from hlo_lint.engine.cache.parts import CachedParts

_BATCH_COST = 2 << 20
"""Cost, in bytes, of small pipelines that are sent to a process together."""
_BATCHES_PER_JOB = 4
"""With fewer batches the last one would be waited for."""


def check_in_parts(
    checker: Checker,
    dump: Dump,
    jobs: int = 1,
    progress: Progress = lambda _: None,
    cache: CachedParts | None = None,
    address: str | None = None,
) -> Result:
    """The result of `checker.check_dump`, by that many processes or a cluster, and by a cache.

    Raises:
        DumpError: where a process dies, as it does where memory is short.
    """
    # Texts that came from elsewhere, or were changed, stay here.
    is_read = any(file.is_read for pipeline in dump for file in pipeline.dumps)
    if is_read or (cache is None and address is None and jobs < 2):
        return checker.check_dump(dump, progress)
    check_folders = partial(checker.check_folders, dump.pipelines)
    with open_executor(address, jobs, checker.task) as executor:
        parts = parts_of(dict(enumerate(dump)), executor, progress, cache, check_folders)
    for at, pipeline in enumerate(dump):
        checker.reporter.add_part(parts[at])
        checker.logs += [pipeline.dumps[log] for log in parts[at].logs]
    return checker.conclude(dump.skipped)


def parts_of(
    pipelines: Mapping[int, Pipeline],
    executor: Executor,
    progress: Progress = lambda _: None,
    cache: CachedParts | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> dict[int, Part]:
    """The part of each pipeline, by its position: files of equal content are checked once.

    `meanwhile` is called once, where possible while other processes check.
    """
    digests = _digests(pipelines, executor, needs_all=cache is not None)
    parts: dict[int, Part] = {}
    if cache is not None:
        kept = cache.get(list(pipelines.values()), [digests.get(at) for at in pipelines])
        parts = {at: part for at, part in zip(pipelines, kept, strict=True) if part is not None}
        for at in parts:
            progress(len(pipelines[at].dumps))
    first_of: dict[bytes, int] = {}
    copies: dict[int, int] = {}
    new: dict[int, Pipeline] = {}
    for at in pipelines:
        if at in parts:
            continue
        digest = digests.get(at)
        first = at if digest is None else first_of.setdefault(digest, at)
        if first == at:
            new[at] = pipelines[at]
        else:
            copies[at] = first
    for at, part in _checked(new, executor, progress, meanwhile):
        parts[at] = part
        if cache is not None:
            cache.put(pipelines[at], digests.get(at), part)
    for at, first in copies.items():
        parts[at] = relocated(parts[first], places(pipelines[first], pipelines[at]))
        progress(len(pipelines[at].dumps))
    return parts


def _checked(
    pipelines: Mapping[int, Pipeline],
    executor: Executor,
    progress: Progress,
    meanwhile: Callable[[], None],
) -> Iterator[tuple[int, Part]]:
    if executor.is_local and (executor.jobs < 2 or len(pipelines) < 2):
        meanwhile()
        for at, pipeline in pipelines.items():
            yield at, check_part(executor.task, pipeline, progress)
        return
    results = _mapped(check_part, pipelines, executor)
    meanwhile()
    for at, part in results:
        progress(len(pipelines[at].dumps))
        yield at, part


def _digests(
    pipelines: Mapping[int, Pipeline], executor: Executor, *, needs_all: bool
) -> dict[int, bytes | None]:
    """The digest of each content; without a cache, of those alone that may be equal to another."""
    wanted = pipelines
    if not needs_all:
        alike: dict[tuple[object, ...], list[int]] = {}
        for at, pipeline in pipelines.items():
            alike.setdefault(signature(pipeline), []).append(at)
        wanted = {at: pipelines[at] for group in alike.values() if len(group) > 1 for at in group}
    here = executor.is_local and executor.jobs < 2
    size = sum(pipeline.size for pipeline in wanted.values())
    if here or (executor.is_local and size < PARALLEL_MIN_BYTES):
        return {at: content_digest(executor.task, pipeline) for at, pipeline in wanted.items()}
    return dict(_mapped(content_digest, wanted, executor))


def _mapped(
    work: Work, pipelines: Mapping[int, Pipeline], executor: Executor
) -> Iterator[tuple[int, Any]]:
    """The result for each pipeline; elsewhere paths are absolute, and come back as they were."""
    batches = _batches(pipelines, executor.jobs)
    if executor.is_local:
        return executor.map(work, batches)
    there = {at: moved(pipeline, Path.absolute) for at, pipeline in pipelines.items()}

    def returned(at: int, value: Any) -> tuple[int, Any]:
        if isinstance(value, Part):
            value = relocated(value, places(there[at], pipelines[at]))
        return at, value

    absolute = [{at: there[at] for at in batch} for batch in batches]
    return starmap(returned, executor.map(work, absolute))


def _batches(pipelines: Mapping[int, Pipeline], jobs: int) -> list[dict[int, Pipeline]]:
    """The largest first, each on its own; small ones together, since each message takes time."""
    costs = {at: cost_of(pipeline) for at, pipeline in pipelines.items()}
    least = min(_BATCH_COST, sum(costs.values()) // (jobs * _BATCHES_PER_JOB))
    batches: list[dict[int, Pipeline]] = []
    filled = least
    for at in sorted(pipelines, key=lambda at: (-costs[at], at)):
        if filled >= least:
            batches.append({})
            filled = 0
        batches[-1][at] = pipelines[at]
        filled += costs[at]
    return batches
