"""The HTML report, in a real browser: what it shows, and that nothing of a dump gets out of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hlo_lint
from hlo_lint.analysis.diff.difference import diff
from hlo_lint.analysis.pass_stats import Effect, passes
from hlo_lint.apps.testing import write_example
from hlo_lint.dumps.directory import open_dump
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.report.html import neighbourhood as drawing
from hlo_lint.report.html import pass_diff
from hlo_lint.report.html.collect import MAX_DETAILS, Collected, collect
from hlo_lint.report.html.dimensions import move
from hlo_lint.report.html.excerpt import Partners, side_by_side
from hlo_lint.report.html.module_graph import graph_of, layered, module_graph
from hlo_lint.report.html.neighbourhood import draw, neighbourhood
from hlo_lint.report.html.page import render_html
from hlo_lint.report.html.pass_diff import Budget
from hlo_lint.report.html.visible import MAX_LENGTH, script, visible
from hlo_lint.report.text import describe
from hlo_lint.rules.base import Bad
from hlo_lint.rules.pipeline.values_changed import ValuesChanged
from tests.apps.test_cli import run
from tests.conftest import CRASH, DUMPS, new_folder, present, written
from tests.report.conftest import FORCED, Open, text_in, write
from tests.texts import CLEAN, LOOSE, entry

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


def headings(page: Page) -> list[str]:
    texts: list[str] = page.locator("main h3").all_inner_texts()
    return texts


def test_the_page_shows_modules_and_what_passes_changed(opened: Open, crash_page: Path) -> None:
    page = opened(crash_page)
    assert page.title() == "report – hlo-lint"
    about = "XLA:GPU with the passes of jax 0.10.0 · 33 files of HLO"
    assert text_in(page, ".top p").startswith(about)
    modules, passes = page.locator("main table").all()
    row = "module_0001.jit_batched_dot\tcompilation died\t33\t19\t1 error"
    assert modules.locator("tbody").inner_text() == row
    last = passes.locator("tr").last.inner_text()
    assert last.startswith("0030\tautotuner\n● reshape-moves-data\n")
    page.wait_for_selector("main svg .life", state="attached")
    assert page.locator("main svg .life").count() == 1


def test_a_click_leads_to_all_that_is_known_of_a_finding(opened: Open, crash_page: Path) -> None:
    page = opened(crash_page)
    page.locator("#list a").click()
    assert text_in(page, "main h2").startswith("this reshape moves bytes: f32[16,128,")
    assert headings(page) == [
        "Python", "HLO before and after autotuner", "What moves in memory",
        "Around the instruction", "The whole module", "Fix", "In the run of the module",
        "Why it matters",
    ]  # fmt: skip
    facts = text_in(page, ".facts")
    assert "programs.py:40 in batched_dot" in facts
    assert "pass autotuner of post-layout_assignment, step 0030" in facts
    line = page.locator("tr.at").first.inner_text().strip()
    assert line.startswith("40\t    return jax.lax.dot_g")
    assert "LayoutNormalization" in text_in(page, "main details")


def test_hlo_before_and_after_the_pass_stands_side_by_side(opened: Open, crash_page: Path) -> None:
    page = opened(crash_page)
    page.locator("#list a").click()
    table = page.locator("table.lines").nth(1)
    assert table.locator(".removed td.old").last.inner_text().startswith("%gemm_fusion_dot.2 = ")
    added = table.locator(".added td.new:not(.n)").all_inner_texts()
    assert [line.split(" ")[0] for line in added] == [
        "%custom-call.1", "%get-tuple-element", "%reshape.15", "%bitcast.18",
    ]  # fmt: skip
    line = table.locator("tr.at td.new").last.inner_text()
    assert line.startswith("%reshape.15 = f32[2,8,128,32]")
    changed = table.locator(".changed mark").all_inner_texts()
    assert changed == ["gemm_fusion_dot.2", "bitcast.18"]


def test_the_moved_dimension_is_drawn(opened: Open, crash_page: Path) -> None:
    page = opened(crash_page)
    page.locator("#list a").click()
    sizes = page.locator(".drawing svg g.moves text").all_text_contents()
    assert sizes == ["32", "32"]
    assert page.locator(".drawing svg g.moves .link").count() == 1
    assert page.locator("svg .node.at .strong").text_content() == "%reshape.15"
    assert page.locator("svg .node.new").count() == 3


def test_the_fix_is_shown_as_a_difference(opened: Open, crash_page: Path) -> None:
    page = opened(crash_page)
    page.locator("#list a").click()
    gone = text_in(page, "tr.minus")
    new = page.locator("tr.plus").all_inner_texts()
    assert "reshape(%get-tuple-element)" in gone
    assert [re.search(r"(\w+)\(%", line)[1] for line in new] == ["copy", "bitcast"]  # type: ignore[index]


def test_filters_and_search_choose_findings(opened: Open, forced_page: Path) -> None:
    page = opened(forced_page)
    cards = page.locator("#list a")
    rules = page.locator("#list .rule")
    every = cards.count()
    assert every > 2
    page.get_by_label("warning", exact=True).uncheck()
    assert set(rules.all_inner_texts()) == {"reshape-moves-data"}
    assert text_in(page, "#shown") == f"{cards.count()} of {every} findings"
    page.get_by_label("warning", exact=True).check()
    page.locator("#search").fill("RUNS-as kernel")
    assert set(rules.all_inner_texts()) == {"reshape-runs-as-kernel"}
    page.locator("#search").press("Escape")
    assert cards.count() == every
    page.locator("#pass").select_option("autotuner")
    assert set(rules.all_inner_texts()) == {"reshape-moves-data"}
    page.locator("#pass").select_option("")
    page.locator("#rule").select_option("reshape-runs-as-kernel")
    assert set(rules.all_inner_texts()) == {"reshape-runs-as-kernel"}
    page.locator("#search").fill("nowhere")
    assert cards.count() == 0


def test_what_was_resolved_is_marked_in_list_and_line(opened: Open, forced_page: Path) -> None:
    page = opened(forced_page)
    page.locator("#list a", has_text="reshape-moves-data").click()
    assert "pass fusion-wrapper of pre-scheduling-passes, step 0057" in text_in(page, ".facts")
    life = page.locator("svg .life:not(.faint)")
    assert life.locator("title").text_content() == (
        "reshape-moves-data: introduced by autotuner (step 0048), "
        "resolved by fusion-wrapper (step 0057)"
    )
    page.locator(".facts a").first.click()
    marked = page.locator("main tr.marked").all_inner_texts()
    assert [re.findall(r"[●✕] [\w× -]+", row) for row in marked] == [
        ["● reshape-moves-data"],
        ["● 2× reshape-runs-as-kernel", "✕ reshape-moves-data"],
    ]


def test_a_link_leads_to_a_finding_and_the_way_back_works(opened: Open, forced_page: Path) -> None:
    found = hlo_lint.lint(FORCED, resolved=True).findings[0]
    page = opened(forced_page, f"#finding-{found.fingerprint}")
    assert text_in(page, "main h2") == found.message
    page.locator("h1 a").click()
    page.wait_for_selector("main h2", state="detached")
    page.go_back()
    page.wait_for_selector("main h2")
    assert text_in(page, "main h2") == found.message
    assert page.locator("#list a[aria-current]").count() == 1


def test_the_page_opens_on_the_worst_finding_and_module(opened: Open, tmp_path: Path) -> None:
    shutil.copytree(CRASH, tmp_path / "d" / "z")
    for name in ("a", "b"):
        (tmp_path / "d" / f"{name}.hlo").write_text(LOOSE if name == "b" else CLEAN)
    path = write(tmp_path / "d", tmp_path / "report.html")
    page = opened(path, "")
    assert text_in(page, "main h2").startswith("this reshape moves bytes: f32[16,")
    link = page.locator(".page a")
    assert link.get_attribute("href") == (
        "https://hlo-lint.readthedocs.io/en/stable/rules/reshape-moves-data.html"
    )
    page.locator("h1 a").click()
    rows = page.locator("main table").first.locator("tbody tr").all_inner_texts()
    titles = [row.split("\t")[0] for row in rows]
    assert [re.split(r"/|\n", title)[-1] for title in titles] == [
        "module_0001.jit_batched_dot", "b.hlo", "a.hlo",
    ]  # fmt: skip


def test_a_page_of_information_alone_opens_on_the_modules(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "b.hlo").write_text(LOOSE)
    options = ("--severity", "layout=info")
    page = opened(write(tmp_path / "b.hlo", tmp_path / "report.html", *options), "")
    assert page.locator("main h2").count() == 0


def test_the_keyboard_is_enough(opened: Open, forced_page: Path) -> None:
    page = opened(forced_page)
    page.keyboard.press("/")
    page.keyboard.type("kernel")
    for _ in range(5):  # warnings, infos, rule, pass, the first finding
        page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector("#list li:nth-child(2) a[aria-current]")
    assert page.evaluate("document.activeElement.id") == "main"


def test_it_is_dark_as_the_reader_likes_or_a_button_says(opened: Open, crash_page: Path) -> None:
    def ground(page: Page) -> int:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)[:3]))

    light, dark = (opened(crash_page, color_scheme=scheme) for scheme in ("light", "dark"))
    assert ground(dark) < 150 < 600 < ground(light)
    dark.locator("#theme").click()
    assert ground(dark) == ground(light)


@pytest.mark.parametrize("width", [480, 800, 1400])
def test_nothing_is_wider_than_the_screen(opened: Open, crash_page: Path, width: int) -> None:
    page = opened(crash_page, viewport={"width": width, "height": 900})
    for _ in range(2):
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.locator("#list a").click()


def test_it_asks_a_server_for_nothing_but_itself(chromium: Browser, crash_page: Path) -> None:
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, form: str, *args: Any) -> None:
            asked.append(self.path)

    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Handler, directory=str(crash_page.parent))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        page = chromium.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/report.html")
        page.locator("#list a").click()
        page.wait_for_timeout(300)
        page.close()
    finally:
        server.shutdown()
        server.server_close()
    assert asked == ["/report.html"]


# Hostile dumps

ATTACK = "</script><img src=x onerror=alert(1)>"
TURN = "\u202egnp.exe\u2066"
END = f"<!--<script>{TURN}"
HOSTILE = f"""HloModule m, entry_computation_layout={{(f32[8,3]{{1,0}})->f32[4,2,3]{{0,1,2}}}}

