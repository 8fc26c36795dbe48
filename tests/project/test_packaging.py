"""The wheels hold all that they need, away from any checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

import hlo_lint
import hlo_lint_hunt
from hlo_lint.dumps.directory import FIXED
from hlo_lint.report.html.page import GRAPH_LIBRARIES
from hlo_lint.report.links import SITE
from tests.conftest import CRASH, ROOT, completed, made_once, present
from tests.texts import entry

pytestmark = pytest.mark.slow


HUNT = ROOT / "hunt"
Run: TypeAlias = Callable[[str], subprocess.CompletedProcess[str]]


def _made(factory: pytest.TempPathFactory, name: str, project: Path) -> Path:
    def build(out: Path) -> None:
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out)]
        subprocess.run([*command, str(project)], check=True, capture_output=True)

    (made,) = made_once(factory, name, build).glob("*.whl")
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _made(tmp_path_factory, "wheel", ROOT)


@pytest.fixture(scope="module")
def wheel_of_the_hunt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _made(tmp_path_factory, "wheel_of_the_hunt", HUNT)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs commands of the shell in a fresh environment."""
    home = tmp_path / "env"
    venv.create(home, with_pip=True)

    def run(command: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": f"{home / 'bin'}:/usr/bin:/bin", "HOME": str(tmp_path)}
        return completed(["sh", "-c", f"{command} 2>&1"], cwd=tmp_path, env=environment)

    return run


def test_the_wheel_carries_what_is_no_python(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for grammar in (ROOT / "grammars").glob("*.lark"):
        assert f"hlo_lint/grammars/{grammar.name}" in names
    page = ("page.html", "page.css", "page.js", "graph.js", *GRAPH_LIBRARIES)
    for name in (
        *("dumps/pipelines/gpu-jax0.10.0.txt", "apps/jax/capture/targets/h200.pbtxt"),
        *("py.typed", "apps/examples/crash.tar.xz", *(f"report/html/{file}" for file in page)),
    ):
        assert f"hlo_lint/{name}" in names


def test_the_hunt_is_installed_beside_it(wheel: Path, wheel_of_the_hunt: Path, run: Run) -> None:
    names = zipfile.ZipFile(wheel_of_the_hunt).namelist()
    assert {f"hlo_lint_hunt/{name}" for name in ("known.toml", "steps.txt", "py.typed")} <= {*names}
    assert run(f"pip install {wheel}").returncode == 0
    done = run("hlo-lint hunt -o found")
    line = "Error: hunt is a distribution of its own: pip install hlo-lint-hunt\n"
    assert (done.returncode, done.stdout) == (2, line)
    assert run(f"pip install {wheel_of_the_hunt}").returncode == 0
    assert "\nOf other packages:\n  hunt " in run("hlo-lint --help").stdout
    done = run("hlo-lint hunt -o found")
    assert (done.returncode, "pip install 'hlo-lint[xla]'" in done.stdout) == (2, True)


def test_a_newcomer_does_what_the_readme_begins_with(wheel: Path, run: Run, tmp_path: Path) -> None:
    """In a fresh environment, with the example of a real crash in place of a program's dump."""
    readme = (ROOT / "README.md").read_text("utf-8")
    block = present(re.search(r"^```\n(pip .*?)```", readme, re.S | re.M))
    install, example, program, *commands = [
        line.partition("#")[0].strip() for line in block[1].splitlines()
    ]
    assert install == "pip install ."
    assert program.endswith(" python model.py")
    begun = time.monotonic()
    for command in (f"pip install {wheel}", example):
        done = run(command)
        assert done.returncode == 0, done.stdout
    check, fix, report = (run(command) for command in commands)
    assert [check.returncode, fix.returncode, report.returncode] == [1, 0, 1], check.stdout
    assert "error[reshape-moves-data]: this reshape moves bytes" in check.stdout
    assert "= since: pass autotuner of post-layout_assignment, step 0030" in check.stdout
    assert "= from: programs.py:40 in batched_dot" in check.stdout
    assert check.stdout.endswith("1 fixable with `hlo-lint fix`\n")
    assert fix.stdout.startswith("fixed 1 finding in fixed/module_0001.jit_batched_dot.0030.")
    assert report.stdout.startswith("report.html: 1 error, ")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "reshape-moves-data" in page
    # A shape that only the grammar reads: the wheel's own copy of it is what is found.
    odd = "  p = f32[8,3]{0,1:T(8,128)} parameter(0)\n  ROOT r = f32[24]{0} reshape(p)"
    (tmp_path / "odd.hlo").write_text(entry(odd))
    said = run("hlo-lint check odd.hlo --output-format concise").stdout
    assert re.fullmatch(r"\S+: warning\[reshape-moves-data\]: .*\n", said)
    print(f"a newcomer needs {time.monotonic() - begun:.0f} s")


def test_the_links_of_findings_lead_to_the_site_that_the_package_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["urls"]["Documentation"] == SITE


PACKED = ("hlo_lint", "hunt", "grammars", "README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml")


def built(checkout: Path, umask: int) -> dict[str, bytes]:
    """The wheels and the sdists of a copy of the repository, by name."""
    for name in PACKED:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            # Not copy2: the files get times of their own, and modes that umask leaves.
            shutil.copytree(source, checkout / name, ignore=ignored, copy_function=shutil.copyfile)
        else:
            shutil.copyfile(source, checkout / name)
    shutil.copyfile(ROOT / ".gitignore", checkout / ".gitignore")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(checkout / "dist")]
    for project in (checkout, checkout / "hunt"):
        environment = {**os.environ, "SOURCE_DATE_EPOCH": "1750000000"}
        completed([*command, str(project)], check=True, env=environment, umask=umask)
    return {path.name: path.read_bytes() for path in (checkout / "dist").iterdir()}


def test_two_builds_are_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "a longer name").mkdir()
    one = built(tmp_path / "one", 0o022)
    two = built(tmp_path / "a longer name", 0o077)
    version = hlo_lint.__version__
    assert sorted(one) == [
        f"{package}-{version}{end}"
        for package in ("hlo_lint", "hlo_lint_hunt")
        for end in ("-py3-none-any.whl", ".tar.gz")
    ]
    assert one == two


