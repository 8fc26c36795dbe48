"""The programs of `make bench`, and what XLA makes of them.

    python -m benchmarks.programs dump TARGET NAME FOLDER [TYPE]   a dump of every pass, as text
    python -m benchmarks.programs text NAME FILE                   a single large text

A dump prints the seconds of CPU of the compile alone.
"""

# jax has types for a part of what is called here.
# mypy: disable-error-code="no-untyped-call,no-any-return"

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
from jax import random
from jax.sharding import SingleDeviceSharding

from benchmarks.models import (
    Program,
    experts,
    floats,
    graphs,
    integers,
    language,
    molecules,
    pooled,
    recurrent,
    sampled,
    serving,
    solved,
    spectral,
    speech,
    vision,
)

MANY_SECONDS = 5
"""Seconds from which on a compile is not repeated."""
ROUNDS = 3

PROGRAMS: Mapping[str, Callable[[], Program]] = {
    "language": lambda: language(2, 128, 1000),
    "experts": lambda: experts(2, 64, 4),
    "vision": lambda: vision(1, 32, 64),
    "speech": lambda: speech(1, 64, 8),
    "serving": lambda: serving(2, 64, 1000),
    "graphs": lambda: graphs(2, 32),
    "molecules": lambda: molecules(2, 256),
    "recurrent": lambda: Program(recurrent, (floats(64, 64), floats(16, 8, 64))),
    "spectral": lambda: Program(spectral, (floats(64, 64),)),
    "solved": lambda: Program(solved, (floats(32, 32), floats(32, 4))),
    "sampled": lambda: Program(sampled, (random.PRNGKey(0), floats(8, 512))),
    "pooled": lambda: Program(pooled, (integers(256), integers(256), floats(256), floats(512, 32))),
}
BEFORE: Mapping[str, Callable[[], Program]] = {
    "language.before": lambda: language(300),
    "vision.before": lambda: vision(60),
    "speech.before": lambda: speech(8),
    "serving.before": lambda: serving(100),
    "molecules.before": lambda: molecules(200),
    "experts.before": lambda: experts(100),
}
"""Texts as jax lowers them."""
AFTER: Mapping[str, Callable[[], Program]] = {
    "language.cpu": lambda: language(24),
    "experts.cpu": lambda: experts(16),
    "vision.cpu": lambda: vision(8),
    "graphs.cpu": lambda: graphs(30),
    "molecules.cpu": lambda: molecules(60),
}
"""Texts after the passes of XLA:CPU: fused, with layouts, scheduled."""
FAST: Mapping[str, bool | int] = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}
"""LLVM's code is not read, and to optimize it would take most of the time."""


def device_of(target: str) -> Any:
    """The first device of a target, which need not be there."""
    if target == "cpu":
        return jax.devices()[0]
    from jax.experimental import topologies

    from hlo_lint.apps.jax.capture.targets import target_of
    from hlo_lint.xla.pjrt import ABSENT

    os.environ |= {**ABSENT, "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
    return topologies.get_topology_desc(**target_of(target).topology()).devices[0]


def lowered(program: Program, device: Any) -> Any:
    def at(shape: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=SingleDeviceSharding(device))

    return jax.jit(program.function).lower(*jax.tree.map(at, program.arguments))


def spent() -> float:
    """Seconds of CPU of this process and of the children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def compiled(program: Program, device: Any, **options: str | bool | int) -> float:
    """The seconds of a compile."""
    jax.clear_caches()
    work = lowered(program, device)
    begun = spent()
    work.compile(options)
    return spent() - begun


def dump(target: str, name: str, folder: str, file_type: str = "text") -> float:
    """Compile a program with every pass dumped; the seconds without, the least of some."""
    device, program = device_of(target), PROGRAMS[name]()
    compiled(Program(lambda x: x + 1, (floats(4),)), device)  # what a process does once
    every_pass = {"xla_dump_to": folder, "xla_dump_hlo_pass_re": ".*"}
    if file_type != "text":
        return compiled(program, device, **every_pass, **{f"xla_dump_hlo_as_{file_type}": True})
    seconds = compiled(program, device)
    if seconds < MANY_SECONDS:
        seconds = min([seconds, *(compiled(program, device) for _ in range(ROUNDS - 1))])
    compiled(program, device, **every_pass, xla_dump_hlo_as_text=True)
    return seconds


def write_text(name: str, file: Path) -> None:
    if name in BEFORE:
        module = lowered(BEFORE[name](), device_of("cpu")).compiler_ir("hlo").as_hlo_module()
        fresh = file.with_suffix(".new")
        fresh.write_text(module.to_string(), "utf-8")
        fresh.rename(file)
        return
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        compiled(
            AFTER[name](), device_of("cpu"), xla_dump_to=folder, xla_dump_hlo_as_text=True, **FAST
        )
        texts = Path(folder).glob("*after_optimizations.txt")
        max(texts, key=lambda path: path.stat().st_size).rename(file)


def main() -> None:
    match sys.argv[1:]:
        case ["dump", *words]:
            print(json.dumps(dump(*words)))
        case ["text", name, file]:
            write_text(name, Path(file))


if __name__ == "__main__":
    main()
