"""XLA:CPU of the installed jaxlib, in a child process with limits.

    with XlaCpu() as xla:
        results = xla.run(text, inputs)

The child serves many texts, because its start takes longer than most compilations. If XLA aborts on
a text, only the child ends: the next text starts another child.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from importlib import import_module
from math import inf, prod
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

from hlo_lint.hlo.dtypes import ELEMENT_TYPES
from hlo_lint.hlo.parser.literals import numpy_dtype
from hlo_lint.text.errors import DumpError, HloLintError
from hlo_lint.text.source import encode, shown
from hlo_lint.xla.bindings import xla_message
from hlo_lint.xla.child import Child, ChildDied, ChildError, Pool
from hlo_lint.xla.limits import ChildLimits, Deadline, NoTimeLeft
from hlo_lint.xla.pjrt import field_bytes, module_of_text, varint_bytes, xla_bindings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hlo_lint.xla.child import Answer

    Flags = Mapping[str, bool | int | str]

MAX_SECONDS: Final = 60.0
"""The time limit per text, to compile and to run, in seconds."""
MAX_BYTES: Final = 8 << 30
"""The memory limit of the child."""

JUDGE: Final[Flags] = {
    "xla_disable_hlo_passes": (
        "algsimp,batch-dot-simplification,conditional-canonicalizer,constant_folding,convolution-canonicalization,cse,dce,"
        "dot-library-rewriter,fusion,gemv-rewriter,literal-canonicalizer,reduce-decomposer,"
        "reshape-decomposer,reshape-mover,shape-canonicalizer,simplification,"
        "simplification_after_layout_assignment,simplify-conditional,simplify-fp-conversions,"
        "simplify-sorts,simplify-while-loops,small-while-loop-hoisting,topk-rewriter,"
        "transpose-folding,while-loop-constant-sinking,while-loop-invariant-code-motion,"
        "while-loop-trip-count-annotator,zero_sized_hlo_elimination"
    ),
    "xla_llvm_disable_expensive_passes": True,
}
"""Flags of the judge: XLA:CPU without the passes that it runs for speed.

XLA:CPU 0.10.2 needs the others: without any of them it refuses a program, aborts, or computes
wrong values. They expand operations that it has no code for (`logistic`, random bits, 8-bit
floats), or assign layouts."""
_FAST: Final = frozenset({"dce", "dot-library-rewriter", "fusion", "gemv-rewriter"})
"""Passes of `JUDGE` without which a program takes three times as long to compile."""
FLAGS: Final[Flags] = {
    # A rewrite of XLA:CPU would be applied to both sides, and hide the same rewrite in a dump.
    "xla_disable_hlo_passes": ",".join(
        name for name in str(JUDGE["xla_disable_hlo_passes"]).split(",") if name not in _FAST
    ),
    "xla_allow_excess_precision": False,
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_multi_thread_eigen": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
"""The flags of the first attempt, which compiles fast and rewrites little. What it finds to differ
runs again as `JUDGE` says."""
DEFAULT_FLAGS: Final[Flags] = {"xla_allow_excess_precision": False}
"""The flags of the second attempt: some texts compile only with every pass."""
_LISTS: Final = frozenset({"xla_disable_hlo_passes", "xla_enable_hlo_passes_only"})
"""Flags with several values, which jaxlib before 0.4.38 does not read as overrides."""
SEVERAL_DEVICES: Final = {"XLA_FLAGS": "--xla_force_host_platform_device_count=64"}
"""The environment of a child that compiles for up to 64 devices."""
KEPT_MEMORY: Final = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(MAX_BYTES),
}
"""The environment of a child whose glibc keeps freed memory: runs spent a fifth on new pages."""
MAX_EXECUTABLES: Final = 4
"""The number of cached executables: two programs, in their own types and in f64, on several
seeds."""


def devices_of(text: str) -> list[int]:
    """The numbers of replicas and of partitions in the header of a module."""
    head = re.sub("^//.*\n", "", text, flags=re.M).partition("\n")[0]
    counts = (re.search(rf"{name}=(\d+)", head) for name in ("replica_count", "num_partitions"))
    return [int(count[1]) if count else 1 for count in counts]


class NotRun(HloLintError):
    """A text that XLA:CPU did not run to the end; the message says why."""


class XlaCpu(Child):
    """XLA:CPU in a child process, which starts with the first text and ends with the context."""

    def __init__(
        self,
        python: Path | str | None = None,
        *,
        seconds: float | None = None,
        memory: int | None = None,
        deadline: Deadline | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`seconds` for each text, `memory` in bytes for the child, `deadline` for all texts.

        `python` is an interpreter with jaxlib, None for the current. With `JAX_PLATFORMS` in
        `environment`, texts run on the first device of that platform.
        """
        limits = ChildLimits.by_default(MAX_SECONDS, MAX_BYTES)
        super().__init__(
            python,
            limits=ChildLimits(
                seconds or limits.seconds, memory or limits.memory, deadline or Deadline()
            ),
            setup=load_runtime,
            environment={
                "JAX_ENABLE_X64": "1",
                "OPENBLAS_NUM_THREADS": "1",
                **KEPT_MEMORY,
                **(environment or {}),
            },
        )
        self.texts_run = 0
        """The number of texts that ran to the end."""

    def sibling(self) -> XlaCpu:
        """Another child with the same limits."""
        limits = self.limits
        return XlaCpu(seconds=limits.seconds, memory=limits.memory, deadline=limits.deadline)

    def run(
        self,
        text: str,
        inputs: Sequence[NDArray[Any]] = (),
        *,
        flags: Flags | None = None,
        plain: bool = False,
        seconds: float = inf,
    ) -> list[NDArray[Any]]:
        """The results of a module: the leaves of its root, in order.

        Args:
            text: HLO that the installed jaxlib reads, with one device and arrays as parameters.
            inputs: a value for each parameter of the entry computation.
            flags: XLA flags for this compilation, beside those of the child.
            plain: True to compile with the passes of XLA, without the flags of the child.
            seconds: a limit for this text, where it is less than that of the child.

        Raises:
            NotRun: XLA refused the text, aborted, or needed more time or memory than the limits.
            DumpError: jaxlib is not installed.
        """
        types, blocks = pack_arrays(inputs)
        own: dict[str, Any] = {"types": types, "flags": dict(flags or {}), "plain": plain}
        limit = min(seconds, self.limits.seconds)
        try:
            types, results = self.call_within(limit, run_text, encode(text), *blocks, **own)
        except (ChildDied, NoTimeLeft) as death:
            raise NotRun(f"{death}") from None
        except ChildError as error:
            if error.class_name == "ImportError":
                raise DumpError(f"pip install 'hlo-lint[xla]' to run modules: {error}") from None
            raise NotRun(shown(xla_message(f"{error}")) or error.class_name) from None
        self.texts_run += 1
        return unpack_arrays(types, results)


