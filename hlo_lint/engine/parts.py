"""The result of a compilation as a value that can be sent, then moved to other paths."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Final

import hlo_lint
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.directory import Skipped
from hlo_lint.dumps.pass_dump import new_dump
from hlo_lint.engine.reporter import Part
from hlo_lint.engine.runner import Checker, Progress, Task
from hlo_lint.engine.suppressions.comments import CheckedFile, Comment
from hlo_lint.text.errors import DumpError
from hlo_lint.text.stored import on_disk

DIGEST_BYTES: Final = 20
_CHUNK_BYTES: Final = 1 << 20


def check_part(task: Task, compilation: Compilation, progress: Progress = lambda _: None) -> Part:
    """Check a compilation, and release its text.

    Raises:
        DumpError: the version of this process differs from the caller's.
    """
    if task.version != hlo_lint.__version__:
        raise DumpError(f"a worker runs hlo-lint {hlo_lint.__version__}, not {task.version}")
    checker = Checker(task)
    checker.check_compilation(compilation, progress)
    logs = [compilation.dumps.index(log) for log in checker.logs]
    checker.memo.release(compilation)
    return checker.reporter.part(logs)


def content_digest(task: Task, compilation: Compilation) -> bytes | None:
    """A digest that is equal for compilations with equal findings of all checks; None if unknown.

    The names of files count, since they give the position in the run; the folder does not. A file
    that cannot be read as a whole has no digest.
    """
    digest = blake2b(digest_size=DIGEST_BYTES)
    # `repr` of a stage is cut to a line.
    by_dump = [task.stage_of(dump.path) for dump in compilation.dumps] if task.stage_of else []
    stages = [stage and tuple(stage) for stage in by_dump]
    names = [(dump.name, dump.edited) for dump in compilation.dumps]
    release = compilation.folder_release
    key = (
        compilation.lone,
        names,
        stages,
        release and (release.is_known, *map(str, release.nearest)),
    )
    digest.update(repr(key).encode(errors="surrogateescape"))
    for path in compilation.files:
        try:
            stored = on_disk(path)
            status = stored.stat()
            if not stat.S_ISREG(status.st_mode):  # reading a FIFO would block
                return None
            size = status.st_size
            digest.update(f"\n{size} {path.name}\n".encode(errors="surrogateescape"))
            with open(stored, "rb", buffering=0) as file:
                # With an extra byte, the first read reaches the end of an unchanged file.
                while chunk := file.read(min(size + 1, _CHUNK_BYTES)):
                    digest.update(chunk)
        except OSError:
            return None
    return digest.digest()


def moved(compilation: Compilation, new_path: Callable[[Path], Path]) -> Compilation:
    """The compilation with new paths for its files, unread."""
    dumps = [new_dump(new_path(dump.path), dump.name, dump.memo) for dump in compilation.dumps]
    return compilation.with_dumps(dumps, list(map(new_path, compilation.artefacts)))


def places(source: Compilation, target: Compilation) -> Mapping[str, str]:
    """A map from the paths of `source` to those of `target`, which has the same files."""
    pairs = zip(source.files, target.files, strict=True)
    return {str(old): str(new) for old, new in pairs}


def relocated(part: Part, new_places: Mapping[str, str]) -> Part:
    """The result of a compilation with new paths for its files."""
    result = part.result
    held = result.diagnostics, result.skipped, part.unread, result.internal_errors, result.checked
    if not any(held):
        return part  # most files have no findings

    def path_of(path: str) -> str:
        return new_places.get(path, path)

    def comment_of(comment: Comment) -> Comment:
        regions = {name: (lines, comment_of(end)) for name, (lines, end) in comment.regions.items()}
        return replace(comment, path=path_of(comment.path), regions=regions)

    def skipped_of(entry: Skipped) -> Skipped:
        new = path_of(entry.path)
        return entry._replace(path=new, reason=entry.reason.replace(entry.path, new))

    def file_of(file: CheckedFile) -> CheckedFile:
        comments = tuple(map(comment_of, file.comments))
        return replace(file, path=path_of(file.path), comments=comments)

    there = replace(
        result,
        diagnostics=[finding.relocated(path_of) for finding in result.diagnostics],
        skipped=list(map(skipped_of, result.skipped)),
        checked=list(map(file_of, result.checked)),
        internal_errors=[error.relocated(path_of) for error in result.internal_errors],
    )
    return part._replace(result=there, unread=frozenset(map(path_of, part.unread)))
