"""Programs that die, and the page of `hlo-lint exec` about each: `python -m benchmarks.deaths`.

    python -m benchmarks.deaths --backend cpu --python .venv/bin/python
    python -m benchmarks.deaths --backend v5e --python TPU_ENVIRONMENT/bin/python --keep FOLDER

A page leads to the line if it names the line of the program that is marked `# here`, or for a death
outside Python the instruction of the marked line.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from hlo_lint.apps.jax.capture.targets import gpu_description
from hlo_lint.xla.compiler import XlaCompiler

_AHEAD: Final = """\
import os
import re
import sys
from pathlib import Path

os.environ["TPU_SKIP_MDS_QUERY"] = "1"
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.sharding import NamedSharding, PartitionSpec as P

{topology}

def compiled(function, *shapes, **options):
    arguments = [
        jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(MESH, P()))
        for shape, dtype in shapes
    ]
    return jax.jit(function, **options).lower(*arguments).compile()

"""
"""Compiles for a device that is absent."""
_TPU: Final = """\
from jax.experimental import topologies
from jax.experimental.pallas import tpu as pltpu

topology = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2")
MESH = jax.sharding.Mesh(np.array(topology.devices[:1]), ("x",))
"""
_GPU: Final = """\
from jax.experimental import topologies
from jax.experimental.pallas import triton as plgpu

topology = topologies.get_topology_desc(
    platform="cuda", target_config=Path("h200.pbtxt").read_text(), topology="1x1x1"
)
MESH = topologies.make_mesh(topo=topology, mesh_shape=(1,), axis_names=("x",))
"""
_HERE: Final = """\
import sys
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.sharding import NamedSharding, PartitionSpec as P

"""


class Death(NamedTuple):
    """A program that dies."""

    name: str
    backend: str
    """`cpu` or `gpu`, where it runs; `v5e` or `h200`, for which it is only compiled."""
    program: str
    says: str
    """A part of the page: the component, or the meaning of the message."""
    options: tuple[str, ...] = ()
    """Options of `exec`."""

    @property
    def source(self) -> str:
        """The program with its imports."""
        topology = {"v5e": _TPU, "h200": _GPU}.get(self.backend)
        return (
            _HERE if topology is None else _AHEAD.replace("{topology}", topology)
        ) + self.program

    @property
    def line(self) -> int:
        """The number of the marked line."""
        lines = self.source.splitlines()
        return next(number for number, line in enumerate(lines, 1) if "# here" in line)


DEATHS: Final = (
    Death(
        "memory of the host",
        "cpu",
        """\
double = jax.jit(lambda x: x * 2)
double(jnp.ones(8))
big = jax.jit(lambda x: jnp.broadcast_to(x[:, None], (1 << 21, 1 << 22)) + x[0])
big(jnp.ones(1 << 21)).block_until_ready()  # here
""",
        "memory is used up",
    ),
    Death(
        "a donated array is read",
        "cpu",
        """\
step = jax.jit(lambda x: x + 1, donate_argnums=0)
state = jnp.ones(8)
step(state)
print(state + 1)  # here
""",
        "Array has been deleted",
    ),
    Death(
        "a segmentation fault",
        "cpu",
        """\
import ctypes
print(jax.jit(jnp.tanh)(jnp.ones(8)))
ctypes.string_at(0)  # here
""",
        "SIGSEGV",
    ),
    Death(
        "a hang in Python",
        "cpu",
        """\
import threading
print(jax.jit(jnp.tanh)(jnp.ones(8)))
threading.Event().wait()  # here
""",
        "the program hung",
        ("--hang-seconds", "5"),
    ),
    Death(
        "devices that wait in a collective",
        "cpu",
        """\
import os
def step(x):
    rank = jax.lax.axis_index("d")
    return jax.lax.cond(
        rank == 0,
        lambda x: jax.lax.psum(x, "d"),  # here
        lambda x: x,
        x,
    )
mesh = jax.make_mesh((2,), ("d",))
f = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False))
print(f(jax.device_put(jnp.ones(8), NamedSharding(mesh, P("d")))))
""",
        "ranks",
    ),
    Death(
        "a process that leaves gloo",
        "cpu",
        """\
