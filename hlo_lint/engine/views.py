"""What a rule looks at: the types of the parameters of its methods `check` and `check_…`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import signature
from typing import TYPE_CHECKING, Any

from hlo_lint.dumps.file_types import Kind
from hlo_lint.dumps.phases import LAYOUT_NORMALIZATION
from hlo_lint.dumps.pipeline import PassDump, Pipeline
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.rules.base import AutotuningRuns, Form, Rule, Stage
from hlo_lint.rules.findings import Finding
from hlo_lint.text.edits import Fix
from hlo_lint.text.errors import RuleError

if TYPE_CHECKING:
    from hlo_lint.dumps.artefacts.buffer_assignment import BufferAssignment

VIEWS = {
    "Computation": "each computation of every dump, bodies of fusions left out unless asked for",
    "Module": "each module of every dump",
    "PassPair": "the modules before and after each pass of which both are dumped",
    "HloFile": "every file as a text",
    "BeforeAutotuner": "the module that the autotuner meets, or the nearest dump before it",
    "FinalModule": "what a compiler ended with, else its last dump; artefacts may go with it",
    "Log": "a text that prints tensor descriptors, as CUTLASS does",
    "Ptx": "the assembly of a kernel",
    "Compilation": "one compilation of one module: all its dumps, its options, its passes",
    "DumpFolder": "all compilations whose dumps lie in one folder",
    "AutotuningRuns": "all logs of the autotuner that were given",
}
"""What there is to look at, by the name of its type: reading types would load all readers."""

ABOUT_REPORT = frozenset({"unused-allowance"})
"""Rules without a check: suppressions/apply.py reports for them when all others have run."""

STAGED = frozenset({"Computation", "Module", "PassPair"})
"""What a `Stage` may go with; with a `PassPair` it is that of the module after the pass."""


def _buffers(pipeline: Pipeline) -> BufferAssignment | None:
    """The buffer assignment, with the positions of its values where they are in a file as well."""
    found = pipeline.artefact_path("-buffer-assignment.txt")
    text = pipeline.artefact("-buffer-assignment.txt")
    if text is None:
        return None
    from hlo_lint.dumps.artefacts.buffer_assignment import read_buffer_assignment
    from hlo_lint.dumps.artefacts.buffer_values import read_buffer_values

    buffers = read_buffer_assignment(text, found)
    values = pipeline.artefact("-buffer-assignment-values.txt")
    return buffers if values is None else buffers.with_values(read_buffer_values(values))


ARTEFACTS: dict[str, tuple[str, Callable[[Pipeline], object | None]]] = {
    "BufferAssignment": ("buffer assignment", _buffers),
}
"""What may go with a final module: what it is called, and who reads it."""


def _tma_log(text: str) -> object:
    from hlo_lint.kernels.tma.cutlass_log import Log, read_log
    from hlo_lint.kernels.tma.xla_text import read_descriptors

    log = read_log(text)
    return Log((*log.descriptors, *read_descriptors(text)), log.unreadable)


def _ptx(text: str) -> object:
    from hlo_lint.kernels.ptx import read_ptx

    return read_ptx(text)


TEXTS: dict[str, tuple[Kind, Callable[[str], object]]] = {
    "Log": (Kind.TMA_LOG, _tma_log),
    "Ptx": (Kind.PTX, _ptx),
}
"""What is no HLO: what a file has to hold, and who reads it."""


def autotuning_runs(dumps: Sequence[PassDump]) -> AutotuningRuns | None:
    """The logs among the files that were read; None where none of them timed anything."""
    if not dumps:
        return None
    from hlo_lint.dumps.artefacts.autotune import read_autotuning

    logs = tuple(read_autotuning(dump.file.text) for dump in dumps)
    return AutotuningRuns(logs, tuple(dump.path.name for dump in dumps))


@cache
def checks_of(rule: Rule) -> Mapping[str, Mapping[str, str]]:
    """What each check of a rule asks for: names of types by parameter, by name of the method.

    Raises:
        RuleError: where it asks for nothing, or for what the engine does not have.
    """
    found = {}
    for method in sorted(dir(rule)):
        if method != "check" and not method.startswith("check_"):
            continue
        annotations = getattr(getattr(rule, method), "__annotations__", {})
        asked = {name: _type_name(kind) for name, kind in annotations.items() if name != "return"}
        kinds = set(asked.values())
        views = kinds - {"Stage"} if kinds & STAGED else kinds
        plain = len(views) == 1 and views <= VIEWS.keys() and len(asked) == len(kinds)
        final = "FinalModule" in kinds and kinds - {"FinalModule"} <= ARTEFACTS.keys()
        if not plain and not final:
            known = ", ".join((*VIEWS, "Stage", *ARTEFACTS))
            raise RuleError(f"{method} of {rule.name()} has to ask for some of {known}")
        found[method] = asked
    if not found and rule.name() not in ABOUT_REPORT:
        raise RuleError(f"{rule.name()} has no check")
    return found


def _type_name(annotation: object) -> str:
    """`Module` for `Module`, for `"Module"` and for `"hlo_lint.Module"`."""
    name = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return name.rpartition(".")[2]


def run_check(rule: Rule, method: str, views: Mapping[str, object]) -> tuple[Finding, ...]:
    """What a rule finds in what it looks at.

    Raises:
        RuleError: where the rule crashes, naming both.
    """
    check: Any = getattr(rule, method)
    try:
        return tuple(check(**views))
    except Exception as error:
        shown = ", ".join(map(repr, views.values()))
        raise RuleError(f"{rule.name()} crashed on {shown}: {error!r}") from error


def call_fix(rule: Rule, instruction: Instruction, module: Module, stage: Stage) -> Fix | None:
    """The fix that a rule has for one of its findings; its method may ask for the stage."""
    extra = _fix_parameters(type(rule).fix)
    fix: Any = rule.fix
    if not extra:
        return rule.fix(instruction, module)
    if extra == ("stage",):
        return fix(instruction, module, stage=stage)  # type: ignore[no-any-return]
    message = f"{rule.name()}: fix takes an instruction and its module, no {extra[0]}"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    is_copy = stage.next_pass == LAYOUT_NORMALIZATION
    return fix(instruction, module, Form.COPY if is_copy else Form.TRANSPOSE)  # type: ignore[no-any-return]


@cache
def _fix_parameters(fix: Callable[..., object]) -> tuple[str, ...]:
    """The names of the parameters of `fix` after the instruction and the module."""
    return tuple(signature(fix).parameters)[3:]
