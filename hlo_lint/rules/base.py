"""The base class of rules: page, examples, check, fix."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import cleandoc
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from hlo_lint.analysis.stage import Stage as Stage
from hlo_lint.dumps.compilation import Compilation as Compilation
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.phases import Precondition
from hlo_lint.hlo.ir import Computation as Computation
from hlo_lint.hlo.ir import HloFile, Instruction, Module
from hlo_lint.rules.entry import RuleEntry
from hlo_lint.rules.evidence import MeasuredHarm as MeasuredHarm
from hlo_lint.rules.evidence import PublicReport as PublicReport
from hlo_lint.rules.evidence import RefusedByXla as RefusedByXla
from hlo_lint.rules.evidence import RuleEvidence
from hlo_lint.rules.evidence import WrongValues as WrongValues
from hlo_lint.rules.findings import Finding as Finding
from hlo_lint.rules.findings import Severity as Severity
from hlo_lint.rules.options import Option, OptionValue
from hlo_lint.text.errors import RuleError, UsageError, nearest
from hlo_lint.text.patterns import late
from hlo_lint.text.phrases import in_a_line, short_repr
from hlo_lint.text.source import ParseDiagnostic, Span

if TYPE_CHECKING:
    from typing import Any, Self

    from hlo_lint.dumps.artefacts.autotune import Autotuning
    from hlo_lint.text.edits import Fix

Findings = Iterator[Finding]

MARK = "// error"
"""The mark at the end of each line of an example in which the rule must find something."""
_FINAL = "module_0001.m.sm_9.0a_gpu_after_optimizations.txt"
"""The name of a final module of XLA:GPU, for an H100."""


class FinalModule(NamedTuple):
    """The final module of a compilation, else its last dump."""

    module: Module
    is_final: bool
    next_pass: str | None = None
    """The next pass, if it is stated: later passes may still change the module."""

    def __repr__(self) -> str:
        return short_repr(self)


class BeforeAutotuner(NamedTuple):
    """The input of the autotuner, or the nearest dump before it."""

    module: Module
    releases: tuple[str, ...]
    """The matching pass lists, such as `gpu-jax0.10.0`; empty if the release is unknown."""
    is_stated: bool
    """True if the caller says that the autotuner comes next."""
    after: Module | None = None
    """The module after the autotuner, if it was dumped."""

    def __repr__(self) -> str:
        return short_repr(self)

    def was_taken_apart(self, fusion: Instruction) -> bool:
        """True if the autotuner has already replaced a fusion."""
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
    """The release of the jaxlib that parsed it, such as `0.10.2`."""
    refusals: tuple[ParseDiagnostic, ...]


class AutotuningRuns(NamedTuple):
    """All given logs of the autotuner, ordered by path; never empty."""

    logs: tuple[Autotuning, ...]
    names: tuple[str, ...]

    def __repr__(self) -> str:
        return short_repr(self)


class UnmetPrecondition(NamedTuple):
    """A precondition of a coming pass that the last dump violates."""

    rule: str
    demand: Precondition
    finding: Finding
    certain: bool
    """True if the pass certainly comes before any pass that would repair the violation."""
    reported: bool
    """True if the finding itself is in the report."""


class UnmetPreconditions(tuple[UnmetPrecondition, ...]):
    """The preconditions of coming passes that the last dump violates, from all rules."""

    __slots__ = ()


class DumpFolder(NamedTuple):
    """All compilations dumped to a folder. `Finding.file` is an index into `dumps`."""

    folder: Path
    compilations: tuple[Compilation, ...]

    def __repr__(self) -> str:
        return short_repr(self)

    @property
    def dumps(self) -> Sequence[PassDump]:
        """The first dump of each compilation."""
        return [compilation.dumps[0] for compilation in self.compilations]


def first_line(dump: PassDump) -> Span:
    """The span of a finding about a whole dump: `HloModule` and the name in the header."""
    text = dump.file.text
    start = max(text.find(dump.module.header), 0)  # comments may precede the header
    end = text.find("\n", start)
    line = text[start:end] if end >= 0 else text[start:]
    return Span(start, start + len(line.partition(",")[0]))


def without_marks(text: str) -> str:
    """A text without the marks of an example."""
    return "\n".join(line.removesuffix(MARK).rstrip() for line in text.split("\n"))


def _whole_of(text: str) -> str:
    return _computation.sub(_spelled_out, cleandoc(text))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Example:
    """An example text of a rule."""

    text: str = field(kw_only=False)
    as_module: Callable[[str], str] = _whole_of
    """Expands `text` to a module, when the example is shown or checked."""
    artefacts: Mapping[str, str] = field(default_factory=dict)
    """Other files of the dump directory, by name suffix."""
    file: str = ""
    """The file name of the text in its dump directory, if the rule depends on it."""
    beside: Mapping[str, str] = field(default_factory=dict)
    """Other files of that directory by name, if `file` is set; computations may be lines."""

    @classmethod
    def entry(cls, instructions: str, **more: Any) -> Self:
        """An example whose module has an entry with these instructions.

        Typed operands that none of them defines are the parameters, in the order of the text:
        `ROOT n = f32[8] negate(f32[8] p)`. The header may come first, or only a comment with the
        stage; without it, the header is bare. Then come other computations, with parameters
        likewise. One with a single instruction may be a line:
        `add { ROOT s = f32[] add(f32[] a, f32[] b) }`.
        """
        return cls(instructions, as_module=_entry_of, **more)

    @classmethod
    def final(cls, instructions: str, **more: Any) -> Self:
        """An example as for `entry` that is the final module of a run of XLA:GPU."""
        return cls.entry(instructions, file=_FINAL, **more)

    @classmethod
    def step(
        cls,
        lines: str,
        by: str = "algsimp",
        pipeline: str = "simplification",
        beside: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Self:
        """An example of a pass: it removed the lines that begin with `-`, and added those with `+`.

        Header, other computations and instructions of the entry are written as in `entry`.
        """
        text = cleandoc(lines)
        if not _begins_entry(text):
            head = begin[0] if (begin := _head(text)) else ""
            text = f"{head}ENTRY e {{\n{_with_parameters(text.removeprefix(head))}\n}}"
        sides = []
        for other in "+-":
            kept = [line for line in text.split("\n") if not line.startswith(other)]
            side = "\n".join(map(_without_sign, kept))
            side = side if side.startswith("HloModule") else f"HloModule m\n{side}"
            sides.append(_before_computation("\n\n", side))
        name = f"module_0001.m.000%d.{pipeline}.after_%s.before_%s.txt"
        others = {name % (1, "pipeline-start", by): sides[0], **(beside or {})}
        return cls(sides[1], file=name % (2, by, "pipeline-end"), beside=others, **more)

    def __repr__(self) -> str:
        return in_a_line(f"<{type(self).__name__} {self.shown.strip().partition(chr(10))[0]}>")

    @property
    def shown(self) -> str:
        """The text of the module with its marks."""
        return self.as_module(self.text)

    @property
    def source(self) -> str:
        """The text of the module without its marks."""
        return f"{without_marks(self.shown)}\n"

    @property
    def others(self) -> Mapping[str, str]:
        """The files beside it, spelled out and without marks."""
        return {name: without_marks(_whole_of(text)) for name, text in self.beside.items()}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Bad(Example):
    """An example in which a rule has findings exactly at the marked lines."""

    fixed: str = ""
    """The text after the fix; empty without a fix."""
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    """The options of the rule for the fix, by name as in a configuration."""
    marks: tuple[int, ...] = ()
    """The numbers of the wrong lines, if the text cannot have marks."""

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
        return f"{without_marks(self.as_module(self.fixed))}\n"


class Good(Example):
    """An example without findings, as close as possible to a bad example.

    Marks in its text do not count, so that a template may serve for both.
    """

    @property
    def shown(self) -> str:
        """The text of the module."""
        return without_marks(super().shown)


def _without_sign(line: str) -> str:
    """A line without the sign of a change, indented as before."""
    bare = line.lstrip("+-") if line[:1] in "+-" else line
    return " " + bare if bare != line and bare.startswith(" ") else bare


def _spelled_out(computation: re.Match[str]) -> str:
    """A computation with a line for each instruction, and its parameters."""
    line, lines = computation["line"], computation["lines"]
    body = _with_parameters(lines or f"  {line}")
    return f"{computation['head']}\n{body}\n}}{computation['tail'] or ''}"


_computation = late(
    r"^(?P<head>(?:ENTRY )?[\w.-]+ \{)"
    r"(?: (?P<line>(?:ROOT )?\S+ = (?:(?! = )[^\n])*) \}$|\n(?P<lines>.*?)\n\}(?P<tail>.*?)$)",
    re.M | re.S,
)
_header = late(r"(?://.*\n)*HloModule.*(?:\n[ \t].*)*|// hlo-lint: stage.*\n")


def _entry_of(text: str) -> str:
    rest = cleandoc(text)
    head = header[0] if (header := _header.match(rest)) else ""
    parts = [head if "HloModule" in head else f"{head}HloModule m"]
    rest = rest.removeprefix(head).lstrip("\n")
    while computation := _computation.match(rest):
        parts.append(_spelled_out(computation))
        rest = rest[computation.end() :].lstrip("\n")
    if rest:
        body = _with_parameters(dedent(rest)).replace("\n", "\n  ")
        parts.append(f"ENTRY e {{\n  {body}\n}}")
    return "\n\n".join(parts)


def _with_parameters(body: str) -> str:
    """Instructions, with parameters for the typed operands that they do not define."""
    types: dict[str, str] = {}
    defined = frozenset(_find_defined(body))

    def named(operand: re.Match[str]) -> str:
        before, type_text, name = operand.groups()
        if name in defined:
            return operand[0]
        types.setdefault(name, type_text)
        return f"{before}{name}"

    lines = _typed_operand.sub(named, body)
    indent = "  " if body.lstrip("\n")[:2] in ("- ", "+ ", "  ") else ""
    parameters = [f"{indent}{n} = {t} parameter({i})\n" for i, (n, t) in enumerate(types.items())]
    return "".join(parameters) + lines


_begins_entry = late("^[-+]?ENTRY", re.M).search
_head = late(
    r"(?:\n|[-+]?HloModule.*\n|[-+]?[\w.-]+ \{(?: .*\}\n|\n(?:.*\n)*?(?:[-+]?\}.*\n)+))*"
).match
"""The header and the computations before the instructions of the entry, with signs of a step."""
_before_computation = late(r"\n+(?=(?:ENTRY )?[\w.-]+ \{)").sub
_find_defined = late(r"^[-+ ]*(?:ROOT )?(\S+) = ", re.M).findall
_typed_operand = late(
    r"(\(|, )(\w+\[[^]]*](?:\{[^}]*})?|b?\((?:[^()]|\([^()]*\))*\)) ([a-z][\w.-]*)(?=[,)])"
)


class Rule:
    """The base class of rules. The docstring of a subclass is the rule's page.

    The rule's name is the class name in kebab-case; its family is the folder of its file (for a
    rule of another package, the name of the entry point in the group `hlo_lint.rules`). The method
    `check` yields findings, and its signature states its input (`engine/views.py`): a
    `Computation`, a `Module`, either with the `Stage` at which it was dumped, an `HloFile`, …
    A check is pure, so text that many dumps share is checked once.
    """

    severity: ClassVar[Severity] = Severity.ERROR
    precondition: ClassVar[Precondition | None] = None
    """The precondition of a pass; with it, the rule applies only before that pass."""
    checked_between_passes: ClassVar[bool] = False
    """True if the invariant holds between all passes: in a run that died, a violation is reported
    even if a later pass resolved it."""
    always_reported: ClassVar[bool] = False
    """True if the defect does harm even if a later pass removes it: values were read in the wrong
    order, text was skipped."""
    opcodes: ClassVar[frozenset[str] | None] = None
    """The opcodes to which the rule applies: computations and texts without them are not checked.
    None for all opcodes."""
    mentions: ClassVar[tuple[str, ...] | None] = None
    """Substrings of a text: the rule has no findings in a text with neither these nor `opcodes`."""
    skip_fusion_bodies: ClassVar[bool] = True
    """True if fusion bodies and computations of other threads are skipped."""
    handwritten_only: ClassVar[bool] = False
    """True if XLA's printer never writes such text: dumps of a run are skipped."""
    enabled_by_default: ClassVar[bool] = True
    """False if the rule runs only when selected by its own name."""
    subsumes: ClassVar[frozenset[str]] = frozenset()
    """Rules and families that report a part or a consequence of the same mistake: their findings
    about the same instruction become notes (`engine/subsumption.py`)."""
    command: ClassVar[str] = "check"
    """The command that reports the rule's findings."""
    messages: ClassVar[tuple[str, ...]] = ()
    """Parts of XLA's messages for this defect, prefixed with the source file if several files print
    them: `thunk_emitter.cc: Unsupported`. `…` matches any text. The failure of the rule's
    precondition counts without being listed."""
    examples: ClassVar[tuple[Bad | Good, ...]] = ()
    evidence: ClassVar[tuple[RuleEvidence, ...]] = ()
    """Proof that the defect does harm; each rule of hlo_lint has at least one."""
    reports: ClassVar[str] = ""
    """Public reports of the defect: projects and numbers, or commits of fixes."""
    entry_point: ClassVar[str] = ""
    """The entry point of a rule of another package (`plugins.py`)."""

    def is_applicable(self, module: Module) -> bool:
        """True if the rule may have findings in a module.

        If so, a missing artefact that the rule needs is reported as missing.
        """
        return True

    def introduction_notes(
        self, instruction: Instruction, before: Module, after: Module
    ) -> tuple[str, ...]:
        """Notes on how a pass introduced the finding, derived from its input and output."""
        return ()

    def fix(self, instruction: Instruction, module: Module) -> Fix | None:
        """The edits that fix the finding at an instruction; None if there is no sound fix.

        An override may have a further parameter `stage: Stage = Stage()`, which gets the module's
        stage in the pipeline.
        """
        return None

    def __repr__(self) -> str:
        return f"<Rule {self.name()}>"

    @classmethod
    def name(cls) -> str:
        """The name in kebab-case: `reshape-moves-data` for `ReshapeMovesData`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()

    @classmethod
    def family(cls) -> str:
        """The folder of the rule's file, such as `layout`; for plugins, the entry point's name."""
        return cls.entry_point or cls.__module__.split(".")[-2:][0]

    @classmethod
    def summary(cls) -> str:
        """The first line of the docstring."""
        return cls.page().partition("\n")[0]

    @classmethod
    def page(cls) -> str:
        """The docstring.

        Raises:
            RuleError: the rule has no docstring.
        """
        if cls.__doc__ is None:
            raise RuleError(f"{cls.__name__} has no docstring, which is its page")
        return cleandoc(cls.__doc__)

    @classmethod
    def options(cls) -> dict[str, Option[Any]]:
        """The options that a configuration may change, by name as in a configuration."""
        declared = (value for base in cls.__mro__ for value in vars(base).values())
        return {option.name: option for option in declared if isinstance(option, Option)}

    def with_options(self, values: Mapping[str, OptionValue]) -> Self:
        """The rule with changed options.

        Raises:
            UsageError: an option does not exist, or its value is invalid.
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
        """Opcodes and words; a text without any of them has no findings of this rule."""
        return cls.opcodes, cls.mentions

    @classmethod
    def fixable(cls) -> bool:
        """True if an example shows a fix."""
        return any(isinstance(example, Bad) and example.fixed for example in cls.examples)


def asked_by(check: Callable[..., object]) -> dict[str, str]:
    """The type names of a check's parameters, by parameter name."""
    annotations = getattr(check, "__annotations__", {})
    return {name: _type_name(type_) for name, type_ in annotations.items() if name != "return"}


def check_methods(rule: type[Rule]) -> list[str]:
    """The names of a rule's check methods, sorted."""
    return [name for name in dir(rule) if name == "check" or name.startswith("check_")]


def entry_of(rule: type[Rule]) -> RuleEntry:
    """The index entry of a rule."""
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
        (*rule.messages, *(() if rule.precondition is None else rule.precondition.messages)),
    )


def _type_name(annotation: object) -> str:
    """The bare name of an annotation: `Module` for `Module`, `"Module"` or `"hlo_lint.Module"`."""
    name = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return name.rpartition(".")[2]
