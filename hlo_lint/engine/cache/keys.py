"""The keys of cached findings: the digest of all that they depend on."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import hlo_lint
from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.rules.base import Rule
from hlo_lint.text.files import is_proto

_DIGEST_BYTES = 20


def run_digest(rules: Sequence[Rule], *facts: object) -> bytes:
    """The digest of what all files of a run share: the program, its rules and `facts`."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    digest.update(_program().encode())
    for rule in rules:
        kind = type(rule)
        options = sorted((name, repr(value)) for name, value in vars(rule).items())
        digest.update(f"{kind.__module__}.{kind.__qualname__} {options}\n".encode())
        if not kind.__module__.startswith(f"{hlo_lint.__name__}."):
            file = getattr(sys.modules.get(kind.__module__), "__file__", None)
            digest.update(_state_of([file] if file else []).encode())
    for fact in facts:
        digest.update(repr(fact).encode(errors="surrogateescape") + b"\n")
    return digest.digest()


def pipeline_key(run: bytes, pipeline: Pipeline, earlier: Iterable[object]) -> bytes | None:
    """The key of the findings in a pipeline; None if a file of it cannot be read here.

    The names of files count, too: they tell the place in the run, and findings show them.
    """
    digest = hashlib.blake2b(run, digest_size=_DIGEST_BYTES)
    digest.update(repr((pipeline.lone, sorted(map(repr, earlier)))).encode())
    for dump in pipeline.dumps:
        if is_proto(dump.path.name):  # read by jaxlib, whose release is not known here
            return None
        digest.update(repr(dump.name).encode())
    for path in (*(dump.path for dump in pipeline.dumps), *pipeline.artefacts):
        try:
            if not path.is_file():  # a FIFO would be waited for
                return None
            data = path.read_bytes()
        except OSError:
            return None
        digest.update(f"\n{len(data)} {path}\n".encode(errors="surrogateescape"))
        digest.update(data)
    return digest.digest()


@cache
def _program() -> str:
    """The version of this program and of what it reads payloads with, and the state of its files:
    a checkout changes under a version.
    """
    package = Path(hlo_lint.__file__).parent
    files = (
        os.path.join(folder, name)
        for folder, _, names in os.walk(package)
        for name in names
        if name.endswith((".py", ".toml", ".lark", ".txt"))
    )
    jaxlib = find_spec("jaxlib")
    origin = jaxlib.origin if jaxlib is not None else None
    state = _state_of([*files, *([origin] if origin else [])])
    return f"{hlo_lint.__version__} {sys.version} {state}"


def _state_of(files: Iterable[str]) -> str:
    states = []
    for file in sorted(files):
        status = os.stat(file)
        states.append((file, status.st_mtime_ns, status.st_size))
    return hashlib.blake2b(repr(states).encode(), digest_size=_DIGEST_BYTES).hexdigest()
