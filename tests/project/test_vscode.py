"""The VS Code extension: its grammar, read by VS Code's own engine; all of it, in code-server."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from socket import socket
from typing import NamedTuple

import pytest

from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.hlo.records import name_of, opcode_of, references_of
from hlo_lint.text.source import decode
from tests.conftest import CRASH, DUMPS, ROOT, ROUNDTRIP, completed, made_once, present, started
from tests.docs import GOLDENS
from tests.report.conftest import CHROMIUM

pytestmark = pytest.mark.slow

CODE_SERVER = os.environ.get("HLO_LINT_CODE_SERVER", "")
"""The `out/node/entry.js` of a code-server."""
EXTENSION = ROOT / "editors" / "vscode"
GRAMMAR = EXTENSION / "syntaxes" / "hlo.tmLanguage.json"
PACKAGE = json.loads((EXTENSION / "package.json").read_text())
ENGINE = {
    name: version for name, version in PACKAGE["devDependencies"].items() if "vscode-" in name
}
"""The packages that read a grammar."""
FOLDERS = "gpu-jax0.11.2/cublaslt_fission", "gpu-jax0.11.2/short_text", "cpu-jax0.10.2/mlp_train"
TEXTS = [
    next(CRASH.glob("*.after_autotuner.*")),
    *(next((DUMPS / folder).glob("*after_optimizations.txt")) for folder in FOLDERS),
]


class Token(NamedTuple):
    text: str
    scopes: list[str]

    def is_a(self, scope: str) -> bool:
        return any(each.startswith(scope) for each in self.scopes)


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which npm has put the engine."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed: VS Code's engine cannot be had")
    folder = tmp_path_factory.mktemp("npm")
    wanted = [f"{name}@{version}" for name, version in ENGINE.items()]
    ran = completed(
        ["npm", "install", "--no-fund", "--no-audit", "--ignore-scripts", "--prefix", ".", *wanted],
        cwd=folder,
    )
    if ran.returncode:
        pytest.skip(f"npm cannot install VS Code's engine: {ran.stderr[-200:]}")
    return folder


def tokens_of(modules: Path, path: Path) -> list[list[Token]]:
    script = str(ROOT / "tests" / "tokenize.js")
    ran = completed(["node", script, str(modules), str(GRAMMAR), str(path)], check=True)
    return [[Token(*each) for each in json.loads(line)] for line in ran.stdout.split("\n") if line]


def all_of(tokens: list[Token], scope: str) -> list[str]:
    return [token.text for token in tokens if token.is_a(scope)]


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.parent.name)
def test_each_name_and_opcode_of_a_dump_has_its_scope(modules: Path, path: Path) -> None:
    lines = tokens_of(modules, path)
    (module,) = parse_file(decode(path.read_bytes())).modules
    assert all_of(lines[0], "keyword.other.module") == ["HloModule"]
    assert all_of(lines[0], "entity.name.namespace") == [module.name]
    heads = [name for line in lines for name in all_of(line, "entity.name.function.hlo")]
    bare = [name.removeprefix("%") for name in heads]
    assert bare == [computation.name for computation in module.computations]
    text = path.read_text().split("\n")
    told = iter(line for line, written in zip(lines, text, strict=True) if written[:2] == "  ")
    for instruction in module.instructions():
        row, line = instruction.row, next(told)
        names = all_of(line, "variable.other.definition")
        assert [name.removeprefix("%") for name in names] == [name_of(row)]
        assert all_of(line, "support.function.opcode") == [opcode_of(row)]
        operands = {name.removeprefix("%") for name in all_of(line, "variable.other.operand")}
        if opcode_of(row) not in ("constant", "parameter"):
            assert operands >= {name.partition("#")[0] for name in references_of(row)}
        attributes = all_of(line, "entity.other.attribute-name")
        assert set(attributes) >= instruction.attributes.keys()
        called = all_of(line, "entity.name.function.call")
        assert [name.removeprefix("%") for name in called] == list(instruction.called_computations)
        if "f32[" in row[2]:
            assert "f32" in all_of(line, "storage.type")
    assert next(told, None) is None


def test_the_tables_behind_the_header_have_theirs(modules: Path) -> None:
    lines = tokens_of(modules, TEXTS[0])
    found = [name for line in lines for name in all_of(line, "keyword.other.table")]
    assert found == ["FileNames", "FunctionNames", "FileLocations", "StackFrames"]
    row = next(line for line in lines if line[0].is_a("constant.numeric.row"))
    assert "".join(all_of(row, "string.quoted.double")).startswith('"')


def scopes(modules: Path, tmp_path: Path, text: str) -> list[tuple[str, str]]:
    """Each token with its innermost scope, blanks left out."""
    path = tmp_path / "a.hlo"
    path.write_text(text)
    tokens = (token for line in tokens_of(modules, path) for token in line if token.text.strip())
    return [(token.text.strip(), token.scopes[-1].removesuffix(".hlo")) for token in tokens]


def test_each_part_of_an_instruction_has_a_scope_of_its_own(modules: Path, tmp_path: Path) -> None:
    text = (
        "  ROOT %r = (f32[8,<=3]{1,0:T(8,128)}, /*index=1*/pred[]) fusion(%p#1, %c), kind=kLoop, "
    )
    text += 'calls=%f, metadata={op_name="a\\"b" n=-1.5e-3}, x=true // why'
    found = scopes(modules, tmp_path, text)
    parts = """
