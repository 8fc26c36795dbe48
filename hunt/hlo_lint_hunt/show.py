"""Runs an HLO module on XLA:CPU, with all passes and with few: `python -m hlo_lint_hunt.show FILE`.

Needs the sources of this package and of hlo_lint, and jaxlib; before 0.11 jax as well. Comments of
the file give its inputs and the right results: `// input: int8 [1, 2]`, `// right: [3, 4]`.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from hlo_lint.text.source import encode
from hlo_lint.xla import cpu


def inputs(text: str) -> list[Any]:
    """The input arrays in the comments of a text."""
    arrays = []
    for name, numbers in re.findall(r"^// input: (\w+) (.*)", text, re.M):
        value = ast.literal_eval(re.sub(r"\binf\b", "1e999", numbers.replace("nan", "None")))
        dtype = getattr(np, name, None) or getattr(ml_dtypes, name)
        arrays.append(np.array(value, float if "nan" in numbers else None).astype(dtype))
    return arrays


def run(text: str, flags: dict[str, Any]) -> object:
    """The results; for a module of several devices only whether it compiles."""
    (types, blocks), devices = cpu.pack_arrays(inputs(text)), cpu.devices_of(text)
    given: dict[str, Any] = {"types": types, "flags": flags, "devices": devices}
    results = cpu.run_text(encode(text), *blocks, plain=True, **given)
    return cpu.unpack_arrays(*results) or "it compiles"


if __name__ == "__main__":
    os.environ.update(cpu.SEVERAL_DEVICES, JAX_PLATFORMS="cpu")
    module = Path(sys.argv[1]).read_text("utf-8")
    for title, options in (("as it is", {}), ("without passes", dict(cpu.JUDGE))):
        try:
            print(f"{title}: {run(module, options)}")
        except Exception as error:
            print(f"{title}: {error}")
    for line in re.findall(r"^// right: (.*)", module, re.M):
        print(f"right: {line}")
