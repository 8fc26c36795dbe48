"""A test of interest: an XLA pass changes the values of the module."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from tempfile import TemporaryDirectory
from typing import Final

from hlo_lint.dumps.directory import open_dump
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
        with TemporaryDirectory(prefix="hlo_lint_") as folder, self._children.one() as xla:
            self._compiler.compile(text, self.target_config, f"{self.flags} {DUMPING}{folder}")
            for run in main_compilations(open_dump(folder)):
                steps = [dump for dump in in_order(run) if dump.name and dump.name.step]
                leaves = leaves_of(steps[0].module) if self._given and steps else ()
                given = {
                    leaf: self._given[name]
                    for leaf, (name, shape) in enumerate(leaves)
                    if name in self._given and self._given[name].shape == shape.dims
                }
                for change in validate_dumps(run.title, steps, xla, given=given).changes:
                    name = change.after.name
                    if name is not None and name.after == self.pass_name:
                        return change
        return None