def xla_cpus(*, memory: int | None = None, deadline: Deadline | None = None) -> Pool[XlaCpu]:
    """A pool of children with the limits of `XlaCpu`, a child for each thread at a time."""
    return Pool(lambda: XlaCpu(memory=memory, deadline=deadline))


# ---- arrays


_NAMES: Final = {element_type.numpy: name for name, element_type in reversed(ELEMENT_TYPES.items())}


def pack_arrays(arrays: Sequence[NDArray[Any]]) -> tuple[list[Any], list[bytes]]:
    """The element type and the dimensions of each array, and its bytes."""
    types = [[_NAMES[array.dtype.name], list(array.shape)] for array in arrays]
    return types, [array.tobytes() for array in arrays]


def unpack_arrays(types: Sequence[Any], blocks: Sequence[bytes]) -> list[NDArray[Any]]:
    """The arrays from `pack_arrays`."""
    import numpy as np

    return [
        np.frombuffer(data, numpy_dtype(name)).reshape(dims)
        for (name, dims), data in zip(types, blocks, strict=True)
    ]


# ---- in the child


def run_text(
    text: bytes,
    *arrays: bytes,
    types: list[Any],
    flags: dict[str, Any],
    plain: bool = False,
    devices: Sequence[int] = (1, 1),
) -> Answer:
    """Compile a text, and run it; `plain` means without the flags of this module.

    For several replicas or partitions, for which the child needs devices, it is only compiled.
    """
    _, put, fetch = _device()
    executable = _compiled(text, tuple(flags.items()), plain, tuple(devices))
    if prod(devices) > 1:
        return [], ()
    return pack_arrays([*map(fetch, executable.execute([*map(put, unpack_arrays(types, arrays))]))])


def final_text(text: bytes, *, flags: dict[str, Any]) -> Answer:
    """Compile a text without the flags of this module: the optimized module that XLA emits."""
    (module,) = _compiled(text, tuple(flags.items()), True).hlo_modules()
    return None, (module.to_string().encode(),)


def run_code(code: bytes, *arrays: bytes, types: list[Any], results: list[Any]) -> Answer:
    """Run an executable that `pjrt.py` wrote for this device; `results` are types as `types`."""
    device, put, fetch = _device()
    jaxlib = _bindings()
    # jaxlib 0.11.2 reads SerializedXlaExecutableMetadata before the plugin's executable: a version,
    # the runtime, the dimensions, type and memory of each result, a name.
    primitive = xla_bindings().PrimitiveType
    head = b"\x08\x03" + field_bytes(2, b"pjrt_ifrt")
    for name, dims in results:
        shape = field_bytes(1, b"".join(map(varint_bytes, dims))) if dims else b""
        number = b"\x08" + varint_bytes(int(getattr(primitive, name.upper())))
        head += field_bytes(
            5,
            field_bytes(1, shape)
            + field_bytes(2, number)
            + field_bytes(4, b"device")
            + field_bytes(6, shape),
        )
    head += field_bytes(7, b"kernel")
    devices, options = jaxlib.DeviceList((device,)), jaxlib.CompileOptions()
    whole = varint_bytes(len(head)) + head + code
    executable = device.client.deserialize_executable(whole, devices, options)
    return pack_arrays([*map(fetch, executable.execute([*map(put, unpack_arrays(types, arrays))]))])