ROOT storage.modifier.root | %r variable.other.definition | = keyword.operator.assignment
f32 storage.type | 8 constant.numeric.dimension | <= keyword.operator.bound
1 constant.numeric.layout | T storage.modifier.layout | index=1 comment.block | pred storage.type
fusion support.function.opcode | %p variable.other.operand | #1 constant.numeric.element
kind entity.other.attribute-name | calls entity.other.attribute-name
%f entity.name.function.call | \\" constant.character.escape | -1.5e-3 constant.numeric
true constant.language | why comment.line.double-slash
"""
    for part in parts.strip().replace("\n", " | ").split(" | "):
        assert tuple(part.split()) in found


def test_modules_comments_and_directives_have_theirs(modules: Path, tmp_path: Path) -> None:
    text = "// -----\n// hlo-lint: allow reshape-moves-data -- why\nHloModule m\n"
    assert scopes(modules, tmp_path, text) == [
        ("// -----", "comment.line.double-slash.separator"),
        ("//", "comment.line.double-slash"),
        ("hlo-lint:", "keyword.other.directive"),
        ("allow", "keyword.other.directive"),
        ("reshape-moves-data -- why", "comment.line.double-slash"),
        ("HloModule", "keyword.other.module"),
        ("m", "entity.name.namespace"),
    ]


@pytest.mark.parametrize(
    "name", ["nested_instruction_as_operand", "while_with_inline_computations", "string_escapes"]
)
def test_no_string_or_comment_runs_over_into_the_next_line(modules: Path, name: str) -> None:
    for line in tokens_of(modules, ROUNDTRIP / f"{name}.hlo"):
        assert not any(token.is_a("invalid") for token in line)
        if line and line[0].text.strip():
            assert not line[0].is_a("string") or line[0].text.startswith('"')


def test_the_extension_names_what_is_there() -> None:
    (language,) = PACKAGE["contributes"]["languages"]
    (grammar,) = PACKAGE["contributes"]["grammars"]
    for path in (language["configuration"], grammar["path"], "extension.js"):
        assert (EXTENSION / path).is_file(), path
    assert json.loads(GRAMMAR.read_text())["scopeName"] == grammar["scopeName"]
    assert re.match(language["firstLine"], TEXTS[0].read_text())


def test_the_extension_starts_the_server_as_it_is_called() -> None:
    from hlo_lint.apps.cli.main import COMMANDS

    default = PACKAGE["contributes"]["configuration"]["properties"]["hlo.server.command"]["default"]
    assert default[0] == "hlo-lint"
    assert default[1] in COMMANDS


def test_the_scripts_are_javascript() -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    for path in (EXTENSION / "extension.js", ROOT / "tests" / "tokenize.js"):
        subprocess.run(["node", "--check", str(path)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The extension as `make extension` builds it."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")

    def build(folder: Path) -> None:
        shutil.copytree(EXTENSION, folder / "editors/vscode", dirs_exist_ok=True)
        shutil.copy(ROOT / "Makefile", folder)
        (folder / "tests").mkdir(exist_ok=True)
        shutil.copy(ROOT / "tests/constraints.txt", folder / "tests")
        ran = completed(["make", "extension"], cwd=folder)
        if ran.returncode and "npm error" in ran.stderr:
            pytest.skip(f"npm cannot install what builds the extension: {ran.stderr[-200:]}")
        assert ran.returncode == 0, ran.stderr

    return made_once(tmp_path_factory, "extension", build) / "build/hlo-lint.vsix"


def test_the_extension_is_one_script_without_modules_of_node(extension: Path) -> None:
    with zipfile.ZipFile(extension) as archive:
        names = set(archive.namelist())
        script = archive.read("extension/dist/extension.js").decode()
    assert not [name for name in names if "node_modules" in name]
    assert {"extension/syntaxes/hlo.tmLanguage.json", "extension/package.json"} < names
    assert extension.stat().st_size < 200_000
    # Nothing but VS Code itself and modules of Node is left to load.
    wanted = set(re.findall(r'require\("([^"]+)"\)', script))
    code = 'JSON.stringify(require("module").builtinModules)'
    builtin = json.loads(completed(["node", "-p", code], check=True).stdout)
    assert wanted - {name.removeprefix("node:") for name in builtin} <= {"vscode"}


@pytest.fixture
def workbench(extension: Path, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of a code-server that has the extension, and the folder that it may open."""
    if not CODE_SERVER:
        pytest.skip("no code-server: npm install code-server, and HLO_LINT_CODE_SERVER=…/entry.js")
    command = ["node", CODE_SERVER, "--user-data-dir", str(tmp_path / "user")]
    command += ["--extensions-dir", str(tmp_path / "extensions")]
    home = {**os.environ, "HOME": str(tmp_path)}
    install = [*command, "--install-extension", str(extension)]
    subprocess.run(install, env=home, check=True, capture_output=True)
    settings = {
        "hlo.server.command": [sys.executable, "-m", "hlo_lint", "server"],
        "security.workspace.trust.enabled": False,
    }
    (tmp_path / "user/User").mkdir(parents=True, exist_ok=True)
    (tmp_path / "user/User/settings.json").write_text(json.dumps(settings))
    (tmp_path / "project").mkdir()
    (tmp_path / "project/hlo_lint.toml").write_text('before = "layout_normalization"\n')
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve = [*command, "--auth", "none", "--bind-addr", f"127.0.0.1:{port}", "--disable-telemetry"]
    with started(serve, env=home, stdout=subprocess.PIPE, text=True) as server:
        while "HTTP server listening" not in present(server.stdout).readline():
            assert server.poll() is None
        try:
            yield f"http://127.0.0.1:{port}/?folder={tmp_path / 'project'}", tmp_path / "project"
        finally:
            server.terminate()  # it ends the processes that it started
            server.wait(10)


