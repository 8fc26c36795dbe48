"""Keys of cached findings: digests of everything that the findings depend on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path

import hlo_lint
from hlo_lint.engine.parts import DIGEST_BYTES
from hlo_lint.rules.entry import ChosenRules


def run_digest(rules: ChosenRules, *facts: object) -> bytes:
    """The digest of the facts that all files of a run share: the program, its rules and `facts`."""
    digest = blake2b(digest_size=DIGEST_BYTES)
    digest.update(_program().encode())
    for entry, rule in rules.chosen:
        # A rule of our own without options is not imported for this: its file is in `_program`.
        options = sorted((name, repr(value)) for name, value in vars(rule).items()) if rule else ()
        digest.update(f"{entry.module}.{entry.class_name} {options}\n".encode())
        if not entry.is_own:
            file = getattr(sys.modules.get(entry.module), "__file__", None)
            digest.update(_digest([_state(file)] if file else []).encode())
    for fact in facts:
        digest.update(repr(fact).encode(errors="surrogateescape") + b"\n")
    return digest.digest()


@cache
def _program() -> str:
    """The versions of this program and Python, and the state of its files and of jaxlib.

    The files of a checkout change without a new version.
    """
    jaxlib = find_spec("jaxlib")
    files = [] if jaxlib is None or jaxlib.origin is None else [jaxlib.origin]
    state = _digest([*_states_in(Path(hlo_lint.__file__).parent), *map(_state, files)])
    return f"{hlo_lint.__version__} {sys.version} {state}"


def _states_in(folder: str | Path) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith((".py", ".toml", ".lark", ".txt")):
                yield _state(entry.path, entry.stat())
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _states_in(entry.path)


def _state(file: str, status: os.stat_result | None = None) -> tuple[str, int, int]:
    status = status or os.stat(file)
    return file, status.st_mtime_ns, status.st_size


def _digest(states: Iterable[tuple[str, int, int]]) -> str:
    return blake2b(repr(sorted(states)).encode(), digest_size=DIGEST_BYTES).hexdigest()