def load_runtime() -> Answer:
    """Import jaxlib, and jax for a GPU."""
    _device()
    return None, ()


_find_unknown_flag: Final = re.compile("No such compile option: '([^']*)'").search
"""jaxlib 0.11 has no xla_cpu_use_fusion_emitters."""


@lru_cache(MAX_EXECUTABLES)
def _compiled(
    text: bytes,
    flags: tuple[tuple[str, bool | int | str], ...],
    plain: bool,
    devices: tuple[int, ...] = (1, 1),
) -> Any:
    jaxlib = _bindings()
    device, _, _ = _device()
    module = module_of_text(text)
    if hasattr(jaxlib.mlir, "hlo_to_stablehlo"):
        program = jaxlib.mlir.hlo_to_stablehlo(module)
    else:  # before 0.6
        program = jaxlib.mlir.xla_computation_to_mlir_module(jaxlib.XlaComputation(module))
    options = jaxlib.CompileOptions()
    options.num_replicas, options.num_partitions = devices
    build = options.executable_build_options
    build.use_spmd_partitioning = devices[1] > 1
    lists = {name: value for name, value in flags if name in _LISTS}
    for name, value in lists.items():
        setattr(build.debug_options, name, value)
    chosen = jaxlib.DeviceList(tuple(device.client.devices()[: prod(devices)]))

    def compiled(own: Flags) -> Any:
        chosen_flags = {**own, **dict(flags)}.items()
        options.env_option_overrides = [pair for pair in chosen_flags if pair[0] not in lists]
        if not hasattr(device.client, "compile_and_load"):  # before 0.6.1
            return device.client.compile(program, options)
        return device.client.compile_and_load(program, chosen, options)

    if plain:
        return compiled({})
    own = dict(FLAGS)
    while True:
        try:
            return compiled(own)
        except RuntimeError as error:
            unknown = _find_unknown_flag(f"{error}")
            if unknown is None or own.pop(unknown[1], None) is None:
                return compiled(DEFAULT_FLAGS)


def _bindings() -> ModuleType:
    """XLA's Python bindings of its runtime; jaxlib named them differently before 0.6.1."""
    names = ("jaxlib._jax", "jaxlib.xla_extension")
    for name in names:
        with suppress(ModuleNotFoundError):
            return import_module(name)
    return import_module(names[0])  # raises


@cache
def _device() -> tuple[Any, Callable[[NDArray[Any]], Any], Callable[[Any], NDArray[Any]]]:
    """The CPU, a function that puts an array on it, and a function that fetches an array."""
    if os.environ.get("JAX_PLATFORMS") != "cpu":
        jax = import_module("jax")
        first = jax.devices()[0]
        return first, lambda array: jax.device_put(array, first), import_module("numpy").asarray
    # Before 0.11 jaxlib looks up classes of jax, which takes 0.3 s to import, without need.
    sys.modules.setdefault("jax", cast(ModuleType, None))
    jaxlib, client = _bindings(), import_module("jaxlib.xla_client")
    wide = {"enable_x64": True}
    if "enable_x64" not in jaxlib.batched_device_put.__doc__:  # before 0.6.1
        jaxlib.jax_jit.set_thread_local_state_initialization_callback(lambda: None)
        state = jaxlib.jax_jit.global_state()
        state.enable_x64 = True
        if hasattr(state, "enable_memories"):  # before 0.4.36, which read it unset
            state.enable_memories = False
        wide = {}
    device = client.make_cpu_client().devices()[0]

    # Attributes that jax adds to a sharding, and that jaxlib reads before 0.11.
    added = {"memory_kind": None, "_to_xla_hlo_sharding": lambda *_: client.HloSharding.replicate()}
    sharding = type("OneDevice", (jaxlib.SingleDeviceSharding,), added)(device)

    def put(array: NDArray[Any]) -> Any:
        # The fields of `jax.core.ShapedArray` that jaxlib reads.
        shape = SimpleNamespace(shape=array.shape, dtype=array.dtype, weak_type=False)
        return jaxlib.batched_device_put(shape, sharding, [array], [device], **wide)

    def fetch(array: Any) -> Any:
        if not hasattr(array, "_single_device_array_to_np_array_did_copy"):  # before 0.4.36
            return array._single_device_array_to_np_array()
        return array._single_device_array_to_np_array_did_copy()[0]

    return device, put, fetch
