"""Write a directory that shows a problem to a maintainer of XLA, jax, or the program.

| file | |
|---|---|
| `reduced.hlo` | the module, with FileCheck lines |
| `fixed.hlo` | the module with the fix, if there is one |
| `test_repro.py` | a pytest that fails until the problem is fixed |
| `repro_test.cc` | a test in the style of XLA's own |
| `run.sh`, `compile_hlo.py`, `gpu.pbtxt` | reproduce it with a released jax, without a GPU |
| `REPORT.md` | the bug report |
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from string import Template

from hlo_lint.dumps.messages import find_sources
from hlo_lint.engine.findings import Diagnostic
from hlo_lint.engine.reduce.interest import LOOSE
from hlo_lint.engine.reduce.values import DUMPING
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.report.text import render_concise
from hlo_lint.rules.base import Rule
from hlo_lint.text.files import write
from hlo_lint.text.phrases import shortened
from hlo_lint.xla import pjrt
from hlo_lint.xla.environments import Platform

FIXED = "fixed.hlo"
_SPECIFICATION = "https://openxla.org/stablehlo/spec"
_RENAMED = {"broadcast": "broadcast_in_dim", "dot": "dot_general", "conditional": "case"}
"""The names in StableHLO of operations that XLA calls otherwise."""
_TITLE = 120
"""The most characters of a message in a title."""
_TEMPLATES = Path(__file__).parent

_PASSES = {
    "dce": ("xla/hlo/transforms/simplifiers/hlo_dce.h", "HloDCE"),
    "flatten-call-graph": (
        "xla/hlo/transforms/simplifiers/flatten_call_graph.h",
        "FlattenCallGraph",
    ),
    "layout_normalization": ("xla/service/layout_normalization.h", "LayoutNormalization"),
    "reshape-decomposer": (
        "xla/hlo/transforms/expanders/reshape_decomposer.h",
        "ReshapeDecomposer",
    ),
    "tuple-simplifier": ("xla/hlo/transforms/simplifiers/tuple_simplifier.h", "TupleSimplifier"),
}
"""Headers and classes of passes whose constructors take no arguments."""


@dataclass(frozen=True)
class Environment:
    """The released packages and the flags that show a problem."""

    jax: str
    """The release of jax."""
    target_config: str
    """The description of the GPU to compile for."""
    flags: str = ""
    """`XLA_FLAGS`."""
    run_flags: str = ""
    """The flags of the run that wrote the dump, if they differ."""


@dataclass(frozen=True)
class Repro:
    """The files of the directory."""

    text: str
    """The reduced module."""
    message: str
    """The message of the rule, or of XLA."""
    size: tuple[int, int]
    """The numbers of instructions before and after the reduction."""
    environment: Environment
    finding: Diagnostic | None = None
    """The finding in the input, with the pass that introduced it."""
    reduced: Diagnostic | None = None
    """The finding in the reduced module."""
    rule: Rule | None = None
    """The rule of the finding; `values-changed` if a pass changes the values."""
    before: str | None = None
    """The next pass, if the rule needs it stated."""
    fixed: str | None = None
    """The reduced module with the fix of the rule."""
    module: str = LOOSE
    """The name of the module's file."""
    failing_pass: str = ""
    """The pass that ends the compilation, or writes a wrong module; empty if it is unknown."""
    step: tuple[str, ...] = ()
    """The module before and after that pass, as XLA prints it; empty if it writes none."""
    program: str = ""
    """A program in jax that shows the problem."""

    @property
    def name(self) -> str:
        """The rule, or `xla-crash`."""
        return self.rule.name() if self.rule else "xla-crash"

    @property
    def changes_values(self) -> bool:
        """True if an XLA pass changes the values of the module."""
        return self.rule is not None and self.reduced is None

    @property
    def pass_name(self) -> str:
        """The pass that rejects the module or changes its values; empty if unknown."""
        if self.before:
            return self.before
        if self.rule and self.rule.precondition:
            return self.rule.precondition.demanded_by
        named = re.search(r"--xla_enable_hlo_passes_only=([\w\-]+)", self.environment.flags)
        return named[1] if named else self.failing_pass


def write_repro(repro: Repro, folder: Path) -> list[Path]:
    """Write the directory, and return the paths of its files.

    Raises:
        DumpError: a file cannot be written.
    """
    kind = "values" if repro.changes_values else "finding" if repro.rule else "crash"
    files = {
        repro.module: _module(repro),
        "test_repro.py": _filled(f"test_{kind}.py", repro),
        "repro_test.cc": _cpp_test(repro),
        "run.sh": _filled("run.sh", repro),
        "compile_hlo.py": Path(pjrt.__file__).read_text("utf-8"),
        "gpu.pbtxt": repro.environment.target_config,
        "REPORT.md": "\n\n".join(_sections(repro)) + "\n",
    }
    if repro.fixed is not None:
        files[FIXED] = repro.fixed
    for name, text in files.items():
        write(folder / name, text)
    return [folder / name for name in files]


