"""Saves the inputs of the first run of each module that jax compiles, beside the module's dumps.

It runs in the process of a user's program, perhaps without hlo_lint.
"""

from __future__ import annotations

import glob
import os
import re
import sys
from importlib import util
from types import ModuleType
from typing import Any

MAX_BYTES = 1 << 30
"""The largest inputs that are saved."""
_PATCHED = "jax._src.interpreters.pxla"


class RecordsInputs:
    """A finder of Python's imports that patches jax as it is imported."""

    def __init__(self, folder: str) -> None:
        """`folder` is that of the dumps."""
        self.folder = folder

    def find_spec(self, name: str, *_: object) -> Any:
        """The spec of the module that is patched; None for any other."""
        if name != _PATCHED:
            return None
        sys.meta_path.remove(self)
        spec = util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_patch(module: ModuleType) -> None:
                execute(module)
                self._patch(module)

            spec.loader.exec_module = execute_and_patch  # type: ignore[method-assign]
        return spec

    def _patch(self, pxla: Any) -> None:
        executable = getattr(pxla, "ExecuteReplicated", None)
        if executable is None:
            return
        begin = executable.__init__

        def begin_and_watch(own: Any, *arguments: Any, **options: Any) -> None:
            begin(own, *arguments, **options)
            try:
                self._watch(own)
            except Exception as error:  # a plugin may not give the module
                print(f"hlo-lint: the inputs are not saved: {error}", file=sys.stderr)

        executable.__init__ = begin_and_watch

    def _watch(self, executable: Any) -> None:
        """Have the arrays saved that the first run hands over: later ones do not pass Python."""
        title, handler = self._newest(executable.xla_executable), executable.in_handler.handler

        def handle(arrays: Any) -> Any:
            executable.in_handler.handler = handler
            placed = handler(arrays)
            if title:
                _save(placed, os.path.join(self.folder, f"{title}.inputs.npz"))
            return placed

        executable.in_handler.handler = handle

    def _newest(self, executable: Any) -> str:
        """The title of the last module with the executable's name: `module_0004.jit_f`."""
        name = re.sub(r"[/\\\[\] ]", "_", executable.hlo_modules()[0].name)
        pattern = os.path.join(glob.escape(self.folder), f"module_*.{glob.escape(name)}.*")
        title = re.compile(rf"module_(\d+)\.{re.escape(name)}(\.cl_\d+)?(?=\.)").match
        matches = filter(None, map(title, map(os.path.basename, glob.glob(pattern))))
        newest = max(matches, key=lambda match: int(match[1]), default=None)
        return newest[0] if newest else ""


def _save(arrays: Any, path: str) -> None:
    try:
        import numpy

        if sum(array.nbytes for array in arrays) <= MAX_BYTES:
            numpy.savez(path, **{f"{number}": array for number, array in enumerate(arrays)})
            return
        reason = f"they have more than {MAX_BYTES >> 20} MB"
    except Exception as error:  # whatever happens, the user's program goes on
        reason = f"{type(error).__name__}: {error}"
    print(f"hlo-lint: {path}: the inputs are not saved: {reason}", file=sys.stderr)
