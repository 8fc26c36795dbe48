"""All of a capture that calls jax: scripts, lowering, compiles with a dump of every pass.

`jit` calls it beside the caller's jax, and `children` in a child process, whose interpreter may
have another jax. So it needs no package but jax and numpy.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import io
import os
import re
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hlo_lint.xla.pjrt import ABSENT

if TYPE_CHECKING:
    from hlo_lint.xla.child import Answer

EVERYTHING = {
    "xla_dump_hlo_as_text": True,
    "xla_dump_hlo_module_re": ".*",
    "xla_dump_max_hlo_modules": -1,
}
"""Options set in each compile, because XLA_FLAGS may set other values."""

BAD_OPTION = re.compile(r"INVALID_ARGUMENT: (No such compile option|While setting option)")
BAD_TARGET = "Failed to parse GpuTargetConfigProto"


class OptionRefused(Exception):
    """A compiler option that this release does not have, or whose value it refuses."""


class TargetRefused(Exception):
    """A chip that this jax cannot compile for, with the reason."""


class ScriptFailed(Exception):
    """The caller's script raised an exception, or lacks something."""


def _jax() -> Any:
    """The module jax, untyped: the types that it declares differ between releases."""
    return importlib.import_module("jax")


def compile_lowered(
    lowered: Any, folder: Path, options: Mapping[str, Any], passes: str = ".*"
) -> tuple[Any, str | None]:
    """The executable, or None and XLA's error; the dumps are in `folder`.

    Raises:
        OptionRefused: for a compiler option that XLA refuses.
    """
    dumping = {"xla_dump_to": str(folder), "xla_dump_hlo_pass_re": passes}
    try:
        with uncached():
            return lowered.compile({**EVERYTHING, **dumping, **options}), None
    except Exception as error:
        # jax raises MosaicError from XLA's error, with the kernel's lines as its traceback.
        if not isinstance(error, _xla_error()) and not isinstance(error.__cause__, _xla_error()):
            raise
        return None, _message(error)


def _message(error: Exception) -> str:
    """XLA's error; OptionRefused if it is about a compiler option."""
    message = str(error).strip()
    if BAD_OPTION.match(message):
        raise OptionRefused(message.partition(": ")[2]) from error
    if isinstance(error, _xla_error()):
        return message
    *_, kernel = traceback.extract_tb(error.__traceback__)
    return f"{kernel.filename.removeprefix(f'{Path.cwd()}/')}:{kernel.lineno}: {message}"


@contextmanager
def uncached() -> Iterator[None]:
    """Compile without the compilation cache: a cached program is not compiled, so not dumped.

    jax checks once per process if there is a cache; resetting it makes jax check again.
    """
    jax = _jax()
    from jax.experimental.compilation_cache import compilation_cache

    before = jax.config.jax_enable_compilation_cache
    try:
        jax.config.update("jax_enable_compilation_cache", False)
        compilation_cache.reset_cache()
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", before)
        compilation_cache.reset_cache()


def lower_for(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    target: Mapping[str, str],
) -> Any:
    """Lower a function for a chip, by its description.

    `target` has the arguments of `get_topology_desc`.

    Raises:
        TargetRefused: without the chip's compiler, or if the compiler cannot read the description.
    """
    jax = _jax()
    sharding = jax.sharding
    mesh = _mesh(target)
    whole = sharding.NamedSharding(mesh, sharding.PartitionSpec())
    given = tuple(arguments), dict(keywords)
    is_placed = any(map(_is_array, jax.tree.leaves(given)))
    arguments, keywords = jax.tree.map(functools.partial(_described, sharding=whole), given)
    is_jitted = hasattr(function, "lower")
    with _current_device(mesh):
        if is_placed:
            jitted: Any = function if is_jitted else jax.jit(function)
            return jitted.lower(*arguments, **keywords)
        # Without array arguments only the sharding of the results names the device.
        if not is_jitted:
            return jax.jit(function, out_shardings=whole).lower(*arguments, **keywords)

        def call() -> Any:
            return function(*arguments, **keywords)  # some of them may be static

        call.__name__ = getattr(function, "__name__", call.__name__)
        return jax.jit(call, out_shardings=whole).lower()


