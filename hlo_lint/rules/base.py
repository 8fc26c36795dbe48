"""The base class of rules: one class a rule, with its page, examples, check and fix."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from hlo_lint.analysis.stage import Stage as Stage
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.phases import Precondition
from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.hlo.ir import HloFile, Instruction, Module
from hlo_lint.rules.entry import RuleEntry
from hlo_lint.rules.findings import Finding, Severity
from hlo_lint.rules.options import Option, OptionValue
from hlo_lint.text.errors import RuleError, UsageError, nearest
from hlo_lint.text.source import ParseDiagnostic, Span

if TYPE_CHECKING:
    from typing import Any, Self

    from hlo_lint.dumps.artefacts.autotune import Autotuning
    from hlo_lint.text.edits import Fix

Findings = Iterator[Finding]

MARK = "// error"
"""At the end of a line of an example: here, and nowhere else."""


class FinalModule(NamedTuple):
    """The module that a compiler ended with, else the last dump of it: what was going to run."""

    module: Module
    is_final: bool
    """True if compilation came to its end."""
    next_pass: str | None = None
    """The pass that comes next, if somebody says so: more may be changed than can be seen."""


class BeforeAutotuner(NamedTuple):
    """The module that the autotuner meets, or the nearest dump before it."""

    module: Module
    releases: tuple[str, ...]
    """The pass lists that fit, `gpu-jax0.10.0`; none where the release is not known."""
    is_stated: bool
    """True if the caller says that the autotuner comes next."""
    after: Module | None = None
    """The module after the autotuner, if it was dumped."""

    def was_taken_apart(self, fusion: Instruction) -> bool:
        """True if the autotuner has put something else in a fusion's place already."""
        if self.after is None:
            return False
        left = (computation.instruction(fusion.name) for computation in self.after.computations)
        return not any(
            instruction is not None and instruction.opcode == "fusion" for instruction in left
        )


class ParserVerdict(NamedTuple):
    """A file, and the verdict of XLA's own parser on it."""

    file: HloFile
    release: str
    """Of the jaxlib that was asked, `0.10.2`."""
    refusals: tuple[ParseDiagnostic, ...]
    """The reason for each module that it refuses."""


class AutotuningRuns(NamedTuple):
    """All logs of the autotuner that were given, in the order of their paths: at least one."""

    logs: tuple[Autotuning, ...]
    names: tuple[str, ...]
    """The name of each log's file."""


class UnmetPrecondition(NamedTuple):
    """A demand of a pass that comes next and that the last dump does not meet."""

    rule: str
    demand: Precondition
    finding: Finding
    certain: bool
    """True if the pass is known to come before any that would repair it."""
    reported: bool
    """True if the report has the finding itself."""


class Compilation(NamedTuple):
    """One compilation of one module, whole. `Finding.file` is a number into its dumps."""

    pipeline: Pipeline
    broken: tuple[UnmetPrecondition, ...]
    """The demands of passes to come that the last dump does not meet, by all rules."""

    @property
    def dumps(self) -> Sequence[PassDump]:
        """Every HLO text, in the order of the run."""
        return self.pipeline.dumps


class DumpFolder(NamedTuple):
    """All compilations whose dumps lie in one folder. `Finding.file` is a number into `dumps`."""

    folder: Path
    pipelines: tuple[Pipeline, ...]

    @property
    def dumps(self) -> Sequence[PassDump]:
        """The first dump of each compilation."""
        return [pipeline.dumps[0] for pipeline in self.pipelines]


def first_line(dump: PassDump) -> Span:
    """The place of a finding about a whole dump: the module's name on its own line."""
    text = dump.file.text
    start = max(text.find(dump.module.header), 0)  # comments may stand before it
    end = text.find("\n", start)
    line = text[start:end] if end >= 0 else text[start:]
    return Span(start, start + len(line.partition(",")[0]))