def test_the_version_stands_in_one_place(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        (metadata,) = (name for name in file.namelist() if name.endswith("/METADATA"))
        text = file.read(metadata).decode()
    assert re.search(r"^Version: (.*)$", text, re.M)[1] == hlo_lint.__version__  # type: ignore[index]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert "version" not in project
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    headings = re.findall(r"^## (.*)$", changes, re.M)
    assert hlo_lint.__version__ in headings[:2]  # after what is not released yet
    extension = json.loads((ROOT / "editors/vscode/package.json").read_text("utf-8"))
    assert extension["version"] == hlo_lint.__version__


def test_both_distributions_have_one_version_and_one_licence() -> None:
    main, hunt = (
        tomllib.loads((folder / "pyproject.toml").read_text("utf-8")) for folder in (ROOT, HUNT)
    )
    assert hlo_lint_hunt.__version__ == hlo_lint.__version__
    assert hunt["project"]["dependencies"] == [f"hlo-lint=={hlo_lint.__version__}"]
    assert hunt["build-system"] == main["build-system"]
    for key in ("dynamic", "license", "requires-python", "classifiers"):
        assert hunt["project"][key] == main["project"][key]
    assert (HUNT / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


WITHOUT = """
import pkgutil, sys
POSIX = ("fcntl", "resource", "pty", "termios", "pwd", "grp")
for name in POSIX:
    sys.modules[name] = None
import hlo_lint, hlo_lint_hunt
from importlib import import_module
names = [
    module.name
    for package in (hlo_lint, hlo_lint_hunt)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]
# What the extras bring may need what is taken away here.
names = [name for name in names if not name.endswith("executors.dask")]
for name in names:
    if not name.endswith(("__main__",)):
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if error.name in POSIX or error.name.startswith("hlo_lint"):
                raise
print(len(names))
"""


def test_every_module_can_be_imported_where_posix_is_not() -> None:
    ran = completed([sys.executable, "-c", WITHOUT], cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) > 400


ODD = {
    "LC_ALL": "C",
    "PYTHONUTF8": "0",
    "PYTHONCOERCECLOCALE": "0",
    "TZ": "Pacific/Chatham",
    "PYTHONHASHSEED": "7",
}
"""An environment as a machine may have it that is none of the authors'."""

SPAWNED = (
    "from hlo_lint.engine.executors import local; local._start_method = lambda: 'spawn'; "
    "from hlo_lint.apps.cli.program import main; "
    "__name__ == '__main__' and main()"
)


def test_locale_time_zone_and_spawned_workers_change_no_byte(tmp_path: Path) -> None:
    folder = tmp_path / "tree"
    shutil.copytree(CRASH, folder / "a")
    shutil.copytree(CRASH, folder / "b")
    (folder / "m.hlo").write_bytes(
        "HloModule m\r\n\r\nENTRY e {\r\n  p = f32[8,3]{0,1} parameter(0)\r\n"
        '  ROOT r = f32[24]{0} reshape(p), metadata={op_name="größe"}\r\n}\r\n'.encode()
    )
    base = {name: value for name, value in os.environ.items() if not name.startswith("LC_")}
    base["PYTHONPATH"] = str(ROOT)
    for words in (
        ["check", "--no-cache", "-j", "2", "--output-format", "json", folder.name],
        ["check", "--no-cache", "--output-format", "sarif", folder.name],
        ["fix", "--diff", "--before", "layout_normalization", "tree/m.hlo"],
        ["report", "-o", "-", "tree/m.hlo"],
    ):
        outputs = []
        for environment in (base | {"PYTHONUTF8": "1"}, base | ODD):
            command = [sys.executable, "-c", SPAWNED, *words]
            ran = subprocess.run(command, capture_output=True, env=environment, cwd=tmp_path)
            assert b"Traceback" not in ran.stderr, ran.stderr.decode()
            outputs.append((ran.returncode, ran.stdout))
        assert outputs[0] == outputs[1], words
        assert outputs[0][1]


def test_a_name_that_the_locale_cannot_spell_is_a_path_like_any(tmp_path: Path) -> None:
    shutil.copytree(CRASH, tmp_path / "größe €")
    for words in (["check"], ["check", "--output-format", "sarif"], ["fix", "-o", "schön"]):
        command = [sys.executable, "-m", "hlo_lint", *words, "größe €"]
        environment = {**os.environ, **ODD, "PYTHONPATH": str(ROOT)}
        ran = subprocess.run(command, capture_output=True, env=environment, cwd=tmp_path)
        assert ran.returncode in (0, 1), ran.stderr.decode()
        assert b"Traceback" not in ran.stderr
        assert b"internal error" not in ran.stderr
    assert set(os.listdir(tmp_path / "schön")) == {*os.listdir(CRASH), FIXED}
