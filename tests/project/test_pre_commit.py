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
from markdown_it import MarkdownIt

from hlo_lint import __version__
from tests.conftest import CRASH, DUMPS, ROOT, made_once
from tests.docs import GOLDENS
from tests.texts import entry

pytestmark = pytest.mark.slow

SHIPPED = ".pre-commit-hooks.yaml LICENSE README.md grammars hlo_lint pyproject.toml".split()
MOVES = (GOLDENS / "reshape.hlo").read_text("utf-8")
FILES = {
    # the bitcast shows that layouts are assigned: else nothing would be edited
    "reshape.hlo": MOVES.replace("\n}\n", "\n  %flat = f32[24]{0} bitcast(%x)\n}\n"),
    "clean.hlo": entry("  ROOT %p = f32[8]{0} parameter(0)"),
    "other.hlo": 'module @jit_f { func.func @main() attributes {hlo = "no"} { return } }\n',
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
    """The outcome of pre-commit."""

    status: int
    out: str

    def hook(self, title: str) -> str:
        """`Passed`, `Failed` or `Skipped`."""
        (line,) = (line for line in self.out.splitlines() if line.startswith(f"{title}..."))
        return line.rpartition(".")[2].removeprefix("(no files to check)")

    @property
    def hooks(self) -> list[str]:
        """The outcomes of both hooks, the one that fixes first."""
        return [self.hook("hlo-lint fix"), self.hook("hlo-lint")]

    @property
    def shown(self) -> str:
        """The output, less the lines about installing."""
        return re.sub(r"(?s)\A.*?^(?=hlo-lint)", "", self.out, flags=re.M).rstrip() + "\n"


@dataclass(frozen=True)
class Project:
    """A git repository that uses the hooks."""

    path: Path
    checkout: Path
    env: dict[str, str]

    def configure(self, which: int) -> None:
        """Takes a configuration of the page, with the checkout in place of what it leaves open."""
        (repo,) = yaml.safe_load(blocks("yaml")[which])["repos"]
        assert (repo["repo"], repo["rev"]) == ("URL", f"v{__version__}")
        repo |= {"repo": str(self.checkout), "rev": git(self.checkout, "rev-parse", "HEAD").strip()}
        config = yaml.safe_dump({"repos": [repo]})
        (self.path / ".pre-commit-config.yaml").write_text(config, "utf-8")

    def git(self, *args: str) -> str:
        """The output of git."""
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
    """A clone of this repository with the program committed as it stands now."""
    if shutil.which("git") is None:
        pytest.skip("there is no git here")

    def commit(path: Path) -> None:
        for name in SHIPPED:
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / name, path / name, ignore=ignored)
            else:
                shutil.copy(ROOT / name, path / name)
        git(path, "init", "-q", "-b", "main")
        git(path, "add", "-A")
        git(path, "commit", "-q", "-m", "as it stands")

    return made_once(tmp_path_factory, "hlo_lint_checkout", commit)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which pre-commit keeps its environments, for all tests here."""
    return made_once(tmp_path_factory, "pre_commit_home", lambda _: None)


@pytest.fixture
def project(tmp_path: Path, home: Path, checkout: Path) -> Project:
    """Its configuration is the first of the page."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env = kept | {"PRE_COMMIT_HOME": str(home), "PYTHONPATH": ""}
    made = Project(tmp_path, checkout, env)
    made.git("init", "-q", "-b", "main")
    made.configure(0)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, "utf-8")
    made.git("add", "-A")
    made.git("commit", "-q", "-m", "files")
    return made


def blocks(kind: str) -> list[str]:
    """The blocks of the page that are of a kind."""
    page = (ROOT / "docs" / "pre-commit.md").read_text("utf-8")
    return [token.content for token in MarkdownIt().parse(page) if token.info == kind]


def test_the_names_that_the_hooks_take_are_those_of_texts_of_hlo() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    for hook in hooks:
        is_taken = re.compile(hook["files"]).search
        for path in DUMPS.rglob("*.*"):
            is_hlo = path.suffix == ".txt" and path.read_bytes().startswith(b"HloModule")
            assert bool(is_taken(path.relative_to(ROOT).as_posix())) == is_hlo, path


def test_try_repo_does_what_the_page_shows(project: Project) -> None:
    files = ("--files", "reshape.hlo")
    ran = project.pre_commit("try-repo", str(project.checkout), "hlo-lint", *files)
    assert ran.status == 1
    command = "$ pre-commit try-repo ../hlo_lint hlo-lint --files reshape.hlo\n"
    assert f"{command}{ran.shown}" == blocks("console")[1]
    assert project.git("status", "--short") == ""


def test_a_commit_is_stopped_until_what_the_fix_wrote_is_added(project: Project) -> None:
    first = project.pre_commit("run", "--all-files")
    assert first.status == 1
    assert f"$ pre-commit run --all-files\n{first.shown}" == blocks("console")[0]
    assert project.git("diff", "--name-only").split() == ["reshape.hlo"]
    project.git("add", "-A")
    second = project.pre_commit("run", "--all-files")
    assert second.status == 0, second.out
    assert second.hooks == ["Passed", "Passed"]


def test_both_hooks_together_print_each_finding_once(project: Project) -> None:
    (project.path / "stays.hlo").write_text(MOVES, "utf-8")  # no layouts: nothing is edited
    project.git("add", "-A")
    ran = project.pre_commit("run", "--files", "stays.hlo", "clean.hlo")
    assert ran.hooks == ["Passed", "Failed"]
    assert ran.out.count("[reshape-moves-data]") == 1


def test_a_file_without_hlo_is_skipped_whatever_its_name(project: Project) -> None:
    ran = project.pre_commit("run", "hlo-lint", "--all-files", "--verbose")
    assert "other.hlo" not in ran.out
    assert "\n1 warning in 2 files, 2 modules of HLO\n" in ran.out


def test_settings_exclude_what_pre_commit_names(project: Project) -> None:
    (project.path / "hlo_lint.toml").write_text('exclude = ["reshape.hlo"]\n')
    ran = project.pre_commit("run", "--all-files")
    assert ran.hooks == ["Passed", "Passed"]


def test_a_commit_without_hlo_is_no_business_of_the_hooks(project: Project) -> None:
    (project.path / "notes.txt").write_text("more\n")
    project.git("add", "-A")
    ran = project.pre_commit("run")
    assert ran.status == 0
    assert ran.hooks == ["Skipped", "Skipped"]


def test_a_dump_is_checked_as_a_whole_where_its_folder_is_given(project: Project) -> None:
    shutil.copytree(CRASH, project.path / "dump")
    project.configure(2)
    project.git("add", "-A")
    ran = project.pre_commit("run")
    assert ran.hook("hlo-lint") == "Failed"
    assert "since: pass autotuner of post-layout_assignment, step 0030" in ran.out
    assert "1 error in 33 files, 33 modules of HLO" in ran.out