class Form(Enum):
    """Values of the option `move-as` of reshape-moves-data."""

    COPY = "copy"
    TRANSPOSE = "transpose"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Example:
    """A text that shows what a rule finds, or does not find."""

    text: str = field(kw_only=False)
    as_module: Callable[[str], str] = cleandoc
    """The module that `text` stands for. It is made when it is shown or checked, not here."""
    artefacts: Mapping[str, str] = field(default_factory=dict)
    """Other files of the dump directory, by the ending of their names."""
    file: str = ""
    """The name of the text's file in its dump directory, where the rule goes by it."""
    beside: Mapping[str, str] = field(default_factory=dict)
    """The other files of that directory, by name, where the text's has one."""

    @classmethod
    def entry(cls, instructions: str, **more: Any) -> Self:
        """A module that has these instructions and no other computation."""
        return cls(instructions, as_module=_entry_of, **more)

    @classmethod
    def module(cls, computations: str, **more: Any) -> Self:
        """A module that has these computations and nothing in its header."""
        return cls(computations, as_module=_module_of, **more)

    @property
    def shown(self) -> str:
        """The text of the module, with its marks."""
        return self.as_module(self.text)

    @property
    def source(self) -> str:
        """The text without its marks."""
        lines = self.shown.split("\n")
        return "\n".join(line.removesuffix(MARK).rstrip() for line in lines) + "\n"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Bad(Example):
    """A text in which a rule finds something: at the marked lines, and nowhere else."""

    fixed: str = ""
    """The fixed text; empty if there is no fix."""
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    """The options of the rule for the fix, by their names in a configuration."""
    marks: tuple[int, ...] = ()
    """The numbers of the wrong lines, where the text can bear no mark."""

    @property
    def marked(self) -> list[int]:
        """The numbers of the marked lines, from 1."""
        if self.marks:
            return list(self.marks)
        lines = self.shown.split("\n")
        return [number for number, line in enumerate(lines, 1) if line.endswith(MARK)]

    @property
    def fixed_source(self) -> str:
        """The fixed source."""
        return self.as_module(self.fixed) + "\n"


class Good(Example):
    """A text that is right: the nearest thing to a bad one."""


def _module_of(computations: str) -> str:
    return f"HloModule m\n\n{cleandoc(computations)}"


def _entry_of(instructions: str) -> str:
    body = cleandoc(instructions).replace("\n", "\n  ")
    return _module_of(f"ENTRY e {{\n  {body}\n}}")


