"""The structure of computations: names, parameters, roots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hlo_lint.analysis.shape_inference.module import parameter_types
from hlo_lint.analysis.verifier.checks import on_computation, on_computation_if, on_module
from hlo_lint.analysis.verifier.scope import Scope, Violation, header_span
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.records import attributes_of, name_in, name_of, references_of, root_mark_of
from hlo_lint.rules.base import Good, Stage
from hlo_lint.rules.verifier import VerifierRule
from hlo_lint.text.patterns import late


class BrokenStructure(VerifierRule):
    """A computation with duplicate names, parameters or roots, or with foreign operands.

    ## Why
    XLA's graph of instructions cannot have these errors. A dump that has them was truncated,
    edited, or written by a broken pass (`VerifyHloStructure` and `CheckFusionInstruction` in
    `xla/service/hlo_verifier.cc`). Names must be unique across a module only in numbered dumps.
    """

    messages = (
        "Instruction name is not unique",
        "HLO has name that is not unique within module",
        "Computation name is not unique",
        "one computation should have only one ROOT",
        "Operand had no shape in HLO text",
        "Duplicate parameter number",
        "parameter number must be >= 0",
    )
    table = """
        unique-name: InstructionVerifier::Preprocess
          names are unique
            p = f32[8] parameter(0)
            p = f32[8] negate(p)  // error
            ROOT r = f32[8] add(p, p)
        name-unchanged: VerifyInstructionNameUnchanged
          with an option: instructions keep the names under which they were scheduled
        parameter-number: CheckFusionInstruction
          parameter numbers are 0, 1, 2, …
            q = f32[8] parameter(0)  // error
            ROOT r = f32[8] add(f32[8] p, q)
        single-root: VerifyHloStructure
          a single root
            ROOT q = f32[8] negate(f32[8] p)
            ROOT r = f32[8] add(p, q)  // error
        module-entry: HloVerifier::RunImpl
          a module has a name, and an entry that is not a fusion
            f { ROOT b = f32[8] fusion(f32[8] a), kind=kLoop, calls=e  // error }
            ROOT r = f32[8] negate(f32[8] p)
        operand-defined: VerifyHloStructure
          operands are in the same computation
            f { ROOT b = f32[8] negate(f32[8] a) }
            ROOT r = f32[8] add(f32[8] p, a)  // error
    """
    examples = (Good.entry("ROOT r = f32[8] add(f32[8] p, f32[8] q)"),)

    @on_computation_if(names=True)
    def names(self, scope: Scope) -> Iterator[Violation]:
        """Names are unique, and operands are instructions of the same computation."""
        computation = scope.computation
        seen: set[str] = set()
        for number, row in enumerate(computation.rows):
            if name_of(row) in seen:
                message = f"instruction already exists: %{name_of(row)}"
                yield Violation("unique-name", computation.at(number), message)
            seen.add(name_of(row))
        for number, row in enumerate(computation.rows):
            for place, name in enumerate(map(name_in, references_of(row))):
                if name and name not in computation.index:
                    message = f"%{name} is not in this computation"
                    yield Violation("operand-defined", computation.at(number), message, place)

    @on_computation
    def parameters(self, scope: Scope) -> Iterable[Violation]:
        """Parameter numbers start at 0, without gaps or duplicates."""
        return () if all(parameter_types(scope.computation)) else _misnumbered(scope.computation)

    @on_computation
    def roots(self, scope: Scope) -> Iterator[Violation]:
        """A computation has a single root."""
        computation = scope.computation
        roots = [number for number, row in enumerate(computation.rows) if root_mark_of(row)]
        for number in roots[1:]:
            first = name_of(computation.rows[roots[0]])
            message = f"one computation should have only one ROOT: %{first} is the first"
            yield Violation("single-root", computation.at(number), message)

    @on_computation_if(option="names_unchanged")
    def unchanged_names(self, scope: Scope) -> Iterator[Violation]:
        """With the option, instructions keep the names under which they were scheduled."""
        for number, row in enumerate(scope.computation.rows):
            name, scheduled = name_of(row), _find_scheduling_name(attributes_of(row))
            if scheduled is None or scheduled[1] in ("", name):
                continue
            if ".remat" not in name and ".clone" not in name:
                message = f"%{name} was scheduled as {scheduled[1]}"
                yield Violation("name-unchanged", scope.computation.at(number), message)

    @on_module
    def entry(self, module: Module, stage: Stage) -> Iterator[Violation]:
        """The entry computation is not the body of a fusion."""
        entries = {computation.name for computation in module.computations if computation.is_entry}
        for computation in module.computations:
            if entries.isdisjoint(computation.fusion_computations):
                continue
            for fusion in computation.with_opcode("fusion"):
                for _ in entries.intersection(fusion.called_computations):
                    message = "the entry computation is the body of this fusion"
                    yield Violation("module-entry", fusion, message)

    @on_module
    def module_name(self, module: Module, stage: Stage) -> Iterator[Violation]:
        """A module has a name."""
        if module.header and not module.name:
            yield Violation("module-entry", header_span(module), "the module has no name")

    @on_module
    def unique_names(self, module: Module, stage: Stage) -> Iterator[Violation]:
        """Instruction names are unique in the module."""
        if not stage.unique_names:
            return
        indices = [computation.index for computation in module.computations]
        if len(set().union(*indices)) == sum(map(len, indices)):
            return
        first: dict[str, Computation] = {}
        for computation in module.computations:
            for number, row in enumerate(computation.rows):
                name = name_of(row)
                owner = first.setdefault(name, computation)
                if owner is not computation:
                    message = f"%{name} is not unique: it is also in %{owner.name}"
                    yield Violation("unique-name", computation.at(number), message)


_find_scheduling_name = late(r'scheduling_name="([^"]*)"').search


def _misnumbered(computation: Computation) -> Iterator[Violation]:
    """Parameters with an invalid or duplicate number, and the last if a number is missing."""
    parameters = computation.with_opcode("parameter")
    for parameter in parameters:
        if parameter.parameter_number is None:
            message = f"{parameter.operands_text.strip() or 'nothing'} is not a parameter number"
            yield Violation("parameter-number", parameter, message)
    by_number: dict[int, Instruction] = {}
    for parameter in parameters:
        number = parameter.parameter_number
        if number in by_number:
            first = by_number[number]
            message = f"duplicate parameter number {number}: %{first.name} is the first"
            yield Violation("parameter-number", parameter, message)
        elif number is not None:
            by_number[number] = parameter
    last = max(by_number, default=-1)
    if last >= len(by_number):
        missing = next(number for number in range(last) if number not in by_number)
        message = f"parameter {last} exists, but parameter {missing} is missing"
        yield Violation("parameter-number", by_number[last], message)
