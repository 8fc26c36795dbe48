"""Reads or compiles HLO texts with XLA, each in a child process of its own: XLA may abort or hang.

Run as a script, under any interpreter that has jaxlib and, to compile for a GPU, jax's CUDA plugin;
it needs nothing else. The plugin is called through the PJRT C API, because it takes HLO as it is
(`pjrt_c_api.h`, format "hlo"): jax's Python API takes StableHLO, which has no layouts and no
bitcasts. No driver and no device are needed.

Requests are a line of JSON, then the text; answers are lines of JSON. With the arguments FILE and
TARGET one file is compiled, for the GPU that a text of XLA's `GpuTargetConfigProto` describes.
"""

from __future__ import annotations

import ctypes as C
import importlib
import json
import os
import select
import signal
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# The PJRT C API is a table of functions that only grows at its end, so their places do not change.
_FUNCTIONS = 5
"""The place of the first function, in words: after the sizes and the version."""
_ERROR_DESTROY, _ERROR_MESSAGE, _PLUGIN_INITIALIZE = 0, 1, 3
_TOPOLOGY_CREATE, _COMPILE = 82, 89


def _arguments(*fields: tuple[str, Any]) -> type[C.Structure]:
    """The struct of a call's arguments: its size, extensions, then the fields."""
    head = [("struct_size", C.c_size_t), ("extension_start", C.c_void_p)]
    return type("Arguments", (C.Structure,), {"_fields_": [*head, *fields]})


def _text(name: str) -> tuple[tuple[str, Any], tuple[str, Any]]:
    return (name, C.c_char_p), (f"{name}_size", C.c_size_t)


_Nothing = _arguments()
_Message = _arguments(("error", C.c_void_p), ("message", C.c_void_p), ("size", C.c_size_t))
_Option = _arguments(*_text("name"), ("type", C.c_int), *_text("value"))
_Topology = _arguments(
    *_text("name"), ("options", C.c_void_p), ("options_size", C.c_size_t), ("topology", C.c_void_p)
)
_Program = _arguments(*_text("code"), *_text("format"))
_Compile = _arguments(
    ("topology", C.c_void_p),
    ("program", C.c_void_p),
    *_text("options"),
    ("client", C.c_void_p),
    ("executable", C.c_void_p),
)


def _varint(number: int) -> bytes:
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*parts, number))


class Plugin:
    """The CUDA plugin of jax, as a compiler for GPUs that are not there."""

    def __init__(self, path: Path) -> None:
        library = C.CDLL(str(path))
        library.GetPjrtApi.restype = C.c_void_p
        self._table = (C.c_size_t * 128).from_address(library.GetPjrtApi())
        if refusal := self._run(_PLUGIN_INITIALIZE, _Nothing(C.sizeof(_Nothing))):
            raise RuntimeError(refusal)

    def compile(self, module: bytes, target_config: str, replicas: int, partitions: int) -> str:
        """Compile a serialized HloModuleProto; the error, or empty text."""
        counts = b"\x20" + _varint(replicas) + b"\x28" + _varint(partitions)
        # CompileOptionsProto { executable_build_options { num_replicas num_partitions } }
        build = b"\x1a" + _varint(len(counts)) + counts
        options = (_Option * 2)(
            *(
                _Option(C.sizeof(_Option), None, name, len(name), 0, value, len(value))
                for name, value in (
                    (b"target_config", target_config.encode()),
                    (b"topology", b"1x1x1"),
                )
            )
        )
        topology = _Topology(C.sizeof(_Topology), None, b"", 0, C.addressof(options), 2, None)
        if error := self._run(_TOPOLOGY_CREATE, topology):
            return error
        program = _Program(C.sizeof(_Program), None, module, len(module), b"hlo", 3)
        where = topology.topology, C.addressof(program)
        request = _Compile(C.sizeof(_Compile), None, *where, build, len(build), None, None)
        return self._run(_COMPILE, request)

    def _run(self, number: int, arguments: C.Structure) -> str:
        """The error of a call; empty text if there is none."""
        error = self._function(number)(C.addressof(arguments))
        if not error:
            return ""
        message = _Message(C.sizeof(_Message), None, error)
        self._function(_ERROR_MESSAGE)(C.addressof(message))
        # An error may be without a message, and is one nevertheless.
        return C.string_at(message.message, message.size).decode(errors="replace") or "error"

    def _function(self, number: int) -> Any:
        return C.CFUNCTYPE(C.c_void_p, C.c_void_p)(self._table[_FUNCTIONS + number])


