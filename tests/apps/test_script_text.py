"""Mistakes in a script are found in its text, before anything is downloaded."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from hlo_lint.apps.jax.capture.script_text import mistake
from hlo_lint.xla.environments import MODULES
from tests.conftest import ROOT, completed, present, written


def mistake_in(
    folder: Path, text: str, function: str | None = "step", *, has_shapes: bool = True
) -> str | None:
    script = written(folder / "model.py", text)
    reason, _ = mistake(
        script=str(script), function=function, has_shapes=has_shapes, modules=sorted(MODULES)
    )
    return None if reason is None else str(reason).replace(f"{folder}/", "")


STEP = "def step(x, y=1, *, z=2): pass\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def step(x:\n", "model.py:1:9: SyntaxError: '(' was never closed"),
        ("return 1\n", "model.py:1:1: SyntaxError: 'return' outside function"),
        (
            "def _f(): pass\ndef stepp(): pass\nclass C: pass\n",
            "model.py has no function step; there is stepp, C",
        ),
        ("# coding: latin-1\nx = '\xe9'\n", "model.py has no function step; there is none"),
        (
            f"import jax\nimport optax.losses\n{STEP}",
            "model.py:2: ModuleNotFoundError: No module named 'optax'",
        ),
        (
            f"from flax import linen as nn\n{STEP}",
            "model.py:1: ModuleNotFoundError: No module named 'flax'",
        ),
    ],
)
def test_a_mistake_is_reported_as_python_would(tmp_path: Path, text: str, reason: str) -> None:
    assert mistake_in(tmp_path, text) == reason


@pytest.mark.parametrize(
    "text",
    [
        "step = 1\n",
        "from functools import partial as step\n",
        "if True:\n    class step: pass\n",
        "def f():\n    global step\n    step = print\nf()\n",
        "from os import *\n",
        "globals()['step'] = print\n",
        f"import sys\nsys.path.insert(0, 'elsewhere')\nimport mine\n{STEP}",
        f"try:\n    import optax\nexcept ImportError:\n    optax = None\n{STEP}",
        f"import jax.experimental.pallas, numpy as np, scipy.linalg, __main__\n{STEP}",
        "def step():\n    import optax\n",
    ],
)
def test_where_there_is_doubt_there_is_no_mistake(tmp_path: Path, text: str) -> None:
    assert mistake_in(tmp_path, text) is None


def test_arguments_come_from_shapes_the_script_or_nowhere(tmp_path: Path) -> None:
    unknown = "the arguments of step in model.py are unknown: give --shape for each argument"
    said = present(mistake_in(tmp_path, STEP, has_shapes=False))
    assert said.startswith(unknown)
    for text in (
        f"{STEP}example_args = []\n",
        "def step(x=1, *rest, y=2, **more): pass\n",
        f"import functools\n@functools.cache\n{STEP}",
        f"{STEP}def step(): pass\n",
    ):
        assert mistake_in(tmp_path, text, has_shapes=False) is None, text
    assert mistake_in(tmp_path, STEP, None, has_shapes=False) is None


def test_files_beside_the_script_are_read_as_well(tmp_path: Path) -> None:
    (tmp_path / "nets" / "deep").mkdir(parents=True)
    (tmp_path / "nets" / "__init__.py").write_text("from . import deep\n")
    (tmp_path / "nets" / "deep" / "__init__.py").write_text("from .mlp import Net\n")
    (tmp_path / "nets" / "deep" / "mlp.py").write_text("from ..data import x\nimport model\n")
    (tmp_path / "nets" / "data.py").write_text("\nimport grain\n")
    (tmp_path / "nets" / "unused.py").write_text("import tensorflow\n")
    (tmp_path / "native.cpython-311.so").touch()
    (tmp_path / "space").mkdir()
    text = f"import nets, native, space.mine\n{STEP}"
    assert mistake_in(tmp_path, text) == (
        "nets/data.py:2: ModuleNotFoundError: No module named 'grain'"
    )


@pytest.mark.parametrize(
    ("function", "options", "said"),
    [
        (
            "step",
            (),
            "model.py:1: ModuleNotFoundError: No module named 'yaml'; "
            "model.py:1: ModuleNotFoundError: No module named 'optax'; "
            "--with pyyaml --with optax installs them\n",
        ),
        ("stepp", ("--with", "pyyaml"), "model.py has no function stepp; there is step"),
    ],
)
def test_capture_finds_it_before_it_downloads_a_release(
    tmp_path: Path, function: str, options: tuple[str, ...], said: str
) -> None:
    """There is no jax 0.10.99 to download."""
    (tmp_path / "model.py").write_text("import yaml, optax\ndef step(): pass\n")
    command = ["capture", "--target=h200", "--jax=0.10.99", f"model.py:{function}", *options]
    done = completed(
        [sys.executable, "-m", "hlo_lint", *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache")},
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"Error: {said}")
    assert not (tmp_path / "cache").exists()
