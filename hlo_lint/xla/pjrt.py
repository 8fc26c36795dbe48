"""XLA's compilers for absent GPUs or TPUs, called through PJRT's table of functions.

They take plain HLO (`pjrt_c_api.h`, format "hlo"): jax's Python API takes StableHLO, which has no
layouts and no bitcasts. No driver and no device are needed.

This file is also a script, which needs only jaxlib and jax's CUDA plugin: with the arguments FILE,
TARGET and, if it is not 1, the number of partitions it compiles a file, for the GPU that a text of
XLA's `GpuTargetConfigProto` describes, or, with libtpu, for a topology of TPUs: `v5e:2x2`.
`XLA_FLAGS` has the flags.
"""

from __future__ import annotations

import ctypes as C
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

ABSENT = {"JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1", "TPU_SKIP_MDS_QUERY": "1"}
"""The variables of a process that only compiles: it skips checks for CUDA's libraries or a TPU."""

# The table has five words of sizes and the version, then functions. It only grows at its end, so
# their positions are stable: tests call each of these in each release.
_FUNCTIONS = 5
_ERROR_MESSAGE, _PLUGIN_INITIALIZE, _SERIALIZE, _TOPOLOGY_CREATE, _COMPILE = 1, 3, 49, 82, 89


def _arguments(*fields: tuple[str, Any]) -> type[C.Structure]:
    """The struct of a call's arguments: its size, extensions, then the fields."""
    head = [("struct_size", C.c_size_t), ("extension_start", C.c_void_p)]
    return type("Arguments", (C.Structure,), {"_fields_": [*head, *fields]})


def _text(name: str) -> tuple[tuple[str, Any], tuple[str, Any]]:
    return (name, C.c_char_p), (f"{name}_size", C.c_size_t)


def _pointers(*names: str) -> list[tuple[str, Any]]:
    return [(name, C.c_void_p) for name in names]


_Nothing = _arguments()
_Message = _arguments(*_pointers("error", "message"), ("size", C.c_size_t))
_Option = _arguments(*_text("name"), ("type", C.c_int), *_text("value"))
_Topology = _arguments(
    *_text("name"), ("options", C.c_void_p), ("options_size", C.c_size_t), ("topology", C.c_void_p)
)
_Program = _arguments(*_text("code"), *_text("format"))
_Compile = _arguments(
    *_pointers("topology", "program"), *_text("options"), *_pointers("client", "executable")
)
_Serialize = _arguments(
    *_pointers("executable", "code"), ("size", C.c_size_t), *_pointers("serialized", "deleter")
)


def varint_bytes(number: int) -> bytes:
    """A number as protobuf writes it."""
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*parts, number))


def field_bytes(number: int, content: bytes) -> bytes:
    """A field of a message, a text or bytes."""
    return bytes((number << 3 | 2,)) + varint_bytes(len(content)) + content


def _parts(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The numbers of a message's fields with their contents, without those that are numbers."""
    at = 0

    def number() -> int:
        nonlocal at
        start = at
        while message[at] & 0x80:
            at += 1
        at += 1
        return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(message[start:at]))

    while at < len(message):
        key = number()
        if key & 7 == 2:
            size = number()
            at += size
            yield key >> 3, message[at - size : at]
        elif key & 7 == 0:
            number()
        else:
            at += 8 if key & 7 == 1 else 4


def _is_reordered(shape: bytes) -> bool:
    """True if an array of a `ShapeProto` has another layout than the descending one."""
    tuples, layout, minor_to_major = 4, 5, 1
    for number, part in _parts(shape):
        if number == tuples and _is_reordered(part):
            return True
        orders = (order for key, order in _parts(part) if key == minor_to_major)
        if number == layout and any(list(order) != sorted(order)[::-1] for order in orders):
            return True
    return False


def _override(text: str) -> bytes:
    truth = {"true": b"\x10\x01", "false": b"\x10\x00"}
    return truth.get(text) or field_bytes(1, text.encode())