def _current_device(mesh: Any) -> AbstractContextManager[Any]:
    """A context in which Pallas lowers kernels for the chip of a mesh.

    Without it Pallas asks for the default device, which is the CPU. The abstract mesh has no axes:
    it gives the device, and leaves the shardings of the program alone.
    """
    abstract: Any = getattr(mesh, "abstract_mesh", None)
    if getattr(abstract, "abstract_device", None) is None:  # an older jax has none
        return nullcontext()
    context: AbstractContextManager[Any]
    context = _jax().sharding.use_abstract_mesh(abstract.update((), (), ()))
    return context


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def _described(leaf: Any, **more: Any) -> Any:
    """The shape of an array; any other argument unchanged."""
    if not _is_array(leaf):
        return leaf
    weak = bool(getattr(leaf, "weak_type", False))
    return _jax().ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=weak, **more)


def bytecode_of(lowered: Any) -> tuple[bytes, list[bool], list[bool]]:
    """Bytecode for `compile_module`, with a flag for each argument and result: XLA may shard it."""
    module = io.BytesIO()
    lowered.compiler_ir("stablehlo").operation.write_bytecode(file=module)
    arguments = getattr(lowered._lowering, "compile_args", {})
    is_free = [
        [type(sharding).__name__ in ("UnspecifiedValue", "AUTO") for sharding in arguments[name]]
        for name in ("in_shardings", "out_shardings")
        if name in arguments
    ]
    parameters, results = is_free if len(is_free) == 2 else ([], [])
    return module.getvalue(), parameters, results


def compile_module(
    module: bytes,
    *,
    target: Mapping[str, str],
    folder: str,
    options: Mapping[str, Any],
    passes: str,
    parameters: list[bool],
    results: list[bool],
) -> Answer:
    """Compile the bytecode of a module for a chip; returns XLA's error or None.

    The options are those with which jax itself calls XLA: the dumps are the same.

    Raises:
        OptionRefused: for a compiler option that XLA refuses.
    """
    import numpy
    from jax._src import compiler
    from jax._src.interpreters import mlir

    device = _mesh(target).devices[0]
    dumping = {"xla_dump_to": folder, "xla_dump_hlo_pass_re": passes}
    flags: dict[str, Any] = {**EVERYTHING, **dumping, **options}
    compile_options = compiler.get_compile_options(
        num_replicas=1,
        num_partitions=1,
        device_assignment=numpy.array([[device]]),
        env_options_overrides=flags,
        backend=device.client,
    )
    build = compile_options.executable_build_options
    build.allow_spmd_sharding_propagation_to_parameters = parameters
    build.allow_spmd_sharding_propagation_to_output = results
    devices = importlib.import_module("jaxlib._jax").DeviceList((device,))
    ir = importlib.import_module("jaxlib.mlir.ir")
    try:
        with mlir.make_ir_context():
            device.client.compile(ir.Module.parse(module), devices, compile_options)
    except _xla_error() as error:
        return _message(error), ()
    return None, ()


def unmeasured(target: Mapping[str, str]) -> dict[str, Any]:
    """Options that keep this release from timing kernels of a target that is not there."""
    numbers = re.findall(r"\d+", _jax().__version__)[:2]
    is_old = target["platform"] == "cuda" and [*map(int, numbers)] < [0, 9]
    return {"xla_gpu_autotune_level": 0} if is_old else {}


def _xla_error() -> type[Exception]:
    """XLA's exception; jax has a name for it since 0.4.33."""
    from jax import errors

    return getattr(errors, "JaxRuntimeError", RuntimeError)


def _mesh(target: Mapping[str, str]) -> Any:
    import numpy
    from jax.experimental import topologies

    before = {name: value for name, value in os.environ.items() if name in ABSENT}
    os.environ.update(ABSENT)
    try:
        topology = topologies.get_topology_desc(**target)
    except NotImplementedError as error:
        raise TargetRefused(
            "its CUDA plugin is not installed, or did not load: install hlo-lint[gpu-compiler] "
            "(Linux), and set JAX_PLATFORMS=cpu where CUDA is not installed"
            if target["platform"] == "cuda"
            else "libtpu is not installed, or did not load: install jax[tpu] (Linux)"
        ) from error
    except _xla_error() as error:
        if BAD_TARGET in str(error):
            raise TargetRefused("it does not read this description of a GPU") from error
        if target["platform"] == "tpu" and "INVALID_ARGUMENT" in str(error):
            raise TargetRefused(str(error).partition(": ")[2]) from error
        raise
    finally:
        for name in ABSENT:
            del os.environ[name]
        os.environ.update(before)
    return _jax().sharding.Mesh(numpy.array(topology.devices[:1]), ("device",))


