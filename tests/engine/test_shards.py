"""Jobs that check a share each, and know nothing of each other, report what one run reports."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import hlo_lint
from hlo_lint.apps.cli.main import cli
from hlo_lint.engine.shards import Shard, ShardReport, parse_shard, positions_in
from hlo_lint.report.formats import FORMATS
from tests.conftest import CRASH, DUMPS, FIXTURES


def program(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, list(map(str, words)))


def shards(folder: Path, count: int, *words: str | Path) -> list[Path]:
    """The reports of all shards, the last one first."""
    files = [folder / f"{number}.json" for number in range(count, 0, -1)]
    for number, file in zip(range(count, 0, -1), files, strict=True):
        ran = program("check", "--no-cache", "--shard", f"{number}/{count}", "-o", file, *words)
        assert ran.exit_code == 0, ran.output
    return files


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    "words",
    [
        (DUMPS,),
        (DUMPS, "--resolved", "--severity", "reshape-moves-data=info"),
        (FIXTURES / "autotune", FIXTURES / "unsound"),
    ],
    ids=["dumps", "resolved", "logs"],
)
def test_the_shards_together_report_what_one_run_reports(
    count: int, words: tuple[str | Path, ...], tmp_path: Path
) -> None:
    files = shards(tmp_path, count, *words)
    # The formats after the first are written from the cache: none of them checks anything.
    for output_format in FORMATS if count == 3 else ["json"]:
        form = ("--output-format", output_format)
        whole = program("check", *form, *words)
        merged = program("merge", *form, *files)
        assert (merged.stdout, merged.exit_code) == (whole.stdout, whole.exit_code)
        assert merged.stdout


def test_a_baseline_and_a_settings_file_count_for_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dumps = Path(shutil.copytree(DUMPS, tmp_path / "dumps"))
    monkeypatch.chdir(tmp_path)
    Path("hlo_lint.toml").write_text('[severity]\nlayout = "info"\n')
    assert program("baseline", "--update", "dumps").exit_code == 0
    (first, *_) = json.loads(Path("hlo_lint_baseline.json").read_text())["findings"]
    options = ("--baseline", "hlo_lint_baseline.json", "dumps", "--output-format", "json")
    whole = program("check", *options)
    files = shards(tmp_path, 2, *options)
    assert program("merge", "--output-format", "json", *files).stdout == whole.stdout
    assert first["rule"] not in whole.stdout.partition('"allowed"')[0]
    assert dumps.exists()


def test_every_pipeline_is_in_one_shard_and_the_shares_are_fair(tmp_path: Path) -> None:
    for rank in range(4):
        shutil.copytree(DUMPS / "gpu-jax0.10.2", tmp_path / f"rank{rank}")
    pipelines = hlo_lint.open_dump([DUMPS, tmp_path]).pipelines
    for count in (1, 2, 5, len(pipelines) + 1):
        chosen = [positions_in(Shard(number, count), pipelines) for number in range(1, count + 1)]
        assert sorted(at for shard in chosen for at in shard) == list(range(len(pipelines)))
        if count == 2:
            loads = [sum(pipelines[at].size for at in shard) for shard in chosen]
            assert min(loads) > 0.3 * sum(loads)


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "1/0", "-1/2", "1/2/3", ""])
def test_a_share_that_is_none_is_wrong_use(text: str) -> None:
    with pytest.raises(hlo_lint.UsageError, match="I/N"):
        parse_shard(text)


def test_reports_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    dumps = Path(shutil.copytree(CRASH, tmp_path / "dumps"))
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    files = shards(one, 3, dumps)
    next(dumps.glob("*.debug_options")).write_text("")
    later = shards(other, 3, dumps)

    def says(*given: Path) -> str:
        ran = program("merge", *given)
        assert ran.exit_code == 2
        return ran.stderr

    assert "shard 3/3 is missing" in says(*files[1:])
    assert "shard 2/3 is given twice" in says(*files, files[1])
    assert "the files had changed" in says(*files[:2], later[2])
    resolved = shards(other, 3, dumps, "--resolved")
    again = tmp_path / "again"
    again.mkdir()
    assert "the arguments differ" in says(*resolved[:2], shards(again, 3, dumps)[2])
    assert "No such file" in says(tmp_path / "absent.json")


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"version": 9, "shard_report": []}', "\0", "[" * 100_000]
)
def test_another_file_is_not_a_report(content: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(hlo_lint.DumpError, match="report of"):
        ShardReport.read(path)
