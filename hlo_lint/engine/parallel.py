"""Check each compilation of a dump separately: from the cache, here, or in other processes.

The result equals that of `Checker.check_dump`, but compilations of equal content are checked once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.directory import Dump, Skipped
from hlo_lint.engine.executors import Executor, Work, WorkersLostError, open_executor
from hlo_lint.engine.input_size import PARALLEL_MIN_BYTES, cost_of, groups_of_equal_size
from hlo_lint.engine.parts import check_part, content_digest, moved, places, relocated
from hlo_lint.engine.reporter import Part, Result
from hlo_lint.engine.runner import Checker, Progress

if TYPE_CHECKING:  # it needs sqlite3
    from hlo_lint.engine.cache.cached_parts import CachedParts

_BATCH_COST = 2 << 20
"""The cost, in bytes, of small compilations that are sent to a process together."""
_BATCHES_PER_JOB = 4
"""The least number of batches per job: with fewer, processes idle at the end."""


def check_in_parts(
    checker: Checker,
    dump: Dump,
    jobs: int = 1,
    progress: Progress = lambda _: None,
    address: str | None = None,
    cache: CachedParts | None = None,
) -> Result:
    """The result of `checker.check_dump`, by `jobs` processes or a cluster, and by a cache.

    The dumps are files that `is_checked_in_parts` has accepted: other processes read them again.
    Compilations whose workers died are skipped.

    Raises:
        DumpError: the processes died before the first result, for example of too little memory.
    """
    check_folders = partial(checker.check_folders, dump.compilations)
    with open_executor(address, jobs, checker.task) as executor:
        parts = parts_of(dump.compilations, executor, progress, check_folders, cache)
    for position, compilation in enumerate(dump):
        checker.reporter.add_part(parts[position])
        checker.logs += [compilation.dumps[log] for log in parts[position].logs]
    return checker.conclude(dump.skipped)


def parts_of(
    compilations: Sequence[Compilation],
    executor: Executor,
    progress: Progress = lambda _: None,
    meanwhile: Callable[[], None] = lambda: None,
    cache: CachedParts | None = None,
) -> dict[int, Part]:
    """The part of each compilation, by position; compilations of equal content are checked once.

    `meanwhile` is called once, if possible while other processes check.
    """
    digests = _digests(compilations, executor, needs_all=cache is not None)
    parts = {} if cache is None else cache.get(compilations, digests)
    for position in parts:
        progress(len(compilations[position].dumps))
    first_of: dict[bytes, int] = {}
    equal: dict[int, int] = {}
    distinct: dict[int, Compilation] = {}
    for position, compilation in enumerate(compilations):
        if position in parts:
            continue
        digest = digests.get(position)
        first = position if digest is None else first_of.setdefault(digest, position)
        if first == position:
            distinct[position] = compilation
        else:
            equal[position] = first
    try:
        for position, part in _checked(distinct, executor, progress, meanwhile):
            parts[position] = part
            if cache is not None:
                cache.put(compilations[position], digests[position], part)
    except WorkersLostError as error:
        if not parts:
            raise
        for position in distinct.keys() - parts:
            dumps = compilations[position].dumps
            lost = Result(skipped=[Skipped(str(dump.path), str(error), cut=True) for dump in dumps])
            parts[position] = Part(
                lost, unread=frozenset(), of_modules=frozenset(), of_helpers=(), logs=()
            )
    for position, earlier in equal.items():
        copy = compilations[position]
        parts[position] = relocated(parts[earlier], places(compilations[earlier], copy))
        progress(len(copy.dumps))
    return parts


def _checked(
    compilations: Mapping[int, Compilation],
    executor: Executor,
    progress: Progress,
    meanwhile: Callable[[], None],
) -> Iterator[tuple[int, Part]]:
    if _is_for_here(compilations, executor):
        meanwhile()
        for position, compilation in compilations.items():
            yield position, check_part(executor.task, compilation, progress)
        return
    results = _mapped(check_part, compilations, executor)
    meanwhile()
    for position, part in results:
        progress(len(compilations[position].dumps))
        yield position, part


def _digests(
    compilations: Sequence[Compilation], executor: Executor, *, needs_all: bool
) -> dict[int, bytes | None]:
    """The digests of the content of all compilations, or only of those that may be equal."""
    positions: Iterable[int] = range(len(compilations))
    if not needs_all:
        positions = sorted(chain.from_iterable(groups_of_equal_size(compilations)))
    to_read = {position: compilations[position] for position in positions}
    if _is_for_here(to_read, executor, PARALLEL_MIN_BYTES):
        return {
            position: content_digest(executor.task, compilation)
            for position, compilation in to_read.items()
        }
    return dict(_mapped(content_digest, to_read, executor))


def _is_for_here(
    compilations: Mapping[int, Compilation], executor: Executor, least: int = 0
) -> bool:
    """True if this process does the work itself: local workers gain nothing below `least` bytes."""
    if not executor.is_local:
        return False
    few = executor.jobs < 2 or len(compilations) < 2
    return few or sum(compilation.size for compilation in compilations.values()) < least


def _mapped(
    work: Work, compilations: Mapping[int, Compilation], executor: Executor
) -> Iterator[tuple[int, Any]]:
    """The result for each compilation; a cluster gets absolute paths, which are mapped back."""
    batches = _batches(compilations, executor.jobs)
    if executor.is_local:
        return executor.map(work, batches)
    there = {
        position: moved(compilation, Path.absolute)
        for position, compilation in compilations.items()
    }

    def returned(position: int, value: Any) -> tuple[int, Any]:
        if isinstance(value, Part):
            value = relocated(value, places(there[position], compilations[position]))
        return position, value

    absolute = [{position: there[position] for position in batch} for batch in batches]
    return starmap(returned, executor.map(work, absolute))


def _batches(compilations: Mapping[int, Compilation], jobs: int) -> list[dict[int, Compilation]]:
    """Batches of compilations, the largest alone and first, small compilations together.

    Each message to a process takes time.
    """
    costs = {position: cost_of(compilation) for position, compilation in compilations.items()}
    least = min(_BATCH_COST, sum(costs.values()) // (jobs * _BATCHES_PER_JOB))
    batches: list[dict[int, Compilation]] = []
    filled = least  # so that the first compilation begins a batch
    for position in sorted(compilations, key=lambda position: (-costs[position], position)):
        if filled >= least:
            batches.append({})
            filled = 0
        batches[-1][position] = compilations[position]
        filled += costs[position]
    return batches