import os, subprocess, time
rank = int(os.environ.get("DEATH_RANK", "0"))
if rank == 0:
    other = subprocess.Popen([sys.executable, __file__], env={**os.environ, "DEATH_RANK": "1"})
jax.distributed.initialize("localhost:45871", 2, rank, heartbeat_timeout_seconds=10)
mesh = jax.make_mesh((2,), ("d",))
data = jax.make_array_from_callback((8,), NamedSharding(mesh, P("d")), lambda i: np.ones(4, "f"))
total = jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(mesh, P()))
print(total(data))
if rank == 1:
    os._exit(0)
time.sleep(1)
print(jax.jit(lambda x: (x * x).sum(), out_shardings=NamedSharding(mesh, P()))(data))  # here
""",
        "process",
    ),
    Death(
        "a custom call that nobody registered",
        "cpu",
        """\
call = jax.jit(lambda x: jax.ffi.ffi_call("my_kernel", jax.ShapeDtypeStruct((8,), "f"))(x))
call(jnp.ones(8))  # here
""",
        "custom call",
    ),
    Death(
        "a callback that fails",
        "cpu",
        """\
def host(x):
    return x.reshape(3, 3)  # here
call = jax.jit(lambda x: jax.pure_callback(host, jax.ShapeDtypeStruct((8,), "f"), x))
print(call(jnp.ones(8)))
""",
        "reshape",
    ),
    Death(
        "a sharding that does not divide",
        "cpu",
        """\
mesh = jax.make_mesh((2,), ("d",))
place = NamedSharding(mesh, P("d"))
f = jax.jit(lambda x: x + 1, in_shardings=place)
print(f(jnp.ones(7)))  # here
""",
        "divi",
    ),
    Death(
        "a kernel of int2",
        "cpu",
        """\
order = jax.jit(lambda x: jnp.sort(x.astype(jnp.int2)))
for _ in range(20):
    order(jnp.arange(4096.0)).block_until_ready()  # here
""",
        "SIGABRT|SIGSEGV",
    ),
    Death(
        "scoped memory of a Pallas kernel",
        "v5e",
        """\
def kernel(x, o):
    o[...] = jnp.tanh(x[...])
def step(x):
    return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)  # here
compiled(step, ((8192, 4096), jnp.float32))
""",
        "on-chip memory",
    ),
    Death(
        "blocks that do not fit the tiling",
        "v5e",
        """\
def kernel(x, o):  # here
    o[...] = x[...] * 2
def step(x):
    block = pl.BlockSpec((3, 100), lambda i, j: (i, j))
    return pl.pallas_call(
        kernel, grid=(10, 10), in_specs=[block], out_specs=block,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)
compiled(step, ((30, 1000), jnp.float32))
""",
        "block shape",
    ),
    Death(
        "memory of the device, in the compilation",
        "v5e",
        """\
def scores(x):
    d = x[:, None, :] - x[None, :, :]  # here
    return jnp.sort(d, axis=0)
compiled(scores, ((16384, 512), jnp.float32))
""",
        "memory",
    ),
    Death(
        "a Mosaic kernel of int4",
        "v5e",
        """\
def kernel(x, o):
    o[...] = x[...] * x[...]
def step(x):
    return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)  # here
compiled(step, ((64, 128), jnp.int4))
""",
        "Mosaic|Pallas",
    ),
    Death(
        "a custom call that a TPU has not",
        "v5e",
        """\
def step(x):
    y = jax.ffi.ffi_call("my_kernel", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)  # here
    return y + 1
compiled(step, ((1024,), jnp.float32))
""",
        "my_kernel",
    ),
    Death(
        "shared memory of a Triton kernel",
        "h200",
        """\
def kernel(x, w, o):
    o[...] = pl.dot(x[...], w[...])
def step(x, w):
    return pl.pallas_call(  # here
        kernel, out_shape=jax.ShapeDtypeStruct((256, 512), jnp.float32),
        compiler_params=plgpu.CompilerParams(num_warps=8, num_stages=2))(x, w)