# The functions of a script


class CalledFunction(NamedTuple):
    """A function with the arguments to compile it for."""

    function: Callable[..., Any]
    arguments: Sequence[Any]
    keywords: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the function."""
        return str(getattr(self.function, "__name__", "") or "function")


def script_function(script: Path, name: str, shapes: list[Any] | None) -> CalledFunction:
    """A function of a script, with arguments of the given shapes or those that the script sets.

    Raises:
        ScriptFailed: if the script raises, or has no such function or no arguments for it.
    """
    module = _imported(script)
    function = getattr(module, name, None)
    if not callable(function):
        functions = [
            public
            for public, value in vars(module).items()
            if callable(value) and not public.startswith("_")
            if getattr(value, "__module__", None) == module.__name__
        ]
        raise ScriptFailed(
            f"{script} has no function {name}; there is {', '.join(functions) or 'none'}"
        )
    if shapes is not None:
        return CalledFunction(function, [_argument(shape) for shape in shapes], {})
    example = getattr(module, "example_args", None)
    if isinstance(example, Mapping):
        example = example.get(name)
    if example is not None:
        return CalledFunction(function, tuple(example), {})
    if not _takes_none(function):
        raise ScriptFailed(
            f"the arguments of {name} in {script} are unknown: give --shape for each argument, "
            "or set example_args in the script"
        )
    returned = _guarded(script, function)
    if isinstance(returned, tuple) and len(returned) == 2 and callable(returned[0]):
        return CalledFunction(returned[0], tuple(returned[1]), {})
    return CalledFunction(function, (), {})


def programs_of(script: Path, arguments: Sequence[str]) -> list[CalledFunction]:
    """The jitted functions that a script calls, once for each set of shapes.

    Raises:
        ScriptFailed: if the script raises, or calls no jitted function.
    """
    jax = _jax()

    recorded: dict[Any, CalledFunction] = {}
    real = jax.jit
    sys.argv = [str(script), *arguments]
    jax.jit = _recording(real, recorded)
    try:
        _guarded(script, lambda: runpy.run_path(str(script), run_name="__main__"))
    finally:
        jax.jit = real
    if not recorded:
        raise ScriptFailed(f"{script} ran without calling a jitted function; name a function")
    return list(recorded.values())


def _recording(real: Any, recorded: dict[Any, CalledFunction]) -> Any:
    """A `jax.jit` that records the shapes of each call, except calls while jax traces."""
    jax = _jax()

    def record(jitted: Any, arguments: Any, keywords: Any) -> None:
        leaves, tree = jax.tree.flatten((arguments, keywords))
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return
        types = tuple(
            (leaf.shape, leaf.dtype) if hasattr(leaf, "dtype") else repr(leaf) for leaf in leaves
        )
        arguments, keywords = jax.tree.map(_described, (arguments, keywords))
        recorded.setdefault((id(jitted), tree, types), CalledFunction(jitted, arguments, keywords))

    @functools.wraps(real)
    def jit(*given: Any, **options: Any) -> Any:
        if not given or not callable(given[0]):
            return lambda function: jit(function, *given, **options)
        jitted = real(*given, **options)

        @functools.wraps(jitted)
        def call(*arguments: Any, **keywords: Any) -> Any:
            record(jitted, arguments, keywords)
            return jitted(*arguments, **keywords)

        def lower(*arguments: Any, **keywords: Any) -> Any:
            record(jitted, arguments, keywords)
            return jitted.lower(*arguments, **keywords)

        for name in ("trace", "eval_shape", "clear_cache"):
            setattr(call, name, getattr(jitted, name))
        call.lower = lower  # type: ignore[attr-defined]
        return call

    return jit


def _imported(script: Path) -> Any:
    spec = importlib.util.spec_from_file_location(script.stem, script)
    if spec is None or spec.loader is None:
        raise ScriptFailed(f"{script} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[script.stem] = module
    _guarded(script, functools.partial(spec.loader.exec_module, module))
    return module


def _guarded(script: Path, run: Callable[[], Any]) -> Any:
    try:
        return run()
    except SystemExit as end:
        if end.code not in (None, 0):
            raise ScriptFailed(f"{script} ended with status {end.code}") from end
        return None
    except Exception as error:
        raise ScriptFailed(_where(error, script)) from error


def _where(error: BaseException, script: Path) -> str:
    """`script.py:12: ValueError: …`, at the last line of the script that was running."""
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    # The first line of some messages only announces the next: "Verification failed:".
    text = re.sub(r":\s*\n\s*", ": ", f"{type(error).__name__}: {message}".strip(), count=1)
    first_line = text.splitlines()[0]
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}:{error.offset}: {first_line}"
    frames = traceback.extract_tb(error.__traceback__)
    if not message and frames:  # an assertion of jax
        file = re.sub(r".*/site-packages/", "", frames[-1].filename)
        first_line += f" {frames[-1].line} ({file}:{frames[-1].lineno})"
    line = _line_in(script, error)
    return f"{script}:{line}: {first_line}" if line else f"{script}: {first_line}"


def _line_in(script: Path, error: BaseException | None) -> int | None:
    """The last line of the script in the traceback of an error or, after that, of its causes.

    What jax lowers is no longer on the stack: jax adds the line that traced it as the cause.
    """
    while error is not None:
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            if Path(frame.filename).resolve() == script.resolve():
                return frame.lineno
        error = error.__cause__
    return None


def _takes_none(function: Callable[..., Any]) -> bool:
    import inspect

    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return all(
        parameter.default is not parameter.empty
        or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        for parameter in parameters
    )


def _argument(shape: Any) -> Any:
    """An argument from `["float16", [2, 3]]`; a tuple from a list of such pairs."""
    jax = _jax()

    if isinstance(shape[0], str):
        return jax.ShapeDtypeStruct(
            tuple(shape[1]), jax.numpy.dtype(getattr(jax.numpy, shape[0], shape[0]))
        )
    return tuple(_argument(element) for element in shape)


# In the child


def read_target(*, target: Mapping[str, str]) -> Answer:
    """Have XLA read the description of a chip.

    Raises:
        TargetRefused: if this jax cannot compile for it.
    """
    _mesh(target)
    return None, ()


_loaded: list[tuple[Path, CalledFunction]] = []


def load_script(
    *, script: str, function: str | None, shapes: list[Any] | None, arguments: Sequence[str]
) -> Answer:
    """Load the programs of a script; returns names for their folders: `step`, then `step-2`.

    Raises:
        ScriptFailed: if the script raises, or lacks a function or arguments.
    """
    path = Path(script)
    sys.path.insert(0, str(path.resolve().parent))
    programs = (
        programs_of(path, arguments)
        if function is None
        else [script_function(path, function, shapes)]
    )
    _loaded.extend((path, program) for program in programs)
    names: list[str] = []
    for program in programs:
        plain = re.sub(r"[^\w.\-]", "_", program.name)
        numbers = (f"{plain}-{number}" for number in range(2, len(names) + 3))
        names.append(next(name for name in (plain, *numbers) if name not in names))
    return names, ()


def compile_loaded(
    *, number: int, target: Mapping[str, str], options: Mapping[str, Any], folder: str
) -> Answer:
    """Compile a loaded program; returns XLA's error or None, and jax's lowering error or None.

    Raises:
        ScriptFailed: if the only program cannot be lowered.
        TargetRefused, OptionRefused: if the target or an option is refused.
    """
    script, program = _loaded[number]
    Path(folder).mkdir(parents=True)
    try:
        lowered = lower_for(program.function, program.arguments, program.keywords, target)
    except TargetRefused:
        raise
    except Exception as error:
        if len(_loaded) == 1:
            raise ScriptFailed(_where(error, script)) from error
        return (None, _where(error, script)), ()
    _, failure = compile_lowered(lowered, Path(folder), {**unmeasured(target), **options})
    return (failure, None), ()
