"""Old paths of public modules: each still imports, with a DeprecationWarning, for one release.

`hlo_lint.match`, `testing` and `live` are names of the public API and stay.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType

MODULES = {
    "hlo_lint.live": "hlo_lint.apps.jax.xla_hook",
    "hlo_lint.match": "hlo_lint.analysis.match",
    "hlo_lint.testing": "hlo_lint.apps.testing",
}
"""Public modules by the name that the docs give them."""

MOVED = {
    "hlo_lint.api": "hlo_lint.apps.api",
    "hlo_lint.capture": "hlo_lint.apps.jax.capture",
    "hlo_lint.cli": "hlo_lint.apps.cli.main",
    "hlo_lint.compare": "hlo_lint.analysis.diff",
    "hlo_lint.errors": "hlo_lint.text.errors",
    "hlo_lint.ir": "hlo_lint.hlo.ir",
    "hlo_lint.layouts": "hlo_lint.hlo.layouts",
    "hlo_lint.passes": "hlo_lint.analysis.pass_stats",
    "hlo_lint.pytest_plugin": "hlo_lint.apps.jax.pytest_plugin",
    "hlo_lint.rule": "hlo_lint.rules.base",
    "hlo_lint.shape": "hlo_lint.hlo.shape",
    "hlo_lint.source": "hlo_lint.text.source",
    "hlo_lint.strict": "hlo_lint.analysis.strict",
    "hlo_lint.syntax.attributes": "hlo_lint.hlo.attributes",
    "hlo_lint.syntax": "hlo_lint.hlo",
}
"""Modules of version 0.1.0 that the docs named, by their new path. Remove in the next release."""


def find(name: str) -> ModuleSpec | None:
    """The spec of a module under one of these names, or of a submodule of one."""
    for table in (MODULES, MOVED):
        for old, new in table.items():
            if name == old or name.startswith(f"{old}."):
                return ModuleSpec(name, _Alias(new + name[len(old) :], is_moved=table is MOVED))
    return None


class _Alias(Loader):
    """Loads a module under a second name; both names are the same module object."""

    def __init__(self, target: str, *, is_moved: bool) -> None:
        self._target = target
        self._is_moved = is_moved

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        if self._is_moved:
            message = f"{spec.name} has moved to {self._target}"
            warnings.warn(message, DeprecationWarning, stacklevel=2)
        module = import_module(self._target)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has put the alias's in its place