compiled(step, ((256, 256), jnp.bfloat16), ((256, 512), jnp.bfloat16))
""",
        "shared memory",
    ),
    Death(
        "a block that is no power of two",
        "h200",
        """\
def kernel(x, o):
    o[...] = x[...] * 2  # here
def step(x):
    return pl.pallas_call(
        kernel, out_shape=jax.ShapeDtypeStruct((100,), x.dtype),
        compiler_params=plgpu.CompilerParams())(x)
compiled(step, ((100,), jnp.float32))
""",
        "power",
    ),
    Death(
        "a fusion of a concatenate",
        "h200",
        """\
def fn(x):
    unit = x / jnp.sum(x * x, axis=-1, keepdims=True)
    normal = jnp.cross(unit, x)
    pair = jnp.stack([normal, unit, normal], -1)
    return jnp.concatenate([pair[..., 0, :], jnp.sum(x, -1)[..., None]], -1)  # here
compiled(fn, ((1, 100, 3), jnp.float32))
""",
        "emitter",
    ),
    Death(
        "memory of the device",
        "gpu",
        """\
print(jax.jit(jnp.tanh)(jnp.ones(8)))
big = jax.jit(lambda x: jnp.sort(x[:, None] * x[None, :], axis=0))
big(jnp.ones(1 << 18)).block_until_ready()  # here
""",
        "memory",
    ),
    Death(
        "a kernel that writes out of bounds",
        "gpu",
        """\
from jax.experimental.pallas import triton as plgpu
def kernel(x, o):
    place = pl.ds((pl.program_id(0) + 1) << 28, 128)
    plgpu.store(o.at[place], x[...])
step = jax.jit(lambda x: pl.pallas_call(
    kernel, grid=(64,), out_shape=jax.ShapeDtypeStruct((128,), x.dtype),
    compiler_params=plgpu.CompilerParams())(x))
print(step(jnp.ones(128)))  # here
""",
        "reads or writes where it must not",
    ),
)


class Page(NamedTuple):
    """The end of the output of `exec`."""

    death: Death
    text: str
    seconds: float

    @property
    def has_line(self) -> bool:
        return f"program.py:{self.death.line} " in self.text + " "

    @property
    def says(self) -> bool:
        return re.search(self.death.says, self.text) is not None


def page_of(death: Death, python: str, folder: Path) -> Page:
    """Run a program under `exec` in an empty folder."""
    (folder / "program.py").write_text(death.source)
    if death.backend == "h200":
        with XlaCompiler(Path(python)) as compiler:
            (folder / "h200.pbtxt").write_text(gpu_description("h200", compiler))
    root = str(Path(__file__).parent.parent)
    devices = "--xla_force_host_platform_device_count=2 " * ("make_mesh" in death.program)
    quick = "--xla_cpu_collective_call_terminate_timeout_seconds=10 " * (death.backend == "cpu")
    distributed = "distributed" in death.program
    variables = {
        **os.environ,
        "PYTHONPATH": root,
        "XLA_FLAGS": "" if distributed else (devices + quick).strip(),
    }
    if death.backend != "gpu":
        variables["JAX_PLATFORMS"] = "cpu"
    begun = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-m", "hlo_lint", "exec", *death.options, python, "program.py"],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=300,
    )
    shown = ran.stdout + ran.stderr[ran.stderr.rfind("\nhlo-lint: the program") + 1 :]
    return Page(death, shown, time.monotonic() - begun)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the programs of a backend, and print a row of the table for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args(arguments)
    for death in DEATHS:
        if death.backend != options.backend or options.only not in death.name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            page = page_of(death, options.python, Path(folder))
        line = "named" if page.has_line else "NOT NAMED"
        says = "said" if page.says else "NOT SAID"
        print(
            f"| {death.name} | {death.backend} | {line} | {says} | {page.seconds:.0f} s |",
            flush=True,
        )
        if options.keep is not None:
            options.keep.mkdir(parents=True, exist_ok=True)
            (options.keep / f"{death.name.replace(' ', '_')}.txt").write_text(page.text)


if __name__ == "__main__":
    main()