FileNames
1 "{ATTACK}\x1b[31m.py"

FunctionNames
1 "{ATTACK}"

FileLocations
1 {{file_name_id=1 function_name_id=1 line=7 end_line=7 column=1 end_column=2}}

StackFrames
1 {{file_location_id=1 parent_frame_id=1}}


ENTRY %main (p: f32[8,3]) -> f32[4,2,3] {{
  %p = f32[8,3]{{1,0}} parameter(0), metadata={{op_name="{ATTACK}{TURN}\x00\x07"}}
  %neg = f32[8,3]{{1,0}} negate(%p), frontend_attributes={{x="{ATTACK}{TURN}\udce9"}}
  %r = f32[4,2,3]{{0,1,2}} reshape(%neg), metadata={{op_name="{ATTACK}{TURN}" stack_frame_id=1}}
  %c = f32[4,2,3]{{0,1,2}} custom-call(%r), custom_call_target="{ATTACK}{END}"
  {ATTACK} {TURN} \x1b[2J is no instruction
  ROOT %s = f32[4,2,3]{{0,1,2}} negate(%c)
}}
"""


def hostile_dump(folder: Path) -> Path:
    """A run of two dumps whose names and texts attack the page: the second has the findings."""
    module = "module_0001.jit_<img src=x onerror=alert(1)>"
    before = HOSTILE.replace("{0,1,2} reshape", "{2,1,0} reshape")
    for name, text in (
        (f"{module}.0001.p.after_<b>{TURN}.before_<title>.txt", before),
        (f"{module}.0002.p.after_<i id=x>.before_layout_normalization.txt", HOSTILE),
        ("loose<svg onload=alert(3)>\udcff.hlo", HOSTILE.replace(" m,", f" m{TURN}<b>,")),
    ):
        (folder / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    return folder


def test_a_hostile_dump_stays_text(opened: Open, tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "<img src=x onerror=alert(4)>\x1b[31m")
    out = write(hostile_dump(folder), tmp_path / "report.html")
    page = opened(out)
    links = page.locator("#list a").all()
    assert len(links) >= 3
    for link in links:
        link.click()
        seen = text_in(page, "body")
        assert page.locator("img, b:not(.totals b), i, script:not([type]) ~ *").count() == 0
        assert not re.search(
            r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", seen
        )
    page.locator("#list a", has_text="reshape-moves-data").first.click()
    page.wait_for_selector("main .above >> text=reshape-moves-data")
    main = text_in(page, "main")
    assert f"{ATTACK}\\u202egnp.exe\\u2066" in main
    assert f"{ATTACK}\\x1b[31m.py:7 in {ATTACK}" in main
    assert "module_0001.jit_<img src=x onerror=alert(1)>" in text_in(page, "#module")
    for option in page.locator("#module option").all_inner_texts()[1:]:
        page.locator("#module").select_option(label=option)
        assert option.endswith(f" ({page.locator('#list a').count()})")
    page.locator("#module").select_option("")
    page.locator("#rule").select_option("unreadable-text")
    page.locator("#list a", has_text="expected an instruction").first.click()
    page.wait_for_selector("main .above >> text=unreadable-text")
    lines = text_in(page, "table.lines")
    assert f"{ATTACK} \\u202egnp.exe\\u2066 \\x1b[2J is no instruction" in lines


def test_the_page_itself_holds_nothing_hidden_and_runs_nothing_else(tmp_path: Path) -> None:
    page = write(hostile_dump(tmp_path), tmp_path / "report.html").read_bytes().decode()
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", page)
    assert "onerror=alert(1)>" not in page.replace("onerror=alert(1)\\u003e", "")
    assert page.count("<script>") == 1
    policy = present(re.search(r'Content-Security-Policy" content="([^"]*)"', page))
    assert policy[1].startswith(
        "default-src &#39;none&#39;; img-src data:; base-uri &#39;none&#39;"
    )
    assert "unsafe" not in policy[1]
    assert not re.search(r"(?:src|action)=\"(?!#|data:,)", page)
    links = set(re.findall(r"href=\"(?!#|data:,)(.*?)/rules/[a-z-]+\.html\"", page))
    assert links == {"https://hlo-lint.readthedocs.io/en/stable"}
    assert page.count('href="http') == page.count('href="https://hlo-lint.readthedocs.io/')


@given(st.text(st.characters(codec=None)))
def test_any_text_is_data_of_visible_characters(text: str) -> None:
    data = script({"name": [text]})
    assert data.isascii()
    assert not set("<>&\n") & set(data)
    assert json.loads(data) == visible({"name": [text]})
    assert json.loads(data)["name"][0].isprintable() or not text


def test_a_string_is_cut_where_it_is_very_long() -> None:
    assert visible("a" * (MAX_LENGTH + 7)) == "a" * MAX_LENGTH + "… (7 more characters)"


# What it holds


def collected(target: Path) -> Collected:
    return collect(open_dump(target), hlo_lint.lint(target, resolved=True))


def test_what_is_allowed_is_told_and_counts_for_nothing(opened: Open, tmp_path: Path) -> None:
    settings = tmp_path / "hlo_lint.toml"
    rules = ("reshape-moves-data", "needless-transpose")
    tables = [f'[[allow]]\nrule = "{rule}"\nreason = "{ATTACK}"\n' for rule in rules]
    settings.write_text("\n".join(tables))
    page = opened(write(CRASH, tmp_path / "report.html", "--config", str(settings)))
    assert text_in(page, ".totals").split() == [
        "0", "errors", "1", "warning", "1", "allowed",
    ]  # fmt: skip
    note = page.locator("main .notes li").first.inner_text()
    assert note.endswith(f".txt:43:50, by configuration: {ATTACK}")
    page.locator("#list a").click()
    assert text_in(page, "main h2") == ("there is no finding of needless-transpose to allow")


def test_lines_of_python_are_shown_only_below_named_folders(crash: Path, tmp_path: Path) -> None:
    secret = written(tmp_path / "secret.py", "the secret\n" * 50)
    inside = new_folder(tmp_path / "inside")
    for name in ("../secret.py", str(secret), "link.py"):
        for file in crash.glob("*.txt"):
            file.write_text(re.sub(r'^1 "[^"]*py"$', f'1 "{name}"', file.read_text(), flags=re.M))
        (inside / "link.py").unlink(missing_ok=True)
        (inside / "link.py").symlink_to(secret)
        report = hlo_lint.lint(crash, resolved=True)
        assert present(report.findings[0].origin).file == name
        assert "the secret" not in render_html(open_dump(crash), report, sources=[inside])
        if name == str(secret):
            assert "the secret" in render_html(open_dump(crash), report, sources=[tmp_path])


def test_of_very_many_findings_the_page_says_what_it_leaves_out(tmp_path: Path) -> None:
    count = MAX_DETAILS + 20
    lines = [f"  r{n} = f32[4,2,3]{{0,1,2}} reshape(p)" for n in range(count)]
    text = entry("\n".join(["  p = f32[8,3]{1,0} parameter(0)", *lines]))
    path = written(tmp_path / "many.hlo", text)
    found = collected(path)
    assert len(found["index"]["findings"]) == count
    assert len(found["details"]) == MAX_DETAILS
    assert found["index"]["left_out"] == [
        f"HLO, drawing and fix of 20 findings: the page holds {MAX_DETAILS}, "
        "the first of each card before the others"
    ]
    assert sorted(found["details"]) == list(range(MAX_DETAILS))


def test_dumps_that_changed_nothing_are_counted(tmp_path: Path) -> None:
    passes = collected(CRASH)["index"]["modules"][0]["timeline"]["passes"]
    assert [each["name"] for each in passes][:3] == [
        "before_optimizations", "dot_decomposer", "dynamic-dimension-simplifier",
    ]  # fmt: skip
    assert sum(1 + each["left_out"] for each in passes) == 32  # a named one is beside the run
    assert passes[0]["bytes"] == 16384


def test_two_long_lines_are_cut_so_that_their_difference_is_seen() -> None:
    call = '  p = f32[8]{0} parameter(0)\n  ROOT r = f32[8]{0} custom-call(p), backend_config="'
    before, after = (hlo_lint.parse(entry(f'{call}{"x" * 900}{end}"')) for end in "ab")
    around = neighbourhood(present(after.entry).instructions[1])
    partners = Partners(before, after).of("e")
    row = side_by_side(around, partners, before, after)[1]
    assert row["kind"] == "changed"
    for line, name in ((row["before"], "a"), (row["after"], "b")):
        assert line is not None
        text = "".join(part for _, part in line["text"])
        assert text.startswith("ROOT r = f32[8]{0} custom-call(p), backend_config=")
        assert text.endswith(f'xxxx{name}"')
        assert any(differs and part.endswith(name) for differs, part in line["text"])


def instruction(text: str, name: str) -> tuple[Instruction, Module]:
    module = hlo_lint.parse(text)
    found = present(present(module.entry).instruction(name))
    return found, module


@pytest.mark.parametrize(
    ("operand", "result", "opcode", "sizes", "moved"),
    [
        ("f32[16,128,32]{2,1,0}", "f32[2,8,128,32]{2,3,1,0}", "reshape", [2, 8, 128, 32], [3]),
        ("f32[8,3]{1,0}", "f32[4,2,3]{2,1,0}", "reshape", [4, 2, 3], []),
        ("f32[8,3]{1,0}", "f32[3,8]{1,0}", "transpose, dimensions={1,0}", [8, 3], [1]),
        ("f32[8,1,3]{2,1,0}", "f32[8,1,3]{0,2,1}", "copy", [8, 3], [1]),
        ("f32[2,3,4]{2,1,0}", "f32[2,3,4]{0,1,2}", "copy", [2, 3, 4], [0, 1]),
    ],
)
def test_as_few_elements_as_possible_are_said_to_move(
    operand: str, result: str, opcode: str, sizes: list[int], moved: list[int]
) -> None:
    name, comma, attributes = opcode.partition(",")
    root = f"  ROOT r = {result} {name}(p){comma}{attributes}"
    text = entry(f"  p = {operand} parameter(0)\n{root}")
    drawn = present(move(*instruction(text, "r")))
    assert (drawn["sizes"], drawn["moved"]) == (sizes, moved)
    for side in (drawn["operand"], drawn["result"]):
        pieces = sorted(piece for each in side["dimensions"] for piece in each["pieces"])
        assert pieces == list(range(len(sizes)))


def test_no_move_is_drawn_where_pieces_do_not_fit() -> None:
    text = entry("  p = f32[4,6]{1,0} parameter(0)\n  ROOT r = f32[6,4]{1,0} reshape(p)")
    assert move(*instruction(text, "r")) is None


BUSY = entry("""
  p = f32[8]{0} parameter(0)
  a = f32[8]{0} negate(p)
  b = f32[8]{0} add(a, p)
  at = f32[8]{0} multiply(b, a)
  u0 = f32[8]{0} add(at, p)
  u1 = f32[8]{0} add(at, u0)
  u2 = f32[8]{0} add(u1, u0)
  u3 = f32[8]{0} negate(at)
  u4 = f32[8]{0} negate(at)
  u5 = f32[8]{0} negate(at)
  u6 = f32[8]{0} negate(at)
  ROOT t = (f32[8]{0}, f32[8]{0}) tuple(u2, u3)
""")


def test_edges_of_the_drawing_point_down_and_nodes_do_not_overlap() -> None:
    around = neighbourhood(instruction(BUSY, "at")[0])
    graph = draw(around)
    places = {node["name"]: (node["x"], node["y"]) for node in graph["nodes"]}
    assert places["p"][1] < places["a"][1] < places["b"][1] < places["at"][1] < places["u0"][1]
    for points in graph["edges"]:
        assert all(one[1] < other[1] for one, other in pairwise(points))
    for one, other in pairwise(sorted(places.values(), key=lambda place: (place[1], place[0]))):
        assert one[1] != other[1] or one[0] + drawing.WIDTH <= other[0]
        assert 0 <= one[0] <= graph["width"] - drawing.WIDTH
    assert {node["name"]: node["more"] for node in graph["nodes"]}["at"] == "1 more user"


# The command


@pytest.mark.slow
def test_the_page_goes_to_standard_output_on_request_and_says_what_it_is() -> None:
    done = run("report", str(CRASH), "-o", "-")
    assert done.output.startswith(b"<!DOCTYPE html>")
    assert done.status == 1


def test_the_command_says_what_it_wrote(tmp_path: Path) -> None:
    done = run("report", str(CRASH), "-o", str(tmp_path / "r.html"))
    assert re.fullmatch(rf"{tmp_path}/r\.html: 1 error, \d+ kB\n", done.errors)


def test_two_reports_of_one_dump_are_the_same() -> None:
    report = hlo_lint.lint(CRASH, resolved=True)
    pages = {render_html(open_dump(CRASH), report) for _ in range(2)}
    assert len(pages) == 1


def test_an_instruction_of_the_graph_is_below_its_operands() -> None:
    module = hlo_lint.parse(next(FORCED.glob("*gpu_after_optimizations.txt")).read_text())
    graph = module_graph(module, "a.txt", {}, [])
    assert len(graph["names"]) == sum(map(len, module))
    assert graph["computations"][0]["name"] == module.entry_computation.name
    pairs = list(zip(graph["edges"][::2], graph["edges"][1::2], strict=True))
    assert pairs
    assert all(graph["y"][operand] < graph["y"][user] for operand, user in pairs)
    places = list(zip(graph["x"], graph["y"], strict=True))
    for block in graph["computations"]:
        mine = places[block["start"] : block["end"]]
        assert len(set(mine)) == len(mine), "no two instructions lie on each other"


def test_an_operand_that_stands_below_its_user_ends_in_no_loop() -> None:
    text = "HloModule m\n\nENTRY e {\n  a = f32[] negate(b)\n  b = f32[] negate(a)\n}\n"
    assert layered(hlo_lint.parse(text)["e"]) == ([0.0, 0.0], [0, 1])


def test_a_module_that_is_too_large_has_no_graph(tmp_path: Path) -> None:
    path = written(tmp_path / "a.hlo", LOOSE)
    [compilation] = hlo_lint.open_dump(path).compilations
    found = hlo_lint.lint(path).findings
    assert graph_of(compilation, found, 100) is not None
    assert graph_of(compilation, found, 2) is None
    assert graph_of(compilation, [], 100) is None


def test_the_whole_module_is_drawn_on_demand(opened: Open, forced_page: Path) -> None:
    page = opened(forced_page, "")
    assert page.locator(".whole").count() == 0
    page.get_by_role("button", name="Draw the module").click()
    page.wait_for_selector(".whole canvas")
    status = page.locator(".whole + p")
    assert status.inner_text().startswith(
        "%wrapped_reshape = f16[16,64,128]{2,1,0} fusion, 256.0 KiB"
    )
    assert status.inner_text().endswith("made by fusion-wrapper")
    assert page.evaluate("document.querySelectorAll('.whole canvas').length") > 3
    page.get_by_label("Find an instruction").fill("no_such_name")
    page.get_by_label("Find an instruction").press("Enter")
    assert status.inner_text() == "No instruction is named no_such_name."
    for colouring in ("bytes", "opcode", "pass"):
        page.get_by_label("Colour").select_option(colouring)
    folded = re.compile(r"\d+ computations? folded")
    page.get_by_role("button", name="Fold all", exact=True).click()
    page.get_by_role("button", name="Unfold all").click()
    assert not folded.search(status.inner_text())
    page.get_by_role("button", name="Fold all", exact=True).click()
    assert folded.search(status.inner_text())


def test_a_page_without_findings_carries_no_library(tmp_path: Path) -> None:
    (tmp_path / "a.hlo").write_text("HloModule m\n\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n")
    page = write(tmp_path / "a.hlo", tmp_path / "report.html").read_text()
    assert "MultiUndirectedGraph" not in page
    assert len(page) < 100_000


def test_a_phone_shows_all_of_a_table_and_breaks_no_word(opened: Open, crash_page: Path) -> None:
    page = opened(crash_page, "#module-0", viewport={"width": 390, "height": 844})
    box = present(page.locator("main .panel > table").first.bounding_box())
    assert box["width"] <= 390
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    heights = page.evaluate(
        "[...document.querySelectorAll('main td .code')].map(cell => cell.offsetHeight)"
    )
    assert max(heights) < 60, "names fold at their underscores, not letter by letter"


def test_on_a_phone_before_and_after_stand_in_one_column(opened: Open, crash_page: Path) -> None:
    page = opened(crash_page, viewport={"width": 390, "height": 844})
    page.locator("#list a").click()
    before, after = page.locator("table.two tr.changed").first.locator("td:not(.n)").all()
    above, below = (present(each.bounding_box()) for each in (before, after))
    assert above["x"] == below["x"]
    assert above["y"] + above["height"] <= below["y"]
    assert below["x"] + below["width"] <= 390
    assert not page.locator("table.two tr.same td.old").first.is_visible()


def test_a_printed_page_has_neither_lists_nor_buttons(opened: Open, crash_page: Path) -> None:
    page = opened(crash_page, "")
    page.emulate_media(media="print")
    assert not page.locator("aside").is_visible()
    assert not page.locator("#theme").is_visible()
    assert page.locator("main h2").is_visible()


@pytest.mark.slow
def test_where_values_changed_is_drawn(opened: Open, tmp_path: Path) -> None:
    pytest.importorskip("jaxlib")
    example = next(each for each in ValuesChanged.examples if isinstance(each, Bad))
    (tmp_path / "d").mkdir()
    result = hlo_lint.validate(write_example(example, tmp_path / "d"))
    (finding,) = result.report.findings
    wrong = sum(sign != "." for row in finding.error_map for sign in row)
    assert (len(finding.error_map), len(finding.error_map[0])) == (4, 4)
    path = tmp_path / "report.html"
    path.write_text(render_html(open_dump(tmp_path / "d"), result.report, title="t", sources=()))
    colours = []
    for scheme in ("light", "dark"):
        page = opened(path, f"#finding-{finding.fingerprint}", color_scheme=scheme)
        assert "Where the error is" in headings(page)
        cells = page.locator("svg.errors .wrong")
        assert cells.count() == wrong > 0
        assert page.locator("svg.errors title").text_content() == (
            f"elements that differ in {wrong} of 16 cells"
        )
        colours.append(cells.first.evaluate("cell => getComputedStyle(cell).fill"))
    assert colours[0] != colours[1]


# Passes


def test_a_click_on_a_pass_shows_what_it_changed(opened: Open, forced_page: Path) -> None:
    page = opened(forced_page, "#module-0")
    page.locator("table.passes a", has_text="fusion-wrapper").last.click()
    page.wait_for_selector("table.lines")
    assert text_in(page, "main h2") == "fusion-wrapper"
    assert page.locator(".difference .hint").first.inner_text() == (
        "2 removed, 6 added, 2 changed in 3 computations; names and metadata are not compared."
    )
    assert page.locator(".difference h4").all_inner_texts()[1:] == [
        "computation %wrapped_reshape_computation: added, 2 instructions",
        "computation %wrapped_reshape_computation.1: added, 2 instructions",
    ]
    entry = page.locator(".difference table").first
    removed = entry.locator(".removed td.old:not(.n)").all_inner_texts()
    assert [line.split(" ")[0] for line in removed] == ["%reshape.12", "%reshape.14"]
    assert entry.locator(".added td.new:not(.n)").first.inner_text().startswith("%wrapped_reshape")
    assert "reshape-moves-data" in text_in(page, ".events")
    assert page.locator("svg .hover.current").count() == 1


def test_the_passes_are_gone_through_by_links_and_keys(opened: Open, forced_page: Path) -> None:
    page = opened(forced_page, "#pass-0-3")
    name = text_in(page, "main h2")
    following = text_in(page, ".beside [rel=next]").removesuffix(" →").split()[-1]
    page.keyboard.press("ArrowRight")
    assert text_in(page, "main h2") == following
    page.keyboard.press("ArrowLeft")
    assert text_in(page, "main h2") == name
    page.locator("svg a[href='#pass-0-0'] rect").click()
    page.wait_for_selector("text=The first dump")
    assert page.locator(".beside [rel=prev]").count() == 0


def test_every_line_that_differs_is_on_the_page_or_counted() -> None:
    compilation = max(open_dump(FORCED), key=lambda found: len(found.dumps))
    steps = list(passes(compilation))
    budget = Budget()
    for before, after in pairwise(steps):
        held = budget.difference(before, after)
        found = diff(before.dump.module, after.dump.module)
        if held is None:
            assert after.effect is not Effect.CHANGED
            assert found.same
            continue
        rows = [row for part in held["computations"] for row in part["rows"]]
        assert sum(row["kind"] != "gap" for row in rows) == sum(found.counts.values())
        assert held["left_out"] == 0
        numbers = [
            row["after"]["number"]
            for part in held["computations"]
            for row in part["rows"][:1]
            if row["after"]
        ]
        assert all(number > 0 for number in numbers)


def test_a_difference_without_room_is_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pass_diff, "MAX_ROWS_OF_PASS", 5)
    monkeypatch.setattr(pass_diff, "MAX_ROWS", 12)
    compilation = max(open_dump(FORCED), key=lambda found: len(found.dumps))
    budget = Budget()
    held = [budget.difference(*pair) for pair in pairwise(passes(compilation))]
    first = next(filter(None, held))
    assert (sum(len(part["rows"]) for part in first["computations"]), first["left_out"]) == (6, 2)
    assert budget.rows == 0
    assert budget.left_out > 5
    left_out = collected(FORCED)["index"]["left_out"]
    assert any("hlo-lint diff --in DIR STEP STEP" in line for line in left_out)


def test_what_later_passes_resolved_is_folded_by_kind(opened: Open, tmp_path: Path) -> None:
    dump = DUMPS / "gpu-jax0.11.2" / "offloaded_scan_refused"
    page = opened(write(dump, tmp_path / "report.html"))
    fold = page.locator("#list details")
    card = page.locator("#list > li", has_text="call-graph-not-flat")
    assert card.locator(".badge").all_inner_texts() == ["2×", "resolved"]
    assert page.locator("#list details a:visible").count() == 0
    fold.locator("summary").click()
    page.wait_for_selector("#list details a")
    page.locator("#list details a").last.click()
    assert "resolved by a later pass" in text_in(page, "main .above")
    again = opened(tmp_path / "report.html", page.url.partition(".html")[2])
    assert again.locator("#list details a[aria-current]").is_visible()


def test_without_findings_the_largest_module_is_shown(opened: Open, tmp_path: Path) -> None:
    small = "HloModule small\n\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n"
    for number, text in enumerate((small, CLEAN, small)):
        name = f"module_000{number}.jit_f.0001.a.after_b.before_c.txt"
        (tmp_path / name).write_text(text)
    page = opened(write(tmp_path, tmp_path / "report.html"), "")
    assert page.locator("main table").first.locator("a").first.inner_text() == "module_0001.jit_f"
    assert "Timeline of module_0001.jit_f" in headings(page)
    assert not page.locator("#filters").is_visible()


def test_what_came_as_a_pipeline_began_is_between_two_dumps(opened: Open, tmp_path: Path) -> None:
    pytest.importorskip("jaxlib")
    text = "HloModule m\n\nENTRY e {\n  p = f32[4]{0} parameter(0)\n  ROOT r = f32[4]{0} OP(p)\n}\n"
    folder = new_folder(tmp_path / "d")
    for step, (name, opcode) in enumerate(
        [("a.after_pipeline-start.before_x", "negate"), ("b.after_pipeline-start.before_y", "abs")],
        3,
    ):
        (folder / f"module_0001.m.000{step}.{name}.txt").write_text(text.replace("OP", opcode))
    report = hlo_lint.validate(folder).report
    (finding,) = report.findings
    assert finding.message.startswith("the module computes different values when b starts: ")
    assert describe(present(finding.introduced_by)) == (
        "a pass that left no dump, between step 0003 and step 0004, the start of b"
    )
    path = written(tmp_path / "report.html", render_html(open_dump(folder), report))
    page = opened(path, f"#finding-{finding.fingerprint}")
    assert "between 0003 pipeline-start and 0004 pipeline-start" in text_in(page, ".facts")


@pytest.mark.slow
def test_the_release_is_told_for_four_devices(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    program = (
        "import jax, jax.numpy as jnp\n"
        "from jax.sharding import NamedSharding, PartitionSpec as P\n"
        "rows = NamedSharding(jax.make_mesh((4,), ('x',)), P('x'))\n"
        "f = jax.jit(lambda x, w: jax.nn.gelu(x @ w).sum(0), in_shardings=(rows, None))\n"
        "f.lower(jnp.ones((16, 32)), jnp.ones((32, 32))).compile()\n"
    )
    flags = f"--xla_force_host_platform_device_count=4 --xla_dump_to={tmp_path / 'd'}"
    flags += " --xla_dump_hlo_pass_re=.*"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    modules = collected(tmp_path / "d")["index"]["modules"]
    assert {module["release"] for module in modules} == {"XLA:CPU with the passes of jax 0.10.2"}
