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
from hlo_lint.engine.parts import DIGEST_BYTES
from hlo_lint.rules.base import Rule


def run_digest(rules: Sequence[Rule], *facts: object) -> bytes:
    """The digest of what all files of a run share: the program, its rules and `facts`."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
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
    return hashlib.blake2b(repr(states).encode(), digest_size=DIGEST_BYTES).hexdigest()