class Plugin:
    """The compiler of a platform, from the library of a plugin."""

    def __init__(self, path: Path) -> None:
        """Load the library.

        Raises:
            OSError: it cannot be loaded.
            RuntimeError: it is of an incompatible PJRT, or fails to initialize.
        """
        library = C.CDLL(str(path))
        library.GetPjrtApi.restype = C.c_void_p
        self._table = (C.c_size_t * (_FUNCTIONS + _COMPILE + 1)).from_address(library.GetPjrtApi())
        major, minor = divmod(self._table[4], 1 << 32)[::-1]
        self.version = major, minor
        """The version of PJRT's C API."""
        self.code = b""
        """The executable of the last compilation, if it was to be kept."""
        if self._table[0] < C.sizeof(self._table) or major != 0:
            raise RuntimeError(f"{path} has version {major}.{minor} of PJRT's table of functions")
        if refusal := self._run(_PLUGIN_INITIALIZE, _Nothing(C.sizeof(_Nothing))):
            raise RuntimeError(refusal)

    def compile(
        self,
        module: bytes,
        target: Mapping[str, str],
        devices: Sequence[int] = (1, 1),
        flags: Mapping[str, str] | None = None,
        keeps_code: bool = False,
        *,
        partitioned: bool = False,
    ) -> str:
        """Compile a serialized HloModuleProto; the error, or empty text.

        With `keeps_code`, `self.code` is then the executable, as jax's clients load it.
        `target` has the arguments of jax's `get_topology_desc`; `devices` are the numbers of
        replicas and of partitions; `flags` are for this compilation, in addition to `XLA_FLAGS`.
        A partitioned module is the program of a partition.
        """
        replicas, partitions = devices
        counts = b"\x20" + varint_bytes(replicas) + b"\x28" + varint_bytes(partitions)
        counts += b"\x30\x01" * (partitions > 1 and not partitioned)
        # HloModuleProto { host_program_shape = 4 { parameters = 1 result = 2 } }
        entry = [shape for number, part in _parts(module) if number == 4 for shape in _parts(part)]
        layouts = b""
        # A program that runs has the default layouts: XLA's clients copy arrays for it.
        if not keeps_code and any(key in (1, 2) and _is_reordered(part) for key, part in entry):
            layouts = b"".join(field_bytes(1, shape) for number, shape in entry if number == 1)
            counts += b"".join(field_bytes(2, shape) for number, shape in entry if number == 2)
        # CompileOptionsProto { argument_layouts executable_build_options { result_layout
        # num_replicas num_partitions use_spmd_partitioning } }
        build = layouts + field_bytes(3, counts)
        for key, text in (flags or {}).items():
            # env_option_overrides { key value { bool_field or string_field } }
            override = field_bytes(1, key.encode()) + field_bytes(2, _override(text))
            build += field_bytes(7, override)
        texts = {name: text.encode() for name, text in target.items()}
        del texts["platform"]
        name = texts.pop("topology_name", b"")
        options = (_Option * len(texts))()
        for number, (key, value) in enumerate(texts.items()):
            named = key.encode(), len(key)
            options[number] = _Option(C.sizeof(_Option), None, *named, 0, value, len(value))
        named = name, len(name)
        listed = C.addressof(options), len(options)
        topology = _Topology(C.sizeof(_Topology), None, *named, *listed)
        if error := self._run(_TOPOLOGY_CREATE, topology):
            return error
        program = _Program(C.sizeof(_Program), None, module, len(module), b"hlo", 3)
        where = topology.topology, C.addressof(program)
        request = _Compile(C.sizeof(_Compile), None, *where, build, len(build))
        self.code = b""
        if error := self._run(_COMPILE, request):
            return error
        written = _Serialize(C.sizeof(_Serialize), None, request.executable)
        if keeps_code and not self._run(_SERIALIZE, written):
            self.code = C.string_at(written.code, written.size)
        return ""

    def _run(self, number: int, arguments: C.Structure) -> str:
        """The error of a call, or ""."""
        error = self._function(number)(C.addressof(arguments))
        if not error:
            return ""
        message = _Message(C.sizeof(_Message), None, error)
        self._function(_ERROR_MESSAGE)(C.addressof(message))
        # An error may lack a message.
        return C.string_at(message.message, message.size).decode(errors="replace") or "error"

    def _function(self, number: int) -> Any:
        return C.CFUNCTYPE(C.c_void_p, C.c_void_p)(self._table[_FUNCTIONS + number])


def plugin_path(platform: str = "cuda") -> Path | None:
    """The library of the plugin for `cuda` or `tpu`; None if it is not installed."""
    names = ("xla_cuda12", "xla_cuda13") if find_spec("jax_plugins") else ()
    files = {f"jax_plugins.{name}": "xla_cuda_plugin.so" for name in names}
    for module, name in ({"libtpu": "libtpu.so"} if platform == "tpu" else files).items():
        spec = find_spec(module)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            if (path := Path(folder, name)).exists():
                return path
    return None


def xla_bindings() -> ModuleType:
    """XLA's Python bindings of HLO; jaxlib named them differently before 0.10.2 and 0.6."""
    names = ("jaxlib._hlo", "jaxlib._jax", "jaxlib.xla_extension")
    return import_module(next((name for name in names if find_spec(name)), names[0]))


def module_of_text(data: bytes) -> bytes:
    """The serialized HloModuleProto of HLO text."""
    module = xla_bindings().hlo_module_from_text(data.decode())
    return bytes(module.as_serialized_hlo_module_proto())


def main(file: str, target: str, partitions: str = "1") -> int:
    """Compile a file and print the outcome; 0 if it compiles, 1 if not, 2 without XLA."""
    os.environ.update(ABSENT)
    platform = "cuda" if Path(target).exists() else "tpu"
    library = plugin_path(platform)
    if library is None:
        print(f"jax's plugin for {platform} is not installed")
        return 2
    chip = {"platform": "tpu", "topology_name": target}
    if platform == "cuda":
        description = Path(target).read_text("utf-8")
        chip = {"platform": "cuda", "target_config": description, "topology": "1x1x1"}
    module, devices = module_of_text(Path(file).read_bytes()), (1, int(partitions))
    error = Plugin(library).compile(module, chip, devices)
    print(f"error: {error.strip()}" if error else "ok")
    return 1 if error else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