def _filled(name: str, repro: Repro) -> str:
    """A template filled with the facts of a repro."""
    environment = repro.environment
    flags, then = environment.flags, ""
    if repro.changes_values:
        flags = f"{flags} {DUMPING}dump"
        then = " && exec hlo-lint validate dump"
    return Template((_TEMPLATES / f"{name}.txt").read_text("utf-8")).substitute(
        name=repro.name,
        identifier=re.sub(r"\W", "_", repro.name),
        message=repro.message.partition("\n")[0],
        quoted=repr(_stable(repro.message)),
        rules=f'["{repro.name}"]',
        before=f", before={repro.before!r}" if repro.before else "",
        module=repro.module,
        flags=environment.flags,
        shell_flags=shlex.quote(flags),
        exec="" if then else "exec ",
        then=then,
        dumping=DUMPING,
        packages=" ".join(package.format(environment.jax) for package in Platform.GPU.packages),
        jax=environment.jax,
    )


def _stable(message: str) -> str:
    """The part of XLA's message that is stable across runs: its first line, up to a name."""
    return re.split(r"[\n%]", message, maxsplit=1)[0].strip()


# ---- FileCheck


def _module(repro: Repro) -> str:
    """The reduced module, with FileCheck lines for the command and its output."""
    if repro.reduced is not None:
        before = f" --before {repro.before}" if repro.before else ""
        run = (
            f"hlo-lint check %s --isolated --exit-zero --select {repro.name}{before} "
            "--output-format concise | filecheck %s"
        )
        line = render_concise(repro.reduced)
        # The path and place change with the file and these lines, so a pattern matches them.
        wanted = f"{{{{:[0-9]+:[0-9]+:}}}}{_escaped(line.split(':', 3)[3])}"
    elif repro.changes_values:
        flags = f"XLA_FLAGS={shlex.quote(f'{repro.environment.flags} {DUMPING}%t')}"
        run = (
            f"{flags} python compile_hlo.py %s gpu.pbtxt && "
            "hlo-lint validate %t --output-format concise | filecheck %s"
        )
        wanted = f"after_{repro.pass_name}.{{{{.*}}}} error[{repro.name}]"
    else:
        flags = f"XLA_FLAGS={shlex.quote(repro.environment.flags)} " * bool(repro.environment.flags)
        run = f"{flags}python compile_hlo.py %s gpu.pbtxt | filecheck %s"
        wanted = _escaped(_stable(repro.message))
    return f"// RUN: {run}\n// CHECK: {wanted}\n{repro.text}"


def _escaped(text: str) -> str:
    """A text escaped for FileCheck, to which `{{` and `[[` have a meaning."""
    return text.replace("{{", "{{[{][{]}}").replace("[[", "{{[[][[]}}")


# ---- the test for XLA


def _cpp_test(repro: Repro) -> str:
    header, cpp = _PASSES.get(repro.pass_name, ("", ""))
    text = re.sub(r"^//[^\n]*\n", "", repro.text, flags=re.M)
    is_refused = repro.rule is not None and repro.rule.family() == "verifier"
    kind = "Unverified" if is_refused else "Verified"
    steps = (
        f"  auto module = ParseAndReturn{kind}Module(kHlo);\n"
        "  ASSERT_TRUE(module.ok()) << module.status();\n"
    )
    if repro.changes_values:
        missing = f"  // Create the pass {repro.pass_name} here, named `pass`.\n"
        steps = f"  {cpp} pass;\n" if cpp else missing
    elif is_refused:
        steps += (
            "  const absl::Status status = verifier().Run(module->get()).status();\n"
            "  EXPECT_FALSE(status.ok());\n"
        )
    elif cpp:
        steps += (
            f"  {cpp} pass;\n"
            "  const absl::Status status = RunHloPass(&pass, module->get()).status();\n"
            "  EXPECT_TRUE(status.ok()) << status;\n"
        )
    elif repro.pass_name:
        steps += f"  // Run the pass {repro.pass_name} on it; it must succeed.\n"
    name = "values_test.cc.txt" if repro.changes_values else "repro_test.cc.txt"
    return Template((_TEMPLATES / name).read_text("utf-8")).substitute(
        message=repro.message.partition("\n")[0],
        include=f'#include "{header}"\n' if cpp and not is_refused else "",
        test="".join(part.capitalize() for part in re.split(r"\W+", repro.name)),
        case="IsRefused" if is_refused else "IsTaken",
        sensitive="true" if re.search(r"\]\{[\d,]+", text) else "false",
        hlo=text.strip(),
        mark="hlo" if ')"' in text else "",
        steps=steps,
    )


