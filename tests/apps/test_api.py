"""The tool as functions: what each takes, gives and raises."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import hlo_lint
from hlo_lint import Diagnostic, HloSyntaxError, Module, Severity
from hlo_lint.report.json import as_dict
from hlo_lint.text.errors import DumpError, UsageError
from tests.conftest import CRASH, ROUNDTRIP, present, written
from tests.texts import CLEAN, LOOSE

CUT = LOOSE.replace("  ROOT", "  %q = f32[8,3]{1,0} negate(%p\n  ROOT")
NEXT = "layout_normalization"
ENTRY = """\
HloModule graph, is_scheduled=true, entry_computation_layout={(f32[4]{0}, s32[])->f32[4]{0}}

%body (x: f32[4], y: f32[4]) -> f32[4] {
  %y = f32[4]{0} parameter(1)
  %x = f32[4]{0} parameter(0)
  ROOT %sum = f32[4]{0} add(%x, %y)
}

ENTRY %main (b: s32[], a: f32[4]) -> f32[4] {
  %a = f32[4]{0} parameter(1)
  %b = s32[] parameter(0)
  %pair = (f32[4]{0}, (s32[], f32[4]{0})) tuple(%a, %nested), metadata={op_name="pair" stack_frame_id=1}
  %twice = f32[4]{0} fusion(%a, %pair#1#1), kind=kLoop, calls=%body
  ROOT %out = f32[4]{0} add(%twice, %twice), control-predecessors={%b}
}
"""  # noqa: E501


def lint_one(target: Any, before: str | None = None) -> Diagnostic:
    """The only finding of a target."""
    (found,) = hlo_lint.lint(target, before=before).findings
    return found


@pytest.fixture
def graph() -> Module:
    return hlo_lint.parse(ENTRY)


# Reading and writing text


def test_bytes_and_text_give_the_same_module() -> None:
    one, other = hlo_lint.parse(LOOSE), hlo_lint.parse(LOOSE.encode())
    assert [row.row for row in one.instructions()] == [row.row for row in other.instructions()]


def test_parse_gives_the_first_module_and_emit_the_whole_file() -> None:
    text = LOOSE + "// -----\n" + CLEAN.replace("HloModule m", "HloModule n")
    modules = hlo_lint.parse_all(text)
    assert [module.name for module in modules] == ["m", "n"]
    assert hlo_lint.parse(text).name == "m"
    assert [hlo_lint.emit(module) for module in modules] == [text, text]
    assert "".join(module.text for module in modules) == text


def test_bad_hlo_is_no_reason_to_raise_and_is_listed() -> None:
    module = hlo_lint.parse(CUT)
    (problem,) = module.problems
    assert problem.start == (5, 28)
    assert CUT[problem.span.start : problem.span.end] == "(%p"
    assert module.entry is not None
    assert module.entry.instruction("r") is not None


def test_strict_raises_with_line_and_column_and_shows_the_place() -> None:
    with pytest.raises(HloSyntaxError) as raised:
        hlo_lint.parse(CUT, "cut.hlo", strict=True)
    error = raised.value
    assert (error.line, error.column) == (5, 29)
    assert re.match(r"jaxlib 0\.\d+\.\d+ refuses: ", error.message)
    shown = str(error).split("\n")
    assert shown[0] == f"cut.hlo:{error.line}:{error.column}: {error.message}"
    assert shown[1] == CUT.split("\n")[error.line - 1]
    assert shown[2].index("^") == error.column - 1


def test_strict_looks_at_every_module_of_a_text() -> None:
    with pytest.raises(HloSyntaxError) as raised:
        hlo_lint.parse_all(LOOSE + "// -----\n" + CUT, strict=True)
    assert raised.value.line > LOOSE.count("\n") + 1
    with pytest.raises(HloSyntaxError):
        hlo_lint.parse(LOOSE + "// -----\n" + CUT, strict=True)


def test_a_module_knows_its_path() -> None:
    assert hlo_lint.parse(LOOSE, "dir/a.hlo").path == Path("dir/a.hlo")
    assert hlo_lint.parse(LOOSE).path is None


# What lint takes


@pytest.fixture
def loose(tmp_path: Path) -> Path:
    return written(tmp_path / "loose.hlo", LOOSE)


def test_every_kind_of_target_gives_the_same_finding(loose: Path) -> None:
    texts = (LOOSE, LOOSE.encode(), hlo_lint.parse(LOOSE))
    paths = (loose, str(loose), [loose], (str(loose),), loose.parent, hlo_lint.open_dump(loose))
    found = [lint_one(target) for target in (*texts, *paths)]
    assert {(f.rule, f.severity, f.line, f.column, f.message) for f in found} == {
        ("reshape-moves-data", Severity.WARNING, 5, 39, found[0].message)
    }


def test_a_str_with_a_newline_or_hlomodule_in_front_is_a_text() -> None:
    assert hlo_lint.lint("HloModule m").stats["modules"] == 1
    assert hlo_lint.lint("  HloModule m, is_scheduled=true").stats["modules"] == 1
    assert hlo_lint.lint("no\nfile").findings[0].rule == "unreadable-text"


@pytest.mark.parametrize("path", ["nowhere.hlo", "", "x" * 5000, "no\x00path"])
def test_any_other_str_is_a_path_and_must_be_there(path: str) -> None:
    with pytest.raises(DumpError):
        hlo_lint.lint(path)


def test_a_path_object_is_a_path_whatever_it_is_called(tmp_path: Path) -> None:
    path = written(tmp_path / "HloModule", LOOSE)
    assert lint_one(path).path == str(path)


def test_several_paths_are_one_report(loose: Path, crash: Path) -> None:
    report = hlo_lint.lint([crash, loose])
    assert {found.severity for found in report.findings} == {Severity.ERROR, Severity.WARNING}
    assert report.stats["files"] == 34


def test_every_module_of_a_text_is_checked() -> None:
    text = "// -----\n".join((LOOSE, CLEAN, LOOSE))
    assert [found.line for found in hlo_lint.lint(text).findings] == [5, 21]
    assert [found.line for found in hlo_lint.lint(hlo_lint.parse(text)).findings] == [5, 21]


def test_a_module_that_jax_lowered_or_compiled_is_a_target() -> None:
    jax = pytest.importorskip("jax")

    def flatten(x: Any) -> Any:
        return jax.numpy.swapaxes(x, 0, 1).reshape(-1)

    lowered = jax.jit(flatten).lower(jax.numpy.ones((3, 5)))
    for stage in (lowered, lowered.compile()):
        report = hlo_lint.lint(stage)
        assert (report.findings, report.stats["modules"]) == ((), 1)
        assert hlo_lint.fix(stage).text.startswith("HloModule jit_flatten")


def test_the_layouts_of_a_lowered_module_bind_nothing() -> None:
    class Lowered:
        """As `jax.stages.Lowered` is, of a program that has the shapes of the example."""

        def compile(self) -> None: ...

        def as_text(self, dialect: str) -> str:
            assert dialect == "hlo"
            return LOOSE

    assert hlo_lint.lint(Lowered(), before=NEXT).findings == ()


# What lint says


@pytest.mark.parametrize(
    ("before", "near"), [("layout-normalization", NEXT), ("", NEXT), ("algsimpl", "algsimp?")]
)
def test_a_pass_that_no_release_has_is_refused(before: str, near: str) -> None:
    with pytest.raises(UsageError, match=re.escape(near)):
        hlo_lint.lint(LOOSE, before=before)


@pytest.mark.parametrize("option", [0, 1])
def test_an_unknown_rule_is_refused(option: int) -> None:
    chosen = [["nonsense"], None]
    with pytest.raises(UsageError, match="nonsense"):
        hlo_lint.lint(LOOSE, chosen[option], chosen[1 - option])


def test_a_finding_has_the_fields_of_the_json_as_attributes(crash: Path) -> None:
    found = lint_one(crash)
    for name, value in as_dict(found).items():
        ours = getattr(found, name)
        if name == "severity":
            assert ours is Severity(value)
        elif isinstance(value, dict):
            assert ours is not None
        elif isinstance(value, list):
            assert list(ours) == value
        else:
            assert ours == value
    assert present(found.introduced_by).pass_name == "autotuner"
    assert found.origin is not None
    assert (found.origin.file, found.origin.line) == ("programs.py", 40)


def test_the_fixes_that_are_chosen_are_applied(crash: Path) -> None:
    (finding,) = hlo_lint.lint(crash).findings
    text = Path(finding.path).read_text("utf-8")
    fixed = hlo_lint.fix(crash).files[0].after
    assert hlo_lint.apply_fixes(text, [finding]) == fixed
    assert hlo_lint.apply_fixes(hlo_lint.parse(text), [present(finding.fix)]) == fixed
    assert hlo_lint.apply_fixes(text, []) == text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "says"),
    [
        ("copy(p)", "structure: no computation differs"),
        ("reshape(p)", "index maps: 8 elements in 1 data movement: every source is the same"),
        ("negate(p)", "not equal: "),
        ("copied(p)", "not proven: XLA's parser refuses the text: line 5: "),
        ("copy(p", "not proven: line 5 cannot be read: "),
    ],
)
def test_a_proof_says_if_two_modules_compute_the_same(after: str, says: str) -> None:
    text = "HloModule m\n\nENTRY e {\n  p = f32[8] parameter(0)\n  ROOT r = f32[8] copy(p)\n}\n"
    proof = hlo_lint.prove(text, hlo_lint.parse(text.replace("copy(p)", after)))
    assert str(proof).startswith(says)
    assert proof.holds is says.startswith(("structure", "index maps"))
    assert proof.differs is says.startswith("not equal")


def test_linting_twice_says_the_same(crash: Path) -> None:
    dump = hlo_lint.open_dump(crash)
    assert hlo_lint.lint(dump).to_json() == hlo_lint.lint(dump).to_json()


def test_linting_leaves_a_module_as_it_was(loose: Path) -> None:
    module = hlo_lint.parse(CLEAN, loose)  # another text than the file now holds
    hlo_lint.lint(module)
    assert hlo_lint.emit(module) == CLEAN
    assert hlo_lint.lint(module).findings == ()


# Fix


@pytest.mark.parametrize("form", ["copy", "transpose"])
def test_the_edits_of_a_fix_turn_the_text_into_the_fixed_text(form: str) -> None:
    result = hlo_lint.fix(LOOSE, form=form)
    (edit,) = result.edits
    assert LOOSE[: edit.span.start] + edit.text + LOOSE[edit.span.end :] == result.text
    assert f" {form}(" in result.text
    assert result.findings == result.remaining.findings == ()


def test_fix_takes_what_lint_takes_and_writes_nothing(loose: Path) -> None:
    texts = {
        hlo_lint.fix(target).text
        for target in (LOOSE, LOOSE.encode(), hlo_lint.parse(LOOSE), loose, str(loose), [loose])
    }
    assert len(texts) == 1
    assert loose.read_text() == LOOSE


def test_the_text_of_several_files_is_none_of_them(loose: Path) -> None:
    other = written(loose.with_name("other.hlo"), LOOSE)
    result = hlo_lint.fix([loose, other])
    assert len(result.files) == 2
    with pytest.raises(ValueError, match="2 files"):
        _ = result.text


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(UsageError, match="copy or transpose"):
        hlo_lint.fix(LOOSE, form="broadcast")


def test_a_dump_that_was_fixed_in_memory_is_read_again_from_its_files(crash: Path) -> None:
    dump = hlo_lint.open_dump(crash)
    hlo_lint.fix(dump)
    assert len(hlo_lint.lint(dump).findings) == 1


# Dumps


def test_a_dump_gives_its_modules_by_name_and_in_order(crash: Path) -> None:
    dump = hlo_lint.open_dump(crash)
    assert dump.modules == ("module_0001.jit_batched_dot",)
    assert dump["jit_batched_dot"] is dump["module_0001.jit_batched_dot"]
    assert [len(compilation.dumps) for compilation in dump] == [33]
    with pytest.raises(KeyError, match="jit_batched_dot"):
        _ = dump["jit_nothing"]


def test_an_empty_dump_says_that_a_module_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        _ = hlo_lint.open_dump(tmp_path)["jit_nothing"]


# The graph


def test_operands_say_which_element_of_which_instruction_is_read(graph: Module) -> None:
    twice = graph["main"]["%twice"]
    plain, element = twice.operands
    assert (plain.name, plain.shape_index, str(plain.shape)) == ("a", (), "f32[4]{0}")
    assert (element.name, element.shape_index) == ("pair", (1, 1))
    assert element.instruction is graph["main"]["pair"]
    assert str(element.shape) == "f32[4]{0}"


def test_an_operand_that_nobody_defines_is_known_by_name_only(graph: Module) -> None:
    nested = graph["main"]["pair"].operands[1]
    assert (nested.name, nested.instruction, nested.shape) == ("nested", None, None)


def test_users_are_named_once_and_through_elements_of_tuples(graph: Module) -> None:
    users = {
        instruction.name: [user.name for user in instruction.users]
        for instruction in present(graph.entry).instructions
    }
    read = {"a": ["pair", "twice"], "pair": ["twice"], "twice": ["out"]}
    assert users == {"b": [], "out": [], **read}


def test_parameters_come_in_the_order_of_their_numbers(graph: Module) -> None:
    names = {c.name: [p.name for p in c.parameters] for c in graph.computations}
    assert names == {"body": ["x", "y"], "main": ["b", "a"]}


def test_more_than_ten_parameters_keep_their_order() -> None:
    lines = [f"  %p{number} = s32[] parameter({number})" for number in reversed(range(12))]
    module = hlo_lint.parse("\n".join(["HloModule m\n", "ENTRY %e {", *lines, "}"]) + "\n")
    names = [p.name for p in present(module.entry).parameters]
    assert names == [f"p{number}" for number in range(12)]


def test_called_computations_root_and_entry_are_found(graph: Module) -> None:
    entry = graph.entry_computation
    assert (entry.name, present(entry.root).name) == ("main", "out")
    assert entry["twice"].called_computations == ("body",)
    assert graph.computation("%body") is graph.computations[0]
    assert [c.name for c in graph.nonfusion_computations] == ["main"]


def test_attributes_are_text_until_one_is_asked_for(graph: Module) -> None:
    pair = graph["main"]["pair"]
    assert pair.attributes == {"metadata": '{op_name="pair" stack_frame_id=1}'}
    assert getattr(pair.attribute("metadata"), "op_name", None) == "pair"
    assert pair.attribute("dimensions") is None
    assert list(graph["main"]["out"].attributes) == ["control-predecessors"]


def test_the_header_says_its_attributes_and_whether_it_is_scheduled(graph: Module) -> None:
    assert graph.name == "graph"
    assert graph.is_scheduled
    assert not hlo_lint.parse(LOOSE).is_scheduled
    assert graph.attributes == {
        "is_scheduled": "true",
        "entry_computation_layout": "{(f32[4]{0}, s32[])->f32[4]{0}}",
    }


def test_a_span_cuts_an_instruction_out_of_the_file(graph: Module) -> None:
    for instruction in graph.instructions():
        start, end = graph.span(instruction)
        assert ENTRY[start:end] == instruction.text
        assert f"%{instruction.name} = " in instruction.text


def test_spans_of_a_later_module_count_from_the_beginning_of_the_file() -> None:
    text = LOOSE + "// -----\n" + ENTRY
    module = hlo_lint.parse_all(text)[1]
    for instruction in module.instructions():
        start, end = module.span(instruction)
        assert text[start:end] == instruction.text


def test_a_stack_frame_is_followed_to_its_callers() -> None:
    path = next(CRASH.glob("*.0030.*"))
    frames = hlo_lint.parse(path.read_bytes(), path).stack_frames
    assert [(frame.file, frame.line, frame.function) for frame in frames.stack(4)] == [
        ("programs.py", 40, "batched_dot"), ("compile_for_gpu.py", 48, "compile_for_gpu"),
        ("programs.py", 95, "compile_program"), ("programs.py", 111, "<module>"),
    ]  # fmt: skip
    assert frames.stack(99) == ()


def test_a_computation_becomes_a_graph_of_names(graph: Module) -> None:
    found = present(graph.entry).to_networkx()
    assert set(found.edges) == {("a", "pair"), ("a", "twice"), ("pair", "twice"), ("twice", "out")}
    assert found.nodes["pair"]["opcode"] == "tuple"
    assert found.nodes["out"]["root"]
    assert found.name == "main"


def test_a_module_becomes_a_graph_with_edges_from_what_is_called(graph: Module) -> None:
    found = graph.to_networkx()
    assert ("main/a", "main/twice") in found.edges
    assert found.edges["body/sum", "main/twice"]["calls"]
    assert len(found) == len(list(graph.instructions()))
    assert found.name == "graph"


@pytest.mark.parametrize("path", sorted(ROUNDTRIP.glob("*.hlo")), ids=lambda path: path.stem)
def test_every_view_of_an_odd_text_can_be_looked_at(path: Path) -> None:
    for module in hlo_lint.parse_all(path.read_bytes(), path):
        assert len(module.to_networkx()) <= len(list(module.instructions()))
        assert isinstance(module.attributes, dict)
        for instruction in module.instructions():
            assert instruction.called_computations is not None
            for operand in instruction.operands:
                if operand.instruction is not None:
                    assert instruction in operand.instruction.users


# Imports


def test_everything_that_is_exported_is_there() -> None:
    assert sorted(hlo_lint.__all__) == list(hlo_lint.__all__)
    assert all(hasattr(hlo_lint, name) for name in hlo_lint.__all__)
    assert set(hlo_lint.__all__) < set(dir(hlo_lint))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = hlo_lint.no_such_name  # type: ignore[attr-defined]


def test_a_module_is_its_computations_and_a_computation_its_instructions() -> None:
    module = hlo_lint.parse(ENTRY)
    assert [computation.name for computation in module] == ["body", "main"]
    assert len(module) == 2
    assert "%body" in module
    assert "bodies" not in module
    body = module["body"]
    assert body in module
    assert [instruction.name for instruction in body] == ["y", "x", "sum"]
    assert len(body) == 3
    assert "sum" in body
    assert body["%sum"] in body
    assert module["main"].at(0) not in body
    assert body.root_instruction is body["sum"]
    assert module.entry_computation is module["main"]


def test_a_name_that_is_not_there_is_answered_with_the_nearest() -> None:
    module = hlo_lint.parse(ENTRY)
    with pytest.raises(KeyError, match=r"%bodi is not in graph: did you mean body\?"):
        module["bodi"]
    with pytest.raises(KeyError, match=r"%su is not in body: did you mean sum\?"):
        module["body"]["%su"]
    with pytest.raises(LookupError, match="has no entry computation"):
        _ = hlo_lint.parse("").entry_computation


def test_an_empty_module_is_true() -> None:
    module = hlo_lint.parse("HloModule m\n\ne {\n}\n")
    assert module
    assert module["e"]
    assert not len(module["e"])
    report = hlo_lint.lint(CLEAN, before=NEXT)
    assert report
    assert not len(report)
    assert report.clean


def test_what_python_prints_of_a_result_is_short() -> None:
    report = hlo_lint.lint(LOOSE, select=["reshape-moves-data"], before=NEXT)
    assert repr(report) == "<Report: 1 error, 0 warnings, 0 infos in 1 module>"
    [finding] = report
    assert finding is report[0]
    assert repr(finding).startswith("<Diagnostic <text>:5:39: error[reshape-moves-data]: ")
    fixed = hlo_lint.fix(LOOSE, select=["reshape-moves-data"], before=NEXT)
    assert repr(fixed) == "<FixResult: 1 finding fixed in 1 file, 0 left>"
    assert repr(hlo_lint.parse(ENTRY)).startswith("<Module graph: ")


class _Balance(HTMLParser):
    """Checks that every element is closed, and keeps the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_notebook_shows_findings_and_reports() -> None:
    report = hlo_lint.lint(LOOSE.replace("%r =", "%<script>alert(1)</script> ="), before=NEXT)
    for value in (report, report[0]):
        page = _Balance()
        page.feed(value._repr_html_())
        page.close()
        assert not page.open
        assert "script" not in page.seen
    assert "mark" in report[0]._repr_html_()


@pytest.mark.parametrize("wrong", [5, None, 1.5, object()])
def test_a_value_of_another_type_is_a_type_error_that_names_it(wrong: Any) -> None:
    for function in (hlo_lint.parse, hlo_lint.lint, hlo_lint.fix, hlo_lint.open_dump):
        with pytest.raises(TypeError, match=type(wrong).__name__):
            function(wrong)


def test_one_rule_may_be_selected_by_its_name_alone() -> None:
    alone = hlo_lint.lint(LOOSE, select="layout", ignore="needless-transpose", before=NEXT)
    listed = hlo_lint.lint(LOOSE, ["layout"], ["needless-transpose"], before=NEXT)
    assert alone.findings == listed.findings
    assert alone.findings
    assert not hlo_lint.lint(LOOSE, select=[]).findings
