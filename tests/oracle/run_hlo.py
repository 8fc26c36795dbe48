"""A script: runs the HLO on standard input by XLA:CPU, all replicas on zeros."""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module
from typing import Any

SECONDS = 2
"""After which XLA:CPU ends the process if devices wait for each other."""


def main(text: str) -> None:
    """Compile and run a text; XLA ends the process if it cannot."""
    count = int(found[1]) if (found := re.search(r"replica_count=(\d+)", text)) else 1
    os.environ["XLA_FLAGS"] = (
        f"--xla_force_host_platform_device_count={count} "
        f"--xla_cpu_collective_call_warn_stuck_timeout_seconds={SECONDS} "
        f"--xla_cpu_collective_call_terminate_timeout_seconds={SECONDS}"
    )
    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    hlo: Any = import_module("jaxlib._hlo")
    runtime: Any = import_module("jaxlib._jax")
    module = hlo.hlo_module_from_text(text)
    program = runtime.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto())
    options = runtime.CompileOptions()
    options.num_replicas = count
    devices = jax.devices()
    sharding = NamedSharding(jax.make_mesh((count,), ("x",)), PartitionSpec("x"))  # type: ignore[no-untyped-call]
    client = devices[0].client
    executable = client.compile_and_load(program, runtime.DeviceList(tuple(devices)), options)
    program_shape = hlo.XlaComputation(module.as_serialized_hlo_module_proto()).program_shape()
    arguments = []
    for shape in program_shape.parameter_shapes():
        array = np.zeros(shape.dimensions(), shape.numpy_dtype())
        zeros = [jax.device_put(array, device) for device in devices]
        whole = (count * shape.dimensions()[0], *shape.dimensions()[1:])
        arguments.append(jax.make_array_from_single_device_arrays(whole, sharding, zeros))
    for part, *_ in executable.execute_sharded(arguments).disassemble_into_single_device_arrays():
        np.asarray(part)


if __name__ == "__main__":
    main(sys.stdin.read())
