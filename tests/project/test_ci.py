"""The jobs of the page about CI, and our own: GitHub and GitLab can read them, their steps run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt

from tests.conftest import CRASH, ROOT, completed, program, written

pytestmark = pytest.mark.slow

BLOCKS = [
    token.content
    for token in MarkdownIt().parse((ROOT / "docs" / "ci.md").read_text("utf-8"))
    if token.info == "yaml"
]
SCHEMAS = ("vendor.github-workflows", "vendor.github-workflows", "vendor.gitlab-ci")


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize(
    ("job", "schema"),
    [
        *zip(BLOCKS, SCHEMAS, strict=True),
        *((path.read_text("utf-8"), SCHEMAS[0]) for path in WORKFLOWS),
    ],
)
def test_jobs_of_the_page_and_ours_fit_their_schema(job: str, schema: str, tmp_path: Path) -> None:
    path = written(tmp_path / "job.yml", job, "utf-8")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(path)]
    done = completed(command)
    assert done.returncode == 0, done.stdout


def test_our_jobs_run_tasks_of_the_makefile() -> None:
    """The names of the jobs may change, what a change must pass may not."""
    steps = "".join(path.read_text("utf-8") for path in WORKFLOWS)
    tasks = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    asked = set(re.findall(r"run: make ([\w-]+)", steps))
    needed = "check demo dist docs extension fuzz test test-latest test-lowest"
    assert {*needed.split()} == asked <= tasks


def test_ci_tests_the_versions_that_the_package_promises() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))
    tested = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    versions = [each for each in project["classifiers"] if "Python :: 3." in each]
    assert tested == [each.rpartition(" ")[2] for each in versions]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The folder of a job, with a dump that has an error."""
    shutil.copytree(CRASH, tmp_path / "dump")
    shutil.copytree(CRASH, tmp_path / "fixtures")
    return tmp_path


def run(step: str, work: Path) -> subprocess.CompletedProcess[str]:
    """Runs a step as a job does."""
    env = os.environ | {
        "PATH": f"{program(work / 'bin' / 'hlo-lint').parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "GITHUB_STEP_SUMMARY": str(work / "summary.md"),
    }
    return completed(["bash", "-e", "-o", "pipefail", "-c", step], cwd=work, env=env)


def ours(steps: list[str]) -> list[str]:
    return [step for step in steps if step.startswith("hlo-lint")]


def steps_of(workflow: str) -> list[str]:
    job: dict[str, Any] = yaml.safe_load(workflow)["jobs"]["hlo-lint"]
    return ours([step["run"] for step in job["steps"] if "run" in step])


def test_code_scanning_gets_its_file_before_the_job_fails(work: Path) -> None:
    done = [run(step, work) for step in steps_of(BLOCKS[0])]
    assert [each.returncode for each in done] == [0, 0, 1]
    (log,) = json.loads((work / "hlo.sarif").read_text("utf-8"))["runs"]
    (result,) = log["results"]
    place = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert (work / place["uri"]).is_file()
    assert "`reshape-moves-data` | 1 |" in (work / "summary.md").read_text("utf-8")
    assert "error[reshape-moves-data]" in done[-1].stdout


def test_annotations_name_files_of_the_repository(work: Path) -> None:
    (step,) = steps_of(BLOCKS[1])
    done = run(step, work)
    assert done.returncode == 1
    assert done.stdout.startswith("::error file=fixtures/module_0001.jit_batched_dot.0030.")


def test_gitlab_gets_the_reports_that_its_job_names(work: Path) -> None:
    job = yaml.safe_load(BLOCKS[2])["hlo-lint"]
    done = [run(step, work) for step in ours(job["script"])]
    assert [each.returncode for each in done] == [0, 1]
    for report in job["artifacts"]["reports"].values():
        assert "reshape-moves-data" in (work / report).read_text("utf-8")
