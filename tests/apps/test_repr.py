"""The `repr` of a public object is one line, however large the object is."""

from __future__ import annotations

import inspect
from dataclasses import replace
from enum import Enum
from pathlib import Path

import pytest

import hlo_lint
from hlo_lint import Diagnostic, Edit, Finding, Fix, Safety, Severity, Span
from hlo_lint.apps.fixes import FixResult
from hlo_lint.engine.findings import FixedFile, SuppressedBy
from hlo_lint.hlo.shape import ArrayShape, BufferShape, Layout, OpaqueShape, TupleShape
from hlo_lint.report.report import Report
from hlo_lint.rules.registry import all_rules
from hlo_lint.text.edits import Region
from hlo_lint.text.source import Position

LONG = "name_" * 100
TYPE = f"({', '.join(['f32[8,128]{1,0:T(8,128)}'] * 300)})"
TEXT = f"""HloModule {LONG}

ENTRY {LONG} {{
  {LONG} = {TYPE} parameter(0)
  ROOT root = {TYPE} opt-barrier({LONG})
}}
"""
MODULE = hlo_lint.parse(TEXT, f"/{LONG}/{LONG}.txt")
ENTRY = MODULE.entry_computation
ROOT = ENTRY.root_instruction
EDIT = Edit(Span(10**9, 10**9 + 1), "line\n" * 1000)
FIX = Fix(LONG, (EDIT,) * 100, Safety.UNSAFE, adds_bitcast=True)
PLACE = Position(10**9, 10**9)
DIAGNOSTIC = Diagnostic(
    *("a-rule", Severity.ERROR, f"{LONG}\n{LONG}", LONG, PLACE, PLACE, LONG), fix=FIX
)
REPORT = Report((DIAGNOSTIC,) * 100, (), {}, ())
DUMP = hlo_lint.open_dump(Path(__file__).parents[2] / "fixtures" / "dumps" / "gpu-jax0.11.2")
COMPILATION = DUMP.compilations[0]
REWRITE = hlo_lint.Rewrite(MODULE)
COPY = REWRITE.insert_before(ROOT, "opt-barrier", TYPE, [ROOT.operands[0]], name=f"{LONG}.2")

PUBLIC = [
    hlo_lint.Allowance(LONG, LONG, path=LONG),
    hlo_lint.AutotuningRuns((), (LONG,) * 100),
    hlo_lint.Bad(TEXT, fixed=TEXT),
    hlo_lint.BeforeAutotuner(MODULE, (LONG,) * 100, True, MODULE),
    hlo_lint.Capture(Path(LONG), LONG, "0.11.2", failure=LONG, is_kept=True),
    *(COMPILATION, ENTRY, DIAGNOSTIC, DUMP),
    hlo_lint.DumpFolder(Path(LONG), (COMPILATION,) * 100),
    EDIT,
    hlo_lint.FinalModule(MODULE, True, LONG),
    Finding(ROOT, LONG, notes=(LONG,) * 100, fix=FIX),
    FIX,
    FixResult((FixedFile(Path(LONG), TEXT, TEXT, (EDIT,) * 100),) * 100, REPORT),
    hlo_lint.Good(TEXT),
    *(ROOT, MODULE, COPY),
    hlo_lint.Option(LONG, LONG),
    hlo_lint.PassPair(MODULE, MODULE, LONG, LONG, None),
    hlo_lint.prove(TEXT.replace("opt-barrier", "opt-barriers"), TEXT),
    *(REPORT, REWRITE, next(iter(all_rules()))),
    hlo_lint.Settings(select=(LONG,) * 100, severity={LONG: None}),
    Span(10**9, 10**9),
    hlo_lint.Stage("gpu", LONG, unbounded_dynamic_opcodes=frozenset(LONG.split("_"))),
    hlo_lint.SuppressedFinding(DIAGNOSTIC, LONG, SuppressedBy.BASELINE),
    hlo_lint.ValidationResult(REPORT, ()),
]
BEHIND_THEM = [
    *(ROOT.shape, TupleShape((ArrayShape("f32", (8,) * 200),) * 9), Layout(tuple(range(200)))),
    *(BufferShape(ArrayShape("f32", (8,) * 200)), OpaqueShape("token")),
    *(ROOT.operands[0], MODULE.file, COMPILATION, COMPILATION.dumps[0]),
    *(FixedFile(Path(LONG), TEXT, TEXT, (EDIT,)), Region(PLACE, PLACE, 10**9, 10**9)),
    *(
        hlo_lint.DumpError(f"{LONG}\n{LONG}"),
        hlo_lint.HloSyntaxError(LONG, Position(1, 2), text=LONG),
    ),
]


def _name(value: object) -> str:
    return type(value).__name__


@pytest.mark.parametrize("value", [*PUBLIC, *BEHIND_THEM], ids=_name)
def test_a_repr_fits_a_line(value: object) -> None:
    assert len(repr(value)) <= 120
    assert repr(value).isprintable()
    assert type(value).__name__.split("[")[0] in repr(value) or isinstance(value, hlo_lint.Rule)


def test_each_public_class_is_among_them() -> None:
    public = {
        name
        for name in hlo_lint.__all__
        if inspect.isclass(value := getattr(hlo_lint, name))
        and not issubclass(value, Enum | Exception)
    }
    names = {ancestor.__name__ for value in PUBLIC for ancestor in type(value).__mro__}
    assert public <= names


def test_a_repr_shows_the_fields_that_are_set() -> None:
    assert repr(hlo_lint.Settings()) == "Settings()"
    assert repr(replace(hlo_lint.Settings(), jobs=4)) == "Settings(jobs=4)"
    assert repr(hlo_lint.Stage("cpu")) == "Stage(backend='cpu')"
    assert repr(ArrayShape("f32", (8, 3))) == "ArrayShape('f32[8,3]')"
