"""The hooks, run by pre-commit itself, which installs them from a repository as everywhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.conftest import DUMPS, ROOT
from tests.test_outputs import MOVES

SHIPPED = (
    ".pre-commit-hooks.yaml",
    "LICENSE",
    "README.md",
    "grammars",
    "hlo_lint",
    "pyproject.toml",
)
CLEAN = "HloModule m\n\nENTRY %e {\n  ROOT %p = f32[8]{0} parameter(0)\n}\n"
FILES = {
    "moves.hlo": MOVES,
    "clean.hlo": CLEAN,
    "other.hlo": 'module @jit_f { func.func @main() attributes {hlo = "no"} { return } }\n',
    "settings.hlo": '{"this is": ["no", "HLO"]}\n',
    "dump/module_0001.jit_f.before_optimizations.txt": CLEAN,
    "dump/module_0001.jit_f.0003.fusion.after_fusion.before_copy.txt": CLEAN,
    "dump/module_0001.jit_f.sm_9.0a_gpu_after_optimizations.txt": CLEAN,
    "dump/module_0001.jit_f.sm_9.0a_gpu_after_optimizations-buffer-assignment.txt": "x\n",
    "dump/module_0001.jit_f.thunk_sequence_after_thunk_passes.txt": "000: kCopy\n",
    "notes.txt": "HloModule is what a module begins with\n",
}
UNREACHABLE = (
    "No matching distribution",
    "Could not find a version",
    "Failed to establish a new connection",
    "Temporary failure in name resolution",
)


@dataclass(frozen=True)
class Ran:
    """What pre-commit left."""

    status: int
    out: str

    def hook(self, title: str) -> str:
        """`Passed`, `Failed` or `Skipped`."""
        (line,) = (line for line in self.out.splitlines() if line.startswith(f"{title}..."))
        return line.rpartition(".")[2].removeprefix("(no files to check)")


@dataclass(frozen=True)
class Project:
    """A git repository that uses the hooks."""

    path: Path
    env: dict[str, str]

    def git(self, *args: str) -> str:
        """What git prints."""
        return git(self.path, *args)

    def pre_commit(self, *args: str) -> Ran:
        """Runs pre-commit in it; skips the test where nothing can be installed."""
        done = subprocess.run(
            [sys.executable, "-m", "pre_commit", *args, "--color=never"],
            cwd=self.path,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if "CalledProcessError" in done.stdout and any(x in done.stdout for x in UNREACHABLE):
            pytest.skip("pre-commit cannot reach a package index to install the hook from")
        return Ran(done.returncode, done.stdout)


def git(where: Path, *args: str) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    command = ["git", *identity, "-c", "commit.gpgsign=false", *args]
    done = subprocess.run(command, cwd=where, env=env, check=True, capture_output=True, text=True)
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a clone of this repository has of the program, committed as it stands now."""
    if shutil.which("git") is None:
        pytest.skip("there is no git here")
    path = tmp_path_factory.mktemp("hlo_lint_checkout")
    for name in SHIPPED:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, path / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, path / name)
    git(path, "init", "-q", "-b", "main")
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", "as it stands")
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pre-commit keeps what it installed, for all tests here."""
    return tmp_path_factory.mktemp("pre_commit_home")


@pytest.fixture
def project(tmp_path: Path, home: Path, checkout: Path) -> Project:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    revision = git(checkout, "rev-parse", "HEAD").strip()
    hooks = "[{id: hlo-lint-fix}, {id: hlo-lint}]"
    (tmp_path / ".pre-commit-config.yaml").write_text(
        f"repos:\n- repo: {checkout}\n  rev: {revision}\n  hooks: {hooks}\n", "utf-8"
    )
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "files")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return Project(tmp_path, kept | {"PRE_COMMIT_HOME": str(home), "PYTHONPATH": ""})


def test_the_names_that_the_hooks_take_are_those_of_texts_of_hlo() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    for hook in hooks:
        is_taken = re.compile(hook["files"]).search
        for path in DUMPS.rglob("*.*"):
            is_hlo = path.suffix == ".txt" and path.read_bytes().startswith(b"HloModule")
            assert bool(is_taken(path.relative_to(ROOT).as_posix())) == is_hlo, path


def test_try_repo_runs_the_check_on_the_files_it_is_given(project: Project, checkout: Path) -> None:
    ran = project.pre_commit("try-repo", str(checkout), "hlo-lint", "--files", "moves.hlo")
    assert ran.status == 1
    assert ran.hook("hlo-lint") == "Failed"
    assert "warning[reshape-moves-data]" in ran.out
    assert "moves.hlo:5:39" in ran.out
    assert project.git("status", "--short") == ""


def test_a_commit_is_stopped_until_what_the_fix_wrote_is_added(project: Project) -> None:
    project.git("checkout", "-q", "-b", "work")
    first = project.pre_commit("run", "--all-files")
    assert first.status == 1
    assert first.hook("hlo-lint fix") == "Failed"
    assert "fixed 1 instruction in moves.hlo" in first.out
    assert project.git("diff", "--name-only").split() == ["moves.hlo"]
    assert "transpose(" in (project.path / "moves.hlo").read_text()
    project.git("add", "-A")
    second = project.pre_commit("run", "--all-files")
    assert second.status == 0, second.out
    assert [second.hook("hlo-lint fix"), second.hook("hlo-lint")] == ["Passed", "Passed"]


def test_only_hlo_is_looked_at_and_what_else_is_called_hlo_is_said_to_be_skipped(
    project: Project,
) -> None:
    ran = project.pre_commit("run", "hlo-lint", "--all-files", "--verbose")
    skipped = [line for line in ran.out.splitlines() if line.startswith("skipped: ")]
    assert skipped == [
        "skipped: other.hlo: it holds no HLO",
        "skipped: settings.hlo: it holds no HLO",
    ]
    # two `.hlo` and the three texts of the dump: neither its artefacts nor notes
    assert "1 warning in 5 files of HLO" in ran.out


def test_a_commit_without_hlo_is_no_business_of_the_hooks(project: Project) -> None:
    (project.path / "notes.txt").write_text("more\n")
    project.git("add", "-A")
    ran = project.pre_commit("run")
    assert ran.status == 0
    assert [ran.hook("hlo-lint fix"), ran.hook("hlo-lint")] == ["Skipped", "Skipped"]
