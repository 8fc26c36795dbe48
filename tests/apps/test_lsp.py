"""The language server, asked by a real client that talks to a real process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pygls", reason="the language server needs hlo-lint[lsp]")

from lsprotocol import types
from pygls.exceptions import JsonRpcException

import hlo_lint
from tests.conftest import CRASH, ROOT, completed, present, started
from tests.editor import Editor

pytestmark = pytest.mark.slow

DUMP = next(CRASH.glob("*.after_autotuner.*"))
RESHAPE = "%reshape.15 = "
SERVER = [sys.executable, "-m", "hlo_lint", "server"]

SMALL = """\
HloModule m

// a comment
// of two lines
%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

%body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p = (s32[], f32[8]{0}) parameter(0)
  ROOT %next = (s32[], f32[8]{0}) tuple(%p#0, %p#1)
}

%condition (q: (s32[], f32[8])) -> pred[] {
  %q = (s32[], f32[8]{0}) parameter(0)
  ROOT %always = pred[] constant(false)
}

ENTRY %main (a: f32[4,8]) -> (s32[], f32[8]) {
  %a = f32[4,8]{1,0} parameter(0)
  %zero = f32[] constant(0)
  %one = s32[] constant(1)
  %total = f32[8]{0} reduce(%a, %zero), dimensions={0}, to_apply=%add
  %start = (s32[], f32[8]{0}) tuple(%one, %total), control-predecessors={%zero}
  ROOT %loop = (s32[], f32[8]{0}) while(%start), condition=%condition, body=%body
}
"""
FIRST = """\
HloModule first

add {
  x = f32[] parameter(0)
  ROOT r = f32[] negate(x)
}

