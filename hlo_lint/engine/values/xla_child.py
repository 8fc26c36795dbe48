"""The child process of `xla_cpu`: it compiles texts with XLA:CPU and runs them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from hlo_lint.engine.values.xla_cpu import read_message, write_message
from hlo_lint.hlo.xla_child import module_of_text, xla_bindings, xla_message

if TYPE_CHECKING:
    from numpy.typing import NDArray

FLAGS: Final[Mapping[str, bool | int | str]] = {
    # A rewrite of XLA:CPU would be applied to both sides, and hide the same rewrite in a dump.
    "xla_disable_hlo_passes": "algsimp,constant_folding,cse,reshape-mover,simplify-fp-conversions",
    "xla_allow_excess_precision": False,
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_multi_thread_eigen": False,
}
"""Flags of the first attempt, which compiles fast and rewrites little."""
DEFAULT_FLAGS: Final[Mapping[str, bool | int | str]] = {"xla_allow_excess_precision": False}
"""Flags of the second attempt: some texts compile only with every pass."""


MAX_EXECUTABLES: Final = 4
"""Executables that are kept: two programs, in their own types and in f64, run on several seeds."""


def main() -> None:
    """Serve the requests on standard input until it ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing else may print into the answers
    try:
        run = _runner()
    except ImportError as error:
        write_message(
            answers, {"error": f"pip install 'hlo-lint[xla]' to run modules: {error}"}, []
        )
        return
    write_message(answers, {}, [])
    while True:
        try:
            request, inputs = read_message(sys.stdin.buffer)
        except EOFError:
            return
        _serve(answers, run, request, inputs)


def _serve(
    answers: IO[bytes], run: Any, request: Mapping[str, Any], inputs: Sequence[NDArray[Any]]
) -> None:
    if sys.platform != "win32":
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime + request["seconds"]) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
    results: Sequence[NDArray[Any]] = []
    try:
        results = run(request["text"], inputs, request["flags"])
        answer = {}
    except (RuntimeError, ValueError, TypeError, MemoryError, NotImplementedError) as error:
        answer = {"error": xla_message(f"{error}") or type(error).__name__}
    write_message(answers, answer, results)


def _runner() -> Any:
    """The function that compiles and runs one text."""
    jaxlib = import_module("jaxlib._jax")
    xla = xla_bindings()
    device, put, fetch = _device(jaxlib)
    device_list = jaxlib.DeviceList((device,))

    @lru_cache(MAX_EXECUTABLES)
    def compiled(text: str, flags: tuple[tuple[str, bool | int | str], ...]) -> Any:
        program = jaxlib.mlir.hlo_to_stablehlo(module_of_text(xla, text.encode()))
        options = jaxlib.CompileOptions()
        try:
            options.env_option_overrides = list({**FLAGS, **dict(flags)}.items())
            return device.client.compile_and_load(program, device_list, options)
        except RuntimeError:
            options.env_option_overrides = list({**DEFAULT_FLAGS, **dict(flags)}.items())
            return device.client.compile_and_load(program, device_list, options)

    def run(
        text: str, inputs: Sequence[NDArray[Any]], flags: Mapping[str, bool | int | str]
    ) -> list[NDArray[Any]]:
        executable = compiled(text, tuple(flags.items()))
        return list(map(fetch, executable.execute(list(map(put, inputs)))))

    return run


def _device(
    jaxlib: Any,
) -> tuple[Any, Callable[[NDArray[Any]], Any], Callable[[Any], NDArray[Any]]]:
    """The CPU, a function that puts an array on it, and one that fetches an array from it."""
    try:
        jax = import_module("jax")
    except ImportError:
        # jaxlib alone does, from 0.11 on: the classes of its arrays were written in Python before.
        if not hasattr(jaxlib.ArrayImpl, "_to_np_array_did_copy"):
            raise
        device = import_module("jaxlib.xla_client").make_cpu_client().devices()[0]
        sharding = jaxlib.SingleDeviceSharding(device)

        def put(array: NDArray[Any]) -> Any:
            shape = _ShapedArray(array.shape, array.dtype)
            return jaxlib.batched_device_put(shape, sharding, [array], [device], enable_x64=True)

        return device, put, lambda array: array._single_device_array_to_np_array_did_copy()[0]
    device = jax.devices("cpu")[0]
    return device, lambda array: jax.device_put(array, device), import_module("numpy").asarray


class _ShapedArray(NamedTuple):
    """The fields of `jax.core.ShapedArray` that jaxlib reads."""

    shape: tuple[int, ...]
    dtype: object
    weak_type: bool = False
