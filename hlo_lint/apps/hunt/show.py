"""Runs an HLO module on XLA:CPU, with its passes and without most of them: `python show.py FILE`.

Needs jaxlib and nothing else of jax; before 0.11 the numbers need jax, and the compiled module is
printed instead. The file says in comments what it is run on: `// input: int8 [1, 2]`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

WITHOUT = {
    "xla_disable_hlo_passes": "algsimp,constant_folding,cse,fusion,simplify-while-loops,"
    "simplify-conditional,simplification,while-loop-trip-count-annotator",
}


class _Shape(NamedTuple):
    shape: tuple[int, ...]
    dtype: object
    weak_type: bool = False


def inputs(text: str) -> list[Any]:
    """The arrays of the comments."""
    arrays = []
    for name, numbers in re.findall(r"^// input: (\w+) (.*)", text, re.M):
        value = ast.literal_eval(re.sub(r"\binf\b", "1e999", numbers.replace("nan", "None")))
        value = np.array(value, float if "nan" in numbers else None)
        arrays.append(np.array(value).astype(getattr(np, name, None) or getattr(ml_dtypes, name)))
    return arrays


def run(text: str, arrays: Sequence[Any], options: Mapping[str, Any]) -> list[Any] | str:
    """The results, or the compiled module where jaxlib alone cannot fetch them."""
    jaxlib, client_of = import_module("jaxlib._jax"), import_module("jaxlib.xla_client")
    bindings = import_module("jaxlib._hlo") if find_spec("jaxlib._hlo") else jaxlib
    client = client_of.make_cpu_client()
    device = client.devices()[0]
    module = bindings.hlo_module_from_text(text)
    program = jaxlib.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto())
    compile_options = jaxlib.CompileOptions()
    compile_options.env_option_overrides = list(options.items())
    devices = jaxlib.DeviceList((device,))
    executable = client.compile_and_load(program, devices, compile_options)
    if not hasattr(jaxlib.ArrayImpl, "_to_np_array_did_copy"):
        return str(executable.hlo_modules()[0].to_string())
    sharding = jaxlib.SingleDeviceSharding(device)
    placed = [
        jaxlib.batched_device_put(
            _Shape(array.shape, array.dtype), sharding, [array], [device], enable_x64=True
        )
        for array in arrays
    ]
    results = executable.execute(placed)
    return [result._single_device_array_to_np_array_did_copy()[0] for result in results]


def main(file: str) -> None:
    """Print both results, and what the comments say of the right one."""
    text = Path(file).read_text("utf-8")
    arrays = inputs(text)
    for title, options in (("as it is", {}), ("without passes", WITHOUT)):
        try:
            print(f"{title}: {run(text, arrays, options)}")
        except Exception as error:
            print(f"{title}: {error}")
    for line in re.findall(r"^// right: (.*)", text, re.M):
        print(f"right: {line}")


if __name__ == "__main__":
    main(sys.argv[1])