ENTRY e {
  x = f32[8] parameter(0)
  ROOT f = f32[8] map(x), dimensions={0}, to_apply=add
}
"""
SECOND = FIRST.replace("first", "second").replace("negate", "abs")
SHORT = f"{FIRST}\n// -----\n\n{SECOND}"
CODECS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}
NO_EDGE = (types.Position(0, 0), types.Position(0, 0))


@pytest.fixture(scope="module")
def editor() -> Iterator[Editor]:
    editor = Editor()
    yield editor
    assert editor.close() == 0


def text_at(text: str, where: types.Range | None) -> str:
    """The text at a range that lies on one line; for ASCII lines."""
    assert where is not None
    assert where.start.line == where.end.line
    line = text.split("\n")[where.start.line]
    return line[where.start.character : where.end.character]


def edited(text: str, edit: types.WorkspaceEdit | None, encoding: str = "utf-16") -> str:
    """A text after an edit, made as a client makes it: from the last to the first."""
    assert edit is not None
    if edit.document_changes:
        (change,) = edit.document_changes
        assert isinstance(change, types.TextDocumentEdit)
        edits = [each for each in change.edits if isinstance(each, types.TextEdit)]
    else:
        (listed,) = present(edit.changes).values()
        edits = list(listed)
    codec, unit = CODECS[encoding]
    lines = text.split("\n")
    starts = [sum(len(line) + 1 for line in lines[:number]) for number in range(len(lines))]

    def offset(place: types.Position) -> int:
        data = lines[place.line].encode(codec)[: place.character * unit]
        return starts[place.line] + len(data.decode(codec))

    for each in sorted(edits, key=lambda edit: offset(edit.range.start), reverse=True):
        start, end = offset(each.range.start), offset(each.range.end)
        text = text[:start] + each.new_text + text[end:]
    return text


# Findings


def test_a_file_of_a_dump_is_told_what_check_says_of_it(editor: Editor) -> None:
    (expected,) = hlo_lint.lint(DUMP).findings
    (told,) = editor.findings(editor.open(DUMP.read_text(), str(DUMP)))
    assert told.code == expected.rule == "reshape-moves-data"
    assert told.severity is types.DiagnosticSeverity.Error
    assert told.source == "hlo-lint"
    assert present(told.code_description).href.endswith("/en/stable/rules/reshape-moves-data.html")
    first, *rest = told.message.split("\n")
    assert first == expected.message
    assert rest == [
        "from: programs.py:40 in batched_dot",
        *(f"note: {note}" for note in expected.notes),
    ]
    assert told.range.start == types.Position(expected.line - 1, expected.column - 1)
    assert text_at(DUMP.read_text(), told.range) == "%get-tuple-element"
    (related,) = told.related_information or ()
    assert related.message == "%get-tuple-element is defined here"
    assert text_at(DUMP.read_text(), related.location.range) == "get-tuple-element"


@pytest.mark.parametrize("uri", ["file:///nowhere/a%00b.hlo", "file:///nowhere/a\0b.hlo"])
def test_an_address_with_a_nul_is_a_text_without_a_file(editor: Editor, uri: str) -> None:
    messages = list(editor.messages)
    editor.open(SMALL, uri)
    assert not editor.findings(uri)
    assert editor.messages == messages


def test_what_is_typed_is_checked(editor: Editor) -> None:
    uri = editor.open(SMALL, "/nowhere/typed.hlo")
    assert not editor.findings(uri)
    place = editor.at(uri, "add(%x, %y)", len("add(%x, %"))
    name = types.Range(place, types.Position(place.line, place.character + 1))
    editor.change(uri, types.TextDocumentContentChangePartial(name, "nothing"))
    (told,) = editor.findings(uri)
    assert "nothing" in told.message
    wrong = types.Range(place, types.Position(place.line, place.character + len("nothing")))
    editor.change(uri, types.TextDocumentContentChangePartial(wrong, "y"))
    assert not editor.findings(uri)
    editor.change(uri, types.TextDocumentContentChangeWholeDocument("HloModule"))
    assert [told.code for told in editor.findings(uri)] == ["malformed-text"]
    editor.close_text(uri)
    assert not editor.published[uri].diagnostics


def test_a_text_that_goes_on_changing_is_checked_when_it_rests(editor: Editor) -> None:
    uri = editor.open("HloModule", "/nowhere/fast.hlo")
    editor.findings(uri)
    seen = set()
    for end in range(20, len(SMALL), 5):
        editor.change(uri, types.TextDocumentContentChangeWholeDocument(SMALL[:end]))
        editor.hover(uri, types.Position(0, 12))
        seen.add(editor.published[uri].version)
    editor.change(uri, types.TextDocumentContentChangeWholeDocument(SMALL))
    assert not editor.findings(uri)
    assert len(seen) < 10


def test_a_text_that_breaks_off_anywhere_is_answered_for(editor: Editor) -> None:
    uri = editor.open("", "/nowhere/broken.hlo")
    for end in range(0, len(SMALL), 23):
        editor.change(uri, types.TextDocumentContentChangeWholeDocument(SMALL[:end]))
        last = types.Position(SMALL.count("\n", 0, end), 0)
        editor.hover(uri, last)
        editor.definition(uri, last)
        editor.references(uri, last)
        outline(editor, uri)
        folds(editor, uri)
    editor.findings(uri)


def test_no_finding_of_an_unsaved_text_needs_a_file(editor: Editor) -> None:
    uri = editor.open(DUMP.read_text(), "untitled:Untitled-1")
    (told,) = editor.findings(uri)
    assert told.severity is types.DiagnosticSeverity.Warning  # nothing says which pass comes next


# What stands under the mouse


def test_hover_tells_of_an_instruction(editor: Editor) -> None:
    uri = editor.open(DUMP.read_text(), str(DUMP))
    assert editor.hover(uri, editor.at(uri, RESHAPE, 3)) == (
        "```hlo\n"
        "%reshape.15 = f32[2,8,128,32]{2,3,1,0} reshape(%get-tuple-element), …\n"
        "```\n\n"
        "- `f32[2,8,128,32]{2,3,1,0}`: 65536 elements, 262144 bytes (256 KiB)\n"
        "- in memory, fastest first: dimension 2 (of 128), 3 (of 32), 1 (of 8), 0 (of 2)\n"
        "- reads `f32[16,128,32]{2,1,0} %get-tuple-element`\n"
        "- used by 1: `%bitcast.18`\n"
        "- from `programs.py:40` in `batched_dot`\n"
        "- op_name `jit(batched_dot)/dot_general`"
    )


@pytest.mark.parametrize(
    ("needle", "inside", "says"),
    [
        ("%sum = ", 1, ["no users; the root", "reads `f32[] %x`, `f32[] %y`"]),
        ("%p#1", 1, ["element `{1}` of its tuple", "`f32[8]{0}`: 8 elements, 32 bytes"]),
        (
            "%start = ",
            1,
            ["a tuple of 2 elements, 36 bytes", "`{0}`: `s32[]`", "used by 1: `%loop`"],
        ),
        ("%loop = ", 1, ["calls `%condition`, `%body`"]),
        (
            "%a = f32",
            1,
            ["in memory, fastest first: dimension 1 (of 8), 0 (of 4) (the default layout)"],
        ),
        ("%body (p", 2, ["of `m`: 2 instructions", "called by 1: `%loop` (while)"]),
        ("to_apply=%add", 11, ["%add (x: f32[], y: f32[]) -> f32[]", "(reduce)"]),
        ("ENTRY %main", 8, ["ENTRY %main", "root `%loop ="]),
        ("reduce(", 1, ["any number of operands", "must have `dimensions`, `to_apply`"]),
        ("f32[4,8]{1,0} parameter", 1, ["32 elements, 128 bytes"]),
        ("x: f32[]", 0, ["%x = f32[] parameter(0)"]),
    ],
)
def test_hover_tells_of_a_name(editor: Editor, needle: str, inside: int, says: list[str]) -> None:
    uri = editor.open(SMALL, "/nowhere/hover.hlo")
    shown = present(editor.hover(uri, editor.at(uri, needle, inside)))
    for words in says:
        assert words in shown


def test_hover_tells_the_python_stack(editor: Editor) -> None:
    uri = editor.open(DUMP.read_text(), str(DUMP))
    shown = present(editor.hover(uri, editor.at(uri, "stack_frame_id=4", 3)))
    assert "- `programs.py:40` in `batched_dot`\n- `compile_for_gpu.py:48`" in shown


def test_hover_tells_what_a_rule_says_where_a_comment_names_it(editor: Editor) -> None:
    text = SMALL.replace("// of two lines", "// hlo-lint: allow reshape-moves-data -- why not")
    uri = editor.open(text, "/nowhere/allow.hlo")
    shown = present(editor.hover(uri, editor.at(uri, "reshape-moves-data", 5)))
    assert shown.startswith("**reshape-moves-data** (error)")
    assert editor.hover(uri, editor.at(uri, "why not", 1)) is None
    text = text.replace("allow reshape-moves-data", "allow speed, nothing")
    uri = editor.open(text, "/nowhere/allow.hlo")
    shown = present(editor.hover(uri, editor.at(uri, "speed", 5)))
    assert shown.startswith("**speed**, a family of rules\n\n- ")
    assert "- costly-transposes: " in shown
    assert editor.hover(uri, editor.at(uri, "nothing", 1)) is None


def test_nothing_of_a_dump_is_taken_for_markup(editor: Editor) -> None:
    name = "x`` <img src=a>\\n\x1b[31m\u202e"
    text = SMALL.replace("parameter(1)", f'parameter(1), metadata={{op_name="{name}"}}')
    uri = editor.open(text, "/nowhere/hostile.hlo")
    shown = present(editor.hover(uri, editor.at(uri, "%y = ", 1)))
    assert "op_name ```x`` <img src=a>\\n\\x1b[31m\\u202e```" in shown


# Names


@pytest.mark.parametrize(
    ("needle", "inside", "line"),
    [
        ("add(%x", 5, "  %x = f32[] parameter(0)"),
        ("%p#1", 0, "  %p = (s32[], f32[8]{0}) parameter(0)"),
        ("%p#1", 4, "  %p = (s32[], f32[8]{0}) parameter(0)"),
        ("control-predecessors={%zero", 24, "  %zero = f32[] constant(0)"),
        ("to_apply=%add", 10, "%add (x: f32[], y: f32[]) -> f32[] {"),
        ("body=%body", 8, "%body (p: (s32[], f32[8])) -> (s32[], f32[8]) {"),
        ("condition=%condition", 18, "%condition (q: (s32[], f32[8])) -> pred[] {"),
        ("ENTRY %main", 9, "ENTRY %main (a: f32[4,8]) -> (s32[], f32[8]) {"),
        ("a: f32[4,8]", 0, "  %a = f32[4,8]{1,0} parameter(0)"),
        ("%total = ", 3, "  %total = f32[8]{0} reduce(%a, %zero), dimensions={0}, to_apply=%add"),
    ],
)
def test_a_name_leads_to_its_definition(
    editor: Editor, needle: str, inside: int, line: str
) -> None:
    uri = editor.open(SMALL, "/nowhere/names.hlo")
    found = present(editor.definition(uri, editor.at(uri, needle, inside)))
    assert SMALL.split("\n")[found.start.line] == line
    assert text_at(SMALL, found) in needle or needle.startswith("a: ")


def test_what_is_no_name_leads_nowhere(editor: Editor) -> None:
    uri = editor.open(SMALL, "/nowhere/names.hlo")
    for needle in ("dimensions={0}", "a comment", "HloModule m", "constant(false)"):
        assert editor.definition(uri, editor.at(uri, needle, 2)) is None


def test_a_name_of_several_modules_stays_in_its_own(editor: Editor) -> None:
    uri = editor.open(SHORT, "/nowhere/modules.hlo")
    second = SHORT[: SHORT.index("HloModule second")].count("\n")
    for nth, first_line in ((0, 2), (1, second + 2)):
        called = editor.at(uri, "to_apply=add", 10, nth)
        found = present(editor.definition(uri, called))
        assert found.start.line == first_line
        lines = [place.start.line for place in editor.references(uri, called)]
        assert lines == [first_line, called.line]
        operand = editor.at(uri, "map(x", 4, nth)
        found = present(editor.definition(uri, operand))
        assert found.start.line == operand.line - 1


def test_references_are_all_places_of_a_name(editor: Editor) -> None:
    uri = editor.open(SMALL, "/nowhere/names.hlo")
    zero = editor.at(uri, "%zero = ", 1)
    found = editor.references(uri, zero)
    assert [text_at(SMALL, place) for place in found] == ["zero"] * 3
    lines = [SMALL.split("\n")[place.start.line].split()[0] for place in found]
    assert lines == ["%zero", "%total", "%start"]
    assert editor.references(uri, zero, declaration=False) == found[1:]
    a = editor.references(uri, editor.at(uri, "%a = ", 1))
    assert len(a) == 3  # with the parameter's name in the signature


# Fixes


def test_a_quick_fix_is_the_fix_of_the_command_line(editor: Editor) -> None:
    text = DUMP.read_text()
    uri = editor.open(text, str(DUMP))
    (told,) = editor.findings(uri)
    quick, allow, every = editor.actions(uri, told.range)
    assert quick.title == "spell the move out as copy and bitcast"
    assert quick.kind == types.CodeActionKind.QuickFix
    assert quick.is_preferred
    assert [each.code for each in quick.diagnostics or ()] == ["reshape-moves-data"]
    assert allow.title == "allow reshape-moves-data here (write the reason)"
    assert every.kind == "source.fixAll.hlo-lint"
    expected = hlo_lint.fix(DUMP).text
    assert edited(text, quick.edit) == edited(text, every.edit) == expected
    elsewhere = types.Range(*NO_EDGE)
    assert [each.kind for each in editor.actions(uri, elsewhere)] == [every.kind]
    assert not editor.actions(uri, elsewhere, only=["quickfix"])
    assert len(editor.actions(uri, elsewhere, only=["source.fixAll"])) == 1
    assert not editor.actions(uri, told.range, only=["refactor"])


def test_a_comment_that_allows_waits_for_its_reason(editor: Editor) -> None:
    text = DUMP.read_text()
    uri = editor.open(text, str(DUMP))
    (told,) = editor.findings(uri)
    _, allow, _ = editor.actions(uri, told.range)
    after = edited(text, allow.edit)
    comment = "  // hlo-lint: allow reshape-moves-data -- \n"
    assert after == text.replace("  " + RESHAPE, f"{comment}  {RESHAPE}")
    editor.change(uri, types.TextDocumentContentChangeWholeDocument(after))
    codes = [told.code for told in editor.findings(uri)]
    assert codes == ["unused-allowance", "reshape-moves-data"]
    assert "gives no reason" in editor.findings(uri)[0].message
    with_reason = after.replace("data -- \n", "data -- it is a test\n")
    editor.change(uri, types.TextDocumentContentChangeWholeDocument(with_reason))
    assert not editor.findings(uri)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_edit_is_in_the_code_units_of_the_client(encoding: str, end: str) -> None:
    before = "/*𝔘é*/ %reshape.15 = "
    text = DUMP.read_text().replace(RESHAPE, before).replace("programs.py", "𝔓rograms.py")
    text = text.replace("\n", end)
    editor = Editor(encoding)
    assert editor.started.capabilities.position_encoding == encoding
    uri = editor.open(text, "/nowhere/wide.hlo")
    (told,) = editor.findings(uri)
    quick, *_ = editor.actions(uri, told.range)
    fixed = edited(text, quick.edit, encoding)
    assert fixed == hlo_lint.fix(text).text
    assert not hlo_lint.lint(fixed).findings
    line = text.split("\n")[told.range.start.line]
    prefix = line[: line.index("(%get-tuple-element") + 1]
    codec, unit = CODECS[encoding]
    assert told.range.start.character == len(prefix.encode(codec)) // unit
    editor.close()


def test_a_fix_of_several_rounds_is_one_edit(editor: Editor) -> None:
    path = ROOT / "fixtures/payloads/add_wrong_legacy"
    files = [each for each in sorted(path.rglob("*")) if each.is_file()]
    fixable = [each for each in files if hlo_lint.fix(each).edits]
    assert fixable
    for file in fixable:
        text = file.read_text()
        uri = editor.open(text, str(file))
        actions = editor.actions(uri, types.Range(*NO_EDGE), only=["source.fixAll.hlo-lint"])
        (every,) = actions
        assert edited(text, every.edit) == hlo_lint.fix(file).text


# The outline


def outline(editor: Editor, uri: str) -> list[types.DocumentSymbol]:
    found = editor.wait(
        editor.client.text_document_document_symbol_async(
            types.DocumentSymbolParams(types.TextDocumentIdentifier(uri))
        )
    )
    return [each for each in found or () if isinstance(each, types.DocumentSymbol)]


def folds(editor: Editor, uri: str) -> list[tuple[int, int]]:
    found = editor.wait(
        editor.client.text_document_folding_range_async(
            types.FoldingRangeParams(types.TextDocumentIdentifier(uri))
        )
    )
    return [(each.start_line, each.end_line) for each in found or ()]


def test_the_outline_is_modules_computations_instructions(editor: Editor) -> None:
    (module,) = outline(editor, editor.open(SMALL, "/nowhere/outline.hlo"))
    assert (module.name, module.kind) == ("m", types.SymbolKind.Module)
    names = [(each.name, each.detail) for each in module.children or ()]
    assert names == [
        ("add", "3 instructions"), ("body", "2 instructions"), ("condition", "2 instructions"),
        ("main", "ENTRY"),
    ]  # fmt: skip
    main = (module.children or ())[-1]
    assert [(each.name, each.detail) for each in main.children or ()][3:] == [
        ("total", "f32[8]{0} reduce"),
        ("start", "(s32[], f32[8]{0}) tuple"),
        ("loop", "(s32[], f32[8]{0}) while"),
    ]

    def check(symbol: types.DocumentSymbol) -> None:
        assert symbol.range.start <= symbol.selection_range.start
        assert symbol.selection_range.end <= symbol.range.end
        for child in symbol.children or ():
            assert symbol.range.start <= child.range.start
            assert child.range.end <= symbol.range.end
            check(child)

    check(module)
    assert [each.name for each in outline(editor, editor.open(SHORT))] == ["first", "second"]


def test_computations_tables_modules_and_comments_fold(editor: Editor) -> None:
    assert folds(editor, editor.open(SMALL, "/nowhere/outline.hlo")) == [
        (2, 3), (4, 8), (10, 13), (15, 18), (20, 27),
    ]  # fmt: skip
    lines = DUMP.read_text().split("\n")
    found = folds(editor, editor.open(DUMP.read_text(), str(DUMP)))
    heads = [lines[start].split()[0] for start, _ in found]
    assert heads[:4] == ["FileNames", "FunctionNames", "FileLocations", "StackFrames"]
    assert heads[-1] == "ENTRY"
    assert len(folds(editor, editor.open(SHORT))) == 6
    begin, end = "// hlo-lint: allow-begin speed -- why", "// hlo-lint: allow-end speed"
    region = SMALL.replace("%body (", f"{begin}\n%body (").replace(
        "%condition (", f"{end}\n%condition (", 1
    )
    assert (10, 16) in folds(editor, editor.open(region))


# The server as a process


def test_a_settings_file_holds_for_what_lies_below_it(tmp_path: Path, editor: Editor) -> None:
    settings = tmp_path / "hlo_lint.toml"
    settings.write_text('before = "layout_normalization"\n[severity]\nlayout = "info"\n')
    uri = editor.open(DUMP.read_text(), str(tmp_path / "a.hlo"))
    (told,) = editor.findings(uri)
    assert told.severity is types.DiagnosticSeverity.Information
    assert "note: XLA stops at layout_normalization" in told.message
    settings.write_text('before = "nothing"\n')
    start = types.Position(0, 0)
    editor.change(uri, types.TextDocumentContentChangePartial(types.Range(start, start), "\n"))

    def told_of() -> bool:
        editor.hover(uri, start)
        return any("nothing" in message for message in editor.messages)

    assert any(told_of() for _ in range(2000))
    assert str(settings) in editor.messages[-1]
    settings.write_text('severity = { layout = "warning" }\n')
    watched = types.FileEvent(settings.as_uri(), types.FileChangeType.Changed)
    editor.published.pop(uri)
    editor.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([watched]))
    assert editor.findings(uri)[0].severity is types.DiagnosticSeverity.Warning
    for text in ('ignore = ["layout"]\n', 'exclude = ["*.hlo"]\nforce-exclude = true\n'):
        settings.write_text(text)
        editor.change(uri, types.TextDocumentContentChangePartial(types.Range(start, start), "\n"))
        assert not editor.findings(uri)


def test_an_allowance_without_use_is_no_finding_of_the_text(tmp_path: Path, editor: Editor) -> None:
    allowed = '[[allow]]\nrule = "speed"\nreason = "why"\npath = "a.hlo"\n' * 30
    (tmp_path / "hlo_lint.toml").write_text(allowed)
    path = tmp_path / "a.hlo"
    path.write_text("HloModule m\n\nENTRY e {\n  ROOT p = f32[8]{0} parameter(0)\n}\n")
    report = hlo_lint.lint(path, settings=hlo_lint.load_settings([path]))
    assert {found.rule for found in report.findings} == {"unused-allowance"}
    assert not editor.findings(editor.open(path.read_text(), str(path)))


def test_nothing_that_is_asked_ends_the_server(editor: Editor) -> None:
    assert editor.hover("file:///not/open.hlo", types.Position(3, 4)) is None
    assert editor.definition("file:///not/open.hlo", types.Position(3, 4)) is None
    assert not editor.actions("file:///not/open.hlo", types.Range(*NO_EDGE))
    name = "\udce9\x00\x0c\u2028"
    entry = f'ENTRY e {{ ROOT p = f32[] parameter(0), metadata={{op_name="{name}"}} }}'
    text = f"HloModule m\r\r{entry}"
    uri = editor.open(text, "/nowhere/odd.hlo")
    editor.findings(uri)
    assert editor.hover(uri, types.Position(10**6, 10**6)) is None
    assert editor.hover(uri, types.Position(2, 15)) is not None  # a lone return ends a line

    async def ask() -> object:
        return await editor.client.protocol.send_request_async("textDocument/nothing", {})

    with pytest.raises(JsonRpcException, match="Method Not Found"):
        editor.wait(ask())
    (symbol,) = outline(editor, uri)
    assert symbol.children


def test_a_question_does_not_wait_for_the_rules(editor: Editor) -> None:
    """A text of four megabytes takes seconds to check; a name of it is known at once."""
    dump = DUMP.read_text()
    head, body = dump[: dump.index("ENTRY ")], dump[dump.index("ENTRY ") :]
    copies = [body.replace("ENTRY %main.1", f"%copy.{number}") for number in range(1200)]
    text = "\n\n".join([head.rstrip("\n"), *(copy.rstrip("\n") for copy in copies), body])
    uri = editor.open(text, "/nowhere/large.hlo")
    assert editor.hover(uri, editor.at(uri, RESHAPE, 3)) is not None
    assert editor.published.get(uri) is None  # the rules are not done
    place = editor.at(uri, "%bitcast.12 = ", 5)
    editor.change(uri, types.TextDocumentContentChangePartial(types.Range(place, place), "x"))
    assert editor.hover(uri, place) is not None
    assert editor.published.get(uri) is None
    assert len(editor.findings(uri)) > 1200
    editor.close_text(uri)


def test_the_server_ends_in_the_midst_of_a_check() -> None:
    editor = Editor()
    dump = DUMP.read_text()
    body = dump[dump.index("ENTRY ") :].rstrip("\n")
    copies = [body.replace("ENTRY %main.1", f"%copy.{number}") for number in range(1000)]
    uri = editor.open("\n\n".join(["HloModule m", *copies, body]) + "\n", "/nowhere/large.hlo")
    assert editor.hover(uri, types.Position(2, 2)) is not None
    assert editor.published.get(uri) is None
    assert editor.close() == 0


def initialize() -> bytes:
    """The first message of a client."""
    params: dict[str, object] = {"processId": None, "rootUri": None, "capabilities": {}}
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    return f"Content-Length: {len(message)}\r\n\r\n{message}".encode()


def test_the_server_ends_with_its_client() -> None:
    ran = subprocess.run(SERVER, input=initialize(), capture_output=True, cwd=ROOT, timeout=60)
    assert b"hlo-lint" in ran.stdout
    assert ran.stderr == b""


@pytest.mark.parametrize(("name", "status"), [("SIGINT", 0), ("SIGTERM", 143)])
def test_a_signal_ends_the_server_whose_client_is_there(name: str, status: int) -> None:
    with started(
        SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    ) as server:
        assert server.stdin is not None
        server.stdin.write(initialize())
        server.stdin.flush()
        assert present(server.stdout).readline().startswith(b"Content-Length:")
        time.sleep(0.2)  # it waits for the next message
        server.send_signal(signal.Signals[name])
        assert server.wait(10) == status


def test_messages_that_are_not_of_the_protocol_are_errors_without_a_traceback() -> None:
    depth = 50_000
    headers = [f"Content-Length: {length}\r\n\r\n" for length in (2 * depth, 1 << 62)]
    messages = ("[" * depth + "]" * depth).join(headers).encode()
    ran = subprocess.run(SERVER, input=messages, capture_output=True, timeout=60)
    unread, ended = ran.stderr.decode().splitlines()
    assert unread.startswith("ERROR:pygls.server:a message cannot be read: ")
    assert ended == (
        f"Error: standard input: a message of {1 << 62} bytes is too long for the "
        "Language Server Protocol"
    )
    assert ran.returncode == 2


def test_without_its_library_the_server_says_what_to_install() -> None:
    program = "from hlo_lint.apps.cli.program import main; main()"
    code = f"import sys; sys.modules['pygls'] = None; {program}"
    ran = completed([sys.executable, "-c", code, "server"], cwd=ROOT)
    assert ran.returncode == 2
    assert ran.stderr == (
        "Error: the server needs pygls, which is not installed: pip install 'hlo-lint[lsp]'\n"
    )
