"""The key of a run: a digest of everything but the files that its findings depend on."""

from __future__ import annotations

import os
import sys
from functools import cache
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path

import hlo_lint
from hlo_lint.engine.parts import DIGEST_BYTES
from hlo_lint.rules.entry import ChosenRules


def run_digest(rules: ChosenRules, *facts: object) -> bytes:
    """The digest of the program, its rules with their options, and `facts`."""
    digest = blake2b(
        repr((_program(), facts)).encode(errors="surrogateescape"), digest_size=DIGEST_BYTES
    )
    for entry, rule in rules.chosen:
        # A rule of our own without options is not imported for this: its file is in `_program`.
        options = sorted((name, repr(value)) for name, value in vars(rule).items()) if rule else ()
        file = None if entry.is_own else getattr(sys.modules.get(entry.module), "__file__", None)
        state = file and _state(file)
        digest.update(f"{entry.module}.{entry.class_name} {options} {state}\n".encode())
    return digest.digest()


@cache
def _program() -> tuple[object, ...]:
    """The versions of this program and Python, and the state of its files and of jaxlib.

    The files of a checkout change without a new version.
    """
    files = [
        os.path.join(folder, name)
        for folder, _, names in os.walk(Path(hlo_lint.__file__).parent)
        for name in names
        if name.endswith((".py", ".toml", ".lark", ".txt"))
    ]
    jaxlib = find_spec("jaxlib")
    if jaxlib is not None and jaxlib.origin is not None:
        files.append(jaxlib.origin)
    return hlo_lint.__version__, sys.version, sorted(map(_state, files))


def _state(file: str) -> tuple[str, int, int]:
    status = os.stat(file)
    return file, status.st_mtime_ns, status.st_size
