"""Check each compilation of a dump separately: here, in other processes, or on other machines.

The result equals that of `Checker.check_dump`, but compilations of equal content are checked once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, starmap
from pathlib import Path
from typing import Any

from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.directory import Dump, Skipped
from hlo_lint.engine.executors import Executor, Work, WorkersLostError, open_executor
from hlo_lint.engine.input_size import PARALLEL_MIN_BYTES, cost_of, groups_of_equal_size
from hlo_lint.engine.parts import check_part, content_digest, moved, places, relocated
from hlo_lint.engine.reporter import Part, Result
from hlo_lint.engine.runner import Checker, Progress

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
) -> Result:
    """The result of `checker.check_dump`, by `jobs` processes or a cluster.

    Pipelines whose workers died are skipped.

    Raises:
        DumpError: the processes died before the first result, for example of too little memory.
    """
    # Texts that were given in memory or edited cannot be read by other processes.
    if any(file.is_read for compilation in dump for file in compilation.dumps):
        return checker.check_dump(dump, progress)
    check_folders = partial(checker.check_folders, dump.compilations)
    with open_executor(address, jobs, checker.task) as executor:
        parts = parts_of(dump.compilations, executor, progress, check_folders)
    for position, compilation in enumerate(dump):
        checker.reporter.add_part(parts[position])
        checker.logs += [compilation.dumps[log] for log in parts[position].logs]
    return checker.conclude(dump.skipped)


def parts_of(
    compilations: Sequence[Compilation],
    executor: Executor,
    progress: Progress = lambda _: None,
    meanwhile: Callable[[], None] = lambda: None,
) -> dict[int, Part]:
    """The part of each compilation, by position; compilations of equal content are checked once.

    `meanwhile` is called once, if possible while other processes check.
    """
    equal = _equal_to_earlier(compilations, executor)
    distinct = {
        position: compilation
        for position, compilation in enumerate(compilations)
        if position not in equal
    }
    parts: dict[int, Part] = {}
    try:
        # Parts from before an error are kept.
        parts.update(_checked(distinct, executor, progress, meanwhile))
    except WorkersLostError as error:
        if not parts:
            raise
        for position in distinct.keys() - parts:
            dumps = compilations[position].dumps
            lost = Result(skipped=[Skipped(str(dump.path), str(error), cut=True) for dump in dumps])
            parts[position] = Part(lost, frozenset(), frozenset(), (), ())
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


def _equal_to_earlier(compilations: Sequence[Compilation], executor: Executor) -> dict[int, int]:
    """For each compilation whose content is that of an earlier one, the position of the first."""
    alike = chain.from_iterable(groups_of_equal_size(compilations))
    to_read = {position: compilations[position] for position in sorted(alike)}
    if _is_for_here(to_read, executor, PARALLEL_MIN_BYTES):
        digests = {
            position: content_digest(executor.task, compilation)
            for position, compilation in to_read.items()
        }
    else:
        digests = dict(_mapped(content_digest, to_read, executor))
    first_of: dict[bytes, int] = {}
    equal: dict[int, int] = {}
    for position in to_read:
        digest = digests[position]
        if digest is not None:
            first = first_of.setdefault(digest, position)
            if first != position:
                equal[position] = first
    return equal


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
    """The result for each compilation; paths are sent as absolute paths, and mapped back."""
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
    filled = least
    for position in sorted(compilations, key=lambda position: (-costs[position], position)):
        if filled >= least:
            batches.append({})
            filled = 0
        batches[-1][position] = compilations[position]
        filled += costs[position]
    return batches
