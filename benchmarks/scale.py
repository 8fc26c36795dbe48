"""The time that a large directory takes: one process, several, clusters on this machine.

    python -m benchmarks.scale make FOLDER --gigabytes 5 DUMP…
    python -m benchmarks.scale run FOLDER --jobs 1 --jobs 2 --dask 2

`make` writes copies of dumps, as the folders of many ranks, in which every name is another one: no
line of a copy stands in another. `run` checks a folder in each way, without a cache, and prints a
row for each; all must report the same bytes.
"""

from __future__ import annotations

import hashlib
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

HEADER: Final = "| way | wall, s | MB/s | CPU, s | largest process, MB | against one process |"


@click.group()
def cli() -> None:
    """Make a directory, or measure one."""


@cli.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--gigabytes", type=float, required=True)
@click.argument("dumps", nargs=-1, type=click.Path(path_type=Path))
def make(out: Path, gigabytes: float, dumps: tuple[Path, ...]) -> None:
    """Write renamed copies of DUMPS until they have that size."""
    files = [path for dump in dumps for path in sorted(dump.rglob("*")) if path.is_file()]
    size = number = 0
    while size < gigabytes * 1e9:
        for path in files:
            data = path.read_bytes()
            if path.suffix in (".txt", ".hlo"):
                data = data.replace(b"%", b"%%r%d_" % number)
            place = next(dump for dump in dumps if dump in path.parents)
            target = out / f"rank{number:04d}" / place.name / path.relative_to(place)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            size += len(data)
        number += 1
    click.echo(f"{size / 1e6:.0f} MB, {number} copies of {len(files)} files")


@cli.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--jobs", multiple=True)
@click.option("--dask", type=int, multiple=True, help="Workers of a Dask cluster.")
def run(folder: Path, jobs: tuple[str, ...], dask: tuple[int, ...]) -> None:
    """Check FOLDER in each way."""
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    texts = sum(path.stat().st_size for path in folder.rglob("*.txt"))
    click.echo(f"{size / 1e6:.0f} MB, {texts / 1e6:.0f} MB of them text\n\n{HEADER}")
    click.echo(rule_under(HEADER))
    reports: set[str] = set()
    first: list[float] = []
    ways: list[tuple[str, Any]] = [(f"-j {count}", ("-j", count)) for count in jobs]
    ways += [(f"dask, {count} workers", ("dask", count)) for count in dask]
    for title, (kind, count) in ways:
        with _executor(kind, count) as options:
            _row(title, folder, options, size, first, reports)
    click.echo(f"\n{len(reports)} different reports")
    sys.exit(len(reports) != 1)


def rule_under(header: str) -> str:
    """The line under the header of a table."""
    return "|---" * (header.count("|") - 1) + "|"


@contextmanager
def _executor(kind: str, count: Any) -> Iterator[Sequence[str]]:
    if kind == "-j":
        yield ["-j", count]
    else:
        from distributed import LocalCluster

        with LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None) as made:
            yield ["--executor", made.scheduler_address.replace("tcp://", "dask://")]


def _check(options: Sequence[str], folder: Path) -> None:
    words = ["check", "--no-cache", "--exit-zero", "--allow-empty", "--isolated", *options]
    subprocess.run([sys.executable, "-m", "hlo_lint", *words, str(folder)], check=True)


def _row(
    title: str,
    folder: Path,
    options: Sequence[str],
    size: int,
    first: list[float],
    reports: set[str],
) -> None:
    target = folder.parent / "report.json"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.monotonic()
    _check([*options, "--output-format", "json", "-o", str(target)], folder)
    wall = time.monotonic() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    reports.add(hashlib.sha256(target.read_bytes()).hexdigest())
    first.append(wall)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    click.echo(
        f"| {title} | {wall:.1f} | {size / wall / 1e6:.0f} | {cpu:.1f} "
        f"| {after.ru_maxrss / 1024:.0f} | {first[0] / wall:.2f} |"
    )


if __name__ == "__main__":
    cli()