def plugin_path() -> Path | None:
    """The library of jax's CUDA plugin; None if it is not installed."""
    for number in ("12", "13"):
        try:
            spec = find_spec(f"jax_plugins.xla_cuda{number}")
        except ModuleNotFoundError:
            return None
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            path = Path(folder, "xla_cuda_plugin.so")
            if path.exists():
                return path
    return None


def _bindings() -> Any:
    """XLA's Python bindings of HLO: `_hlo`, and before jaxlib 0.10.2 `_jax`."""
    try:
        return importlib.import_module("jaxlib._hlo")
    except ModuleNotFoundError:
        return importlib.import_module("jaxlib._jax")


def _answer(xla: Any, plugin: Plugin | None, request: Any, text: bytes) -> dict[str, str]:
    try:
        module = xla.hlo_module_from_text(text.decode())
    except Exception as refusal:  # absl::Status, as jaxlib raises it
        return {"status": "refused", "message": f"{refusal}"}
    if plugin is None or not request.get("target_config"):
        return {"status": "ok", "message": ""}
    proto = bytes(module.as_serialized_hlo_module_proto())
    error = plugin.compile(proto, request["target_config"], *request.get("devices", (1, 1)))
    return {"status": "error" if error else "ok", "message": error}


def _serve(xla: Any, plugin: Plugin | None, request: Any, text: bytes) -> dict[str, str]:
    """Answer in a child process; what it wrote before it died is the message."""
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as log:
        child = os.fork()
        if not child:
            try:
                os.setpgid(0, 0)
                _limit(request.get("memory"))
                os.dup2(log.fileno(), 2)
                os.environ["XLA_FLAGS"] = request.get("flags", "")
                answer = json.dumps(_answer(xla, plugin, request, text)).encode()
                with os.fdopen(writer, "wb") as pipe:
                    pipe.write(answer)
            finally:
                os._exit(0)
        os.close(writer)
        answer, is_late = _read(reader, request["timeout"], child)
        os.close(reader)
        if is_late:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if is_late:
            return {"status": "timeout", "message": f"no answer in {request['timeout']:g} s"}
        log.seek(0)
        words = log.read().decode(errors="replace")[-100_000:]
        if answer:
            return {**json.loads(answer), "log": words}
        return {
            "status": "died",
            "message": words,
            "signal": signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "",
        }


def _limit(memory: int | None) -> None:
    """Limit the bytes that this process may allocate."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if memory is not None and (hard == resource.RLIM_INFINITY or memory < hard):
        resource.setrlimit(resource.RLIMIT_DATA, (memory, hard))


def _read(pipe: int, timeout: float, child: int) -> tuple[bytes, bool]:
    """The bytes that come, and True if they did not end in time.

    Standard input says nothing before the answer, unless it ends: nobody waits for it any more.
    """
    import time

    parts: list[bytes] = []
    end = time.monotonic() + timeout
    while True:
        watched = [pipe] if sys.stdin.closed or len(sys.argv) == 3 else [pipe, 0]
        ready, _, _ = select.select(watched, [], [], max(0.0, end - time.monotonic()))
        if 0 in ready:
            os.kill(child, signal.SIGKILL)
            os._exit(1)
        if not ready:
            return b"", True
        part = os.read(pipe, 1 << 16)
        if not part:
            return b"".join(parts), False
        parts.append(part)


def compile_file(path: Path, target: Path) -> int:
    """Compile one file and print how that ends; 0 if it is compiled, 1 if not, 2 without XLA."""
    library = plugin_path()
    if library is None:
        print("jax's CUDA plugin is not installed")
        return 2
    text = path.read_bytes()
    request = {
        "timeout": 600,
        "target_config": target.read_text("utf-8"),
        "flags": os.environ.get("XLA_FLAGS", ""),
    }
    answer = _serve(_bindings(), Plugin(library), request, text)
    print(f"{answer['status']}: {answer['message'].strip()}")
    return int(answer["status"] != "ok")


def main() -> None:
    """Serve requests until standard input ends; or compile one file."""
    if len(sys.argv) == 3:
        sys.exit(compile_file(Path(sys.argv[1]), Path(sys.argv[2])))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        import resource  # as fork, it is not on every system

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        xla = _bindings()
        path = plugin_path() if "compile" in sys.argv else None
        plugin = Plugin(path) if path else None
        state = {"status": "ready", "plugin": plugin is not None}
    except (ImportError, OSError, RuntimeError) as error:
        state = {"status": "missing", "message": f"{error}"}
    print(json.dumps(state), file=answers, flush=True)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        text = sys.stdin.buffer.read(request["size"])
        print(json.dumps(_serve(xla, plugin, request, text)), file=answers, flush=True)


if __name__ == "__main__":
    main()
