"""Mistakes of a script that its text shows, before jax is downloaded to import it.

Called in a child process: under the Python whose syntax counts, without jax. Where a text leaves a
doubt, there is no mistake: the script itself is imported later.
"""

from __future__ import annotations

import ast
import os
import re
import symtable
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlo_lint.xla.child import Answer

_changes_imports = re.compile(rb"\bsys\s*\.\s*(path|modules|meta_path)|\bfrom sys import|\bsite\b")
_changes_names = re.compile(r"\b(globals|exec|setattr|__getattr__)\b|import \*")


def mistake(
    *, script: str, function: str | None, has_shapes: bool, modules: Sequence[str] | None
) -> Answer:
    """The reason why a script cannot be imported, or has no function to compile; None if it may.

    Args:
        script: the path of the script.
        function: the function to compile; None if the script is run.
        has_shapes: True if the caller gives the shapes of the arguments.
        modules: the modules outside the standard library that can be imported; None for any.
    """
    path = Path(script)
    try:
        text = path.read_bytes()
        compile(text, script, "exec", dont_inherit=True)
        tree = ast.parse(text, script)
    except SyntaxError as error:
        return f"{error.filename}:{error.lineno}:{error.offset}: SyntaxError: {error.msg}", ()
    except (OSError, ValueError, RecursionError, MemoryError):
        return None, ()
    if function is not None and (reason := _without(path, text, tree, function, has_shapes)):
        return reason, ()
    if modules is not None:
        # Python looks beside the script first, then where PYTHONPATH says.
        places = [str(path.resolve().parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        roots = [Path(place) for place in places if place]
        importable = {*modules, *sys.stdlib_module_names, "__main__", "hlo_lint"}
        reasons: dict[str, str] = {}
        for file, line, name in _missing(path, tree, roots, importable, {path.resolve()}):
            reason = f"{file}:{line}: ModuleNotFoundError: No module named {name!r}"
            reasons.setdefault(name, reason)
        return "; ".join(reasons.values()) or None, ()
    return None, ()


def _without(
    path: Path, text: bytes, tree: ast.Module, function: str, has_shapes: bool
) -> str | None:
    """The reason why a script has no such function, or no arguments for it."""
    source = text.decode("utf-8", "replace")
    if _changes_names.search(source):
        return None
    table = symtable.symtable(source, str(path), "exec")
    names = {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
    }
    names |= set(_globals(table))
    definitions = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]
    if function not in names:
        public = [node.name for node in definitions if not node.name.startswith("_")]
        return f"{path} has no function {function}; there is {', '.join(public) or 'none'}"
    for node in definitions:
        # A decorator may give the arguments, and so may a later definition.
        if isinstance(node, ast.FunctionDef) and node.name == function and not node.decorator_list:
            if _takes_none(node.args) or has_shapes or "example_args" in names:
                return None
            if sum(definition.name == function for definition in definitions) == 1:
                return unknown_arguments(function, path)
    return None


def unknown_arguments(function: str, script: Path) -> str:
    """The message for a function without known arguments."""
    return (
        f"the arguments of {function} in {script} are unknown: give --shape for each argument, "
        "or set example_args in the script"
    )


def _globals(table: symtable.SymbolTable) -> Iterator[str]:
    """The names that functions of a module assign with `global`."""
    for child in table.get_children():
        for symbol in child.get_symbols():
            if symbol.is_declared_global() and symbol.is_assigned():
                yield symbol.get_name()
        yield from _globals(child)


def _takes_none(arguments: ast.arguments) -> bool:
    required = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
    return not required and None not in arguments.kw_defaults


def _missing(
    path: Path, tree: ast.Module, roots: Sequence[Path], importable: set[str], seen: set[Path]
) -> Iterator[tuple[Path, int, str]]:
    """The imports that fail when a file is imported, and those in files beside it.

    Only imports that are always executed count: not those in functions, `if` and `try`.
    """
    if _changes_imports.search(path.read_bytes()):
        return
    for node in tree.body:
        for name, level in _imported(node):
            places = [path.resolve().parents[level - 1]] if level else roots
            files = list(_files(name, places))
            top = name.partition(".")[0]
            # An extension module, and a folder of modules without `__init__.py`.
            there = any((root / top).is_dir() or any(root.glob(f"{top}.*")) for root in roots)
            if not (level or files or top in importable or there):
                yield path, node.lineno, top
            for file in files:
                if file.resolve() not in seen:
                    seen.add(file.resolve())
                    yield from _missing(file, _tree(file), roots, importable, seen)


def _tree(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def _imported(node: ast.stmt) -> Iterator[tuple[str, int]]:
    """The modules that a statement imports: `a.b` for `from a.b import c`, and perhaps `a.b.c`.

    Beside each the level of a relative import; 0 for an absolute one.
    """
    if isinstance(node, ast.Import):
        yield from ((alias.name, 0) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        prefix = f"{node.module}." if node.module else ""
        if node.module:
            yield node.module, node.level
        yield from ((f"{prefix}{alias.name}", node.level) for alias in node.names)


def _files(module: str, roots: Sequence[Path]) -> Iterator[Path]:
    """The Python files that are read for a module: its own, and those of the packages around it."""
    folders = list(roots)
    for part in module.split("."):
        for folder in folders:
            package, file = folder / part / "__init__.py", folder / f"{part}.py"
            if package.is_file():
                yield package
                folders = [folder / part]
                break
            if file.is_file():
                yield file
                return
        else:
            folders = [folder / part for folder in folders]
