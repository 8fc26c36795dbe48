"""A test of interest: an XLA pass changes the values of the module."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from hlo_lint.dumps.directory import open_dump
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.selection import in_order, main_compilations
from hlo_lint.engine.reduce.interest import ONLY_PASSES, InterestVerdict
from hlo_lint.engine.values.inputs import leaves_of
from hlo_lint.engine.values.validate import ValueChange, validate_dumps
from hlo_lint.hlo.parser.literals import AnyArray
from hlo_lint.xla.compiler import XlaCompiler
from hlo_lint.xla.cpu import xla_cpus

DUMPING: Final = "--xla_dump_hlo_as_text --xla_dump_hlo_pass_re=.* --xla_dump_to="
"""Flags that make a compilation dump each step; the name of the folder follows."""


class ValuesTest(AbstractContextManager["ValuesTest"]):
    """A test for a pass of a release that changes the values of a module.

    XLA's compiler runs only that pass and dumps the module before and after it; both are run as
    `hlo-lint validate` runs the steps of a dump.
    """

    def __init__(
        self,
        compiler: XlaCompiler,
        target_config: str,
        flags: str,
        pass_name: str,
        given: Mapping[str, AnyArray],
    ) -> None:
        """`given` are inputs by parameter, for those that keep their shape."""
        self._compiler = compiler
        self._given = given
        self.target_config = target_config
        self.flags = f"{flags} --{ONLY_PASSES}={pass_name}".strip()
        self.pass_name = pass_name
        self._children = xla_cpus()

    def __exit__(self, *_: object) -> None:
        self._children.close()

    def __call__(self, text: str) -> InterestVerdict:
        """The verdict on a text."""
        return InterestVerdict(self.change(text) is not None)

    def change(self, text: str) -> ValueChange | None:
        """The change of the values by the pass; None if they are unchanged, or do not run."""
        with self._steps(text) as runs, self._children.one() as xla:
            for title, steps in runs:
                leaves = leaves_of(steps[0].module) if self._given and steps else ()
                given = {
                    leaf: self._given[name]
                    for leaf, (name, shape) in enumerate(leaves)
                    if name in self._given and self._given[name].shape == shape.dims
                }
                for change in validate_dumps(title, steps, xla, given=given).changes:
                    name = change.after.name
                    if name is not None and name.after == self.pass_name:
                        return change
        return None

    @contextmanager
    def _steps(self, text: str) -> Iterator[list[tuple[str, list[PassDump]]]]:
        """The title and dumps of each run, where only the pass compiles a text."""
        with tempfile.TemporaryDirectory(prefix="hlo_lint_") as folder:
            self._compiler.compile(text, self.target_config, f"{self.flags} {DUMPING}{folder}")
            yield [
                (
                    compilation.title,
                    [dump for dump in in_order(compilation) if dump.name and dump.name.step],
                )
                for compilation in main_compilations(open_dump(folder))
            ]