class Rule:
    """One thing that can be wrong. A subclass is a rule; its docstring is its page.

    The class name in kebab-case is the rule's name, the folder of its file its family (of another
    package's rule, the name of the entry point in the group `hlo_lint.rules`). Its method
    `check` yields findings, and its signature says what it looks at (`engine/views.py`): a
    `Computation`, a `Module`, either with the `Stage` of the run it was dumped at, an `HloFile`, …
    It is pure, so what many dumps share is checked once.
    """

    severity: ClassVar[Severity] = Severity.ERROR
    precondition: ClassVar[Precondition | None] = None
    """The demand of a pass; the rule then binds only if that pass comes next."""
    checked_between_passes: ClassVar[bool] = False
    """True if XLA promises it between any two passes: a run that died is reported even if a later
    pass resolved it."""
    always_reported: ClassVar[bool] = False
    """True if the harm stays when a later pass removes the defect: values were read in the wrong
    order, text was not read."""
    opcodes: ClassVar[frozenset[str] | None] = None
    """The only opcodes that the rule looks at: a computation without any of them is not checked,
    nor is a text whose computations have none."""
    mentions: ClassVar[tuple[str, ...] | None] = None
    """Words of a text: where it has neither one of these nor one of `opcodes`, there is nothing
    for the rule to find."""
    skip_fusion_bodies: ClassVar[bool] = True
    """True if bodies of fusions and computations of other threads are left out."""
    handwritten_only: ClassVar[bool] = False
    """True if no printer writes what it finds: the dumps of a run are not looked at."""
    enabled_by_default: ClassVar[bool] = True
    """False if the rule runs only where its own name is selected."""
    subsumes: ClassVar[frozenset[str]] = frozenset()
    """Rules and families that find a part or a consequence of the same mistake: a finding of theirs
    about the same instruction becomes a note (`engine/subsumption.py`)."""
    command: ClassVar[str] = "check"
    """The command that reports it."""
    messages: ClassVar[tuple[str, ...]] = ()
    """Parts of the messages of XLA that stand for it, each after its source file where no other
    file says so: `thunk_emitter.cc: Unsupported`. `…` is what differs. What a precondition says of
    its failure is one without being named here."""
    examples: ClassVar[tuple[Bad | Good, ...]] = ()
    entry_point: ClassVar[str] = ""
    """The entry point that brought it, where another package has it (`plugins.py`)."""

    def is_applicable(self, module: Module) -> bool:
        """True if a module holds anything for the rule to judge.

        If it does, a missing artefact that the rule needs is reported as such.
        """
        return True

    def can_skip(self, module: Module, stage: Stage) -> bool:
        """True if the rule is known to find nothing in a module, without a check."""
        return False

    def introduction_notes(
        self, instruction: Instruction, before: Module, after: Module
    ) -> tuple[str, ...]:
        """Notes on how a pass introduced the finding, from its input and its output."""
        return ()

    def fix(self, instruction: Instruction, module: Module) -> Fix | None:
        """The edits that fix the finding at an instruction; None if there is no sound way.

        A parameter `stage: Stage = Stage()` besides is given what is known of the module's place in
        the pipeline.
        """
        return None

    @classmethod
    def name(cls) -> str:
        """`ReshapeMovesData` is `reshape-moves-data`."""
        return _kebab(cls.__name__)

    @classmethod
    def family(cls) -> str:
        """The folder of the rule's file: `layout`. In another package, its entry point's name."""
        return cls.entry_point or cls.__module__.split(".")[-2:][0]

    @classmethod
    def summary(cls) -> str:
        """The first sentence of the docstring."""
        return cls.page().partition("\n")[0]

    @classmethod
    def page(cls) -> str:
        """The docstring.

        Raises:
            RuleError: where a rule has none.
        """
        if cls.__doc__ is None:
            raise RuleError(f"{cls.__name__} has no docstring, which is its page")
        return cleandoc(cls.__doc__)

    @classmethod
    def options(cls) -> dict[str, Option[Any]]:
        """The thresholds that a configuration may change, by the names it has for them."""
        declared = (value for base in cls.__mro__ for value in vars(base).values())
        return {option.name: option for option in declared if isinstance(option, Option)}

    def with_options(self, values: Mapping[str, OptionValue]) -> Self:
        """The rule with other thresholds.

        Raises:
            UsageError: for an option that it does not have, or a value that does not fit.
        """
        declared = self.options()
        changed = type(self)()
        for name, value in values.items():
            if name not in declared:
                raise UsageError(f"{self.name()} has no option {name}: {nearest(name, declared)}")
            vars(changed)[declared[name].attribute] = declared[name].read(value)
        return changed

    @classmethod
    def needs(cls) -> tuple[Iterable[str] | None, Iterable[str] | None]:
        """The opcodes and the words of which a text has one where the rule finds anything."""
        return cls.opcodes, cls.mentions

    @classmethod
    def fixable(cls) -> bool:
        """True if an example shows a fix."""
        return any(isinstance(example, Bad) and example.fixed for example in cls.examples)


def asked_by(check: Callable[..., object]) -> dict[str, str]:
    """The type that each parameter of a check asks for, by name."""
    annotations = getattr(check, "__annotations__", {})
    return {name: _type_name(type_) for name, type_ in annotations.items() if name != "return"}


def check_methods(rule: type[Rule]) -> list[str]:
    """The names of a rule's checks, in their order."""
    names = {name for class_ in rule.__mro__ for name in vars(class_)}
    return sorted(name for name in names if name == "check" or name.startswith("check_"))


def entry_of(rule: type[Rule]) -> RuleEntry:
    """The entry of a rule in the index."""
    opcodes, words = rule.needs()
    checks = [getattr(rule, method) for method in check_methods(rule)]
    asked = {tuple(sorted(asked_by(check).values())) for check in checks}
    return RuleEntry(
        rule.name(),
        rule.family(),
        rule.__module__,
        rule.__name__,
        rule.enabled_by_default,
        rule.precondition.demanded_by if rule.precondition is not None else "",
        tuple(sorted(asked)),
        None if opcodes is None else tuple(sorted(opcodes)),
        None if words is None else tuple(sorted(words)),
    )


def _type_name(annotation: object) -> str:
    """`Module` for `Module`, for `"Module"` and for `"hlo_lint.Module"`."""
    name = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return name.rpartition(".")[2]


def _kebab(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()