# ---- the bug report


def _sections(repro: Repro) -> Iterator[str]:
    before, after = repro.size
    environment = repro.environment
    shows = (
        "runs the pass and compares the values"
        if repro.changes_values
        else "compiles the module and reports the result"
    )
    yield f"# [XLA:GPU] {_title(repro)}"
    yield f"Reduced from {before} instructions to {after}:"
    yield f"```\n{repro.text.strip()}\n```"
    if repro.program:
        yield f"In jax:\n\n```python\n{repro.program.strip()}\n```"
    yield "## Message"
    yield f"```\n{repro.message.strip()}\n```"
    yield semantics(repro.text)
    notes = list(_notes(repro))
    if notes:
        yield "\n".join(f"- {note}" for note in notes)
    if cause := _cause(repro):
        yield f"## Probable cause\n\n{cause}"
    yield "## Reproduce"
    yield (
        f"`sh run.sh` creates an environment with jax {environment.jax}, {shows}; it needs no GPU."
    )
    if environment.flags:
        yield f"XLA_FLAGS: `{environment.flags}`"
    until = "the pass keeps the values" if repro.changes_values else "the module is accepted"
    yield f"`pytest test_repro.py` fails until {until}; `repro_test.cc` is for XLA."
    if environment.run_flags:
        yield "The flags of the original run:"
        yield f"```\n{environment.run_flags}\n```"
    if repro.rule is not None:
        yield "## Why"
        yield repro.rule.page().partition("## Why")[2].partition("\n## ")[0].strip()
    if repro.fixed is not None:
        broken, fixed = (text.splitlines(keepends=True) for text in (repro.text, repro.fixed))
        difference = "".join(unified_diff(broken, fixed, repro.module, FIXED))
        yield f"## A correct module\n\n```diff\n{difference.rstrip()}\n```"


def _title(repro: Repro) -> str:
    """The title in the manner of XLA's issues: the pass, and what it does to which operations."""
    if repro.changes_values:
        return f"{repro.pass_name} gives wrong results for {', '.join(_operations(repro.text))}"
    first = repro.message.partition("\n")[0].removeprefix("during context [hlo verifier]: ")
    first = shortened(first.rstrip(":"), _TITLE)
    return f"{repro.pass_name}: {first}" if repro.pass_name and not repro.rule else first


def _cause(repro: Repro) -> str:
    """The change that the pass makes, or the part of XLA that ends; empty if it is unknown."""
    if repro.step:
        before, after = (text.strip().splitlines()[1:] for text in repro.step)
        lines = "\n".join([*unified_diff(before, after, lineterm="")][3:])
        return f"The pass `{repro.pass_name}` does this:\n\n```diff\n{lines}\n```"
    if repro.rule is not None:
        return ""
    ends = f"The pass `{repro.pass_name}` ends the compilation." if repro.pass_name else ""
    sources = [
        f"The message comes from {source.component.name}: `{source.path}`."
        for source in find_sources(repro.message)[:1]
    ]
    return " ".join(filter(None, [ends, *sources]))


def _operations(text: str) -> list[str]:
    """The opcodes of a module except parameters, the entry's first, by StableHLO's names."""
    bodies = sorted(parse_file(text).modules[0].computations, key=lambda body: not body.is_entry)
    opcodes = (row.opcode for body in bodies for row in body.instructions)
    names = dict.fromkeys(_RENAMED.get(opcode, opcode.replace("-", "_")) for opcode in opcodes)
    return [name for name in names if name != "parameter"]


def semantics(text: str) -> str:
    """The sections of StableHLO's specification that define the operations of a module."""
    links = (f"[{name}]({_SPECIFICATION}#{name})" for name in _operations(text))
    return f"What is right, by StableHLO's specification: {', '.join(links)}."


def _notes(repro: Repro) -> Iterator[str]:
    finding = repro.finding
    if finding is None:
        return
    if finding.introduced_by is not None:
        introduced = finding.introduced_by
        pipeline = f" of {introduced.pipeline}" if introduced.pipeline else ""
        yield f"introduced by the pass `{introduced.pass_name}`{pipeline}"
    if finding.origin is not None:
        origin = finding.origin
        function = f" in `{origin.function}`" if origin.function else ""
        yield f"from `{origin.file}:{origin.line}`{function}"
    if finding.op_name:
        yield f"op_name `{finding.op_name}`"
    if finding.pipeline:
        yield f"in the pipeline `{finding.pipeline}` of the module `{finding.module}`"
    yield from finding.notes


def titles(repros: Sequence[Repro]) -> list[str]:
    """A distinct folder name for each of several repros."""
    names: list[str] = []
    for repro in repros:
        number = sum(name.partition(".")[0] == repro.name for name in names)
        names.append(f"{repro.name}.{number + 1}" if number else repro.name)
    return names