def test_vs_code_shows_a_finding_and_does_its_fix(workbench: tuple[str, Path]) -> None:
    """The `.vsix` in code-server, the open build of VS Code, in a browser."""
    if not CHROMIUM:
        pytest.skip("no Chromium: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    address, project = workbench
    (project / "reshape.hlo").write_text((GOLDENS / "reshape.hlo").read_text("utf-8"), "utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.set_default_timeout(120_000)
        page.goto(address)
        page.locator(".explorer-viewlet >> text=reshape.hlo").first.dblclick()
        page.wait_for_selector(".squiggly-error")
        opcode = page.locator(".view-line span", has_text=re.compile("^reshape$")).first
        plain = page.locator(".view-line span", has_text=re.compile("^ROOT$")).first
        assert opcode.get_attribute("class") != plain.get_attribute("class")
        page.keyboard.press("F8")  # to the finding, which it shows
        shown = page.locator(".zone-widget")
        assert "this reshape moves bytes" in shown.inner_text()
        assert "reshape-moves-data" in shown.inner_text()
        page.keyboard.press("Escape")
        page.keyboard.press("Control+.")
        page.wait_for_selector("text=spell the move out as copy and bitcast")
        page.wait_for_timeout(1000)  # until the menu has the keyboard
        page.keyboard.press("Enter")
        page.wait_for_function(
            "document.querySelector('.view-lines').innerText.includes('bitcast')"
        )
        page.locator(".view-line").last.click()
        page.keyboard.press("Control+s")
        for _ in range(600):
            if " bitcast(" in (project / "reshape.hlo").read_text("utf-8"):
                break
            page.wait_for_timeout(100)
        assert " bitcast(" in (project / "reshape.hlo").read_text("utf-8")
        browser.close()
