"""The pytest plug-in: checks every pass of the compiles of a test.

    def test_step(hlo_lint):
        hlo_lint.check(step, parameters, batch)        # fails with the finding

    @pytest.mark.hlo_lint(select=["layout"], allow=["needless-transpose"], target="h200")
    def test_attention(hlo_lint): ...

    def test_is_fused(hlo_lint_dump):
        compilation = hlo_lint_dump(step, parameters, batch)
        assert len(compilation.final.module.entry_computation.with_opcode("fusion")) == 3

`--hlo-lint-report=DIR` writes the findings as JSON, the dumps of failed compiles, and a summary.
pytest imports this module in every run, so it imports nothing but pytest before a fixture is used.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hlo_lint.apps.jax.capture.jit import Capture
    from hlo_lint.apps.settings.settings import Settings
    from hlo_lint.dumps.compilation import Compilation
    from hlo_lint.report.report import Report

SETTINGS = ("select", "ignore", "allow", "before", "target")
"""The arguments of the marker; `check` takes the same, and they take precedence."""
FINDINGS = "findings.json"
SUMMARY = "summary.json"
_REPORT = pytest.StashKey[Path]()
_SETTINGS = pytest.StashKey["Settings"]()


class HloLint:
    """The value of the fixture `hlo_lint`: compiles and checks with the options of the markers."""

    def __init__(self, marked: Mapping[str, Any], request: pytest.FixtureRequest) -> None:
        self.marked = marked
        """The options of the markers."""
        self.captures: list[Capture] = []
        """The compiles of this test; their dumps are removed when it ends."""
        self._config = request.config
        self._test = request.node.nodeid
        self._folder = _folder_of(request)
        self._temporary: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
        self._said: list[dict[str, Any]] = []

    def check(
        self,
        function: Any,
        *arguments: Any,
        compiler_options: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> Report:
        """`hlo_lint.check_jit` with these settings, else those of the markers, else the project's.

        Other names are arguments of the function: `hlo_lint.check(f, x, bias=b)`.

        Raises:
            FindingsError: for an error or a warning, and where the compile fails.
            UsageError: for an unknown name, rule, target or option.
        """
        __tracebackhide__ = True
        from hlo_lint.apps.jax.capture.jit import FindingsError, check_capture

        with _WithoutOwnFrames():
            keywords = _arguments_of(function, named)
            settings = {name: value for name, value in named.items() if name not in keywords}
            chosen = {**self.marked, **_known(settings)}
        target = chosen.pop("target", None)
        capture = self.capture(
            function,
            *arguments,
            keywords=keywords,
            target=target,
            compiler_options=compiler_options,
        )
        try:
            with _WithoutOwnFrames():
                report = check_capture(capture, **chosen, settings=_settings(self._config))
        except FindingsError as error:
            kept = self._note(capture, error.report, failed=True)
            error.add_note(f"the dump is kept in {kept}")
            raise
        self._note(capture, report, failed=False)
        return report

    def capture(self, function: Any, *arguments: Any, **options: Any) -> Capture:
        """`hlo_lint.capture_jit`; the dump is removed when the test ends.

        Raises:
            UsageError: for an unknown target or option.
        """
        __tracebackhide__ = True
        from hlo_lint.apps.jax.capture.jit import capture_jit

        with _WithoutOwnFrames():
            capture = capture_jit(function, *arguments, **options)
        self.captures.append(capture)
        return capture

    def _note(self, capture: Capture, report: Report, *, failed: bool) -> Path | None:
        """Add a compile to the report; returns the folder of its dump, if it failed."""
        kept = None
        if failed:
            name = re.sub(r"[^\w.\-]", "_", capture.name)
            kept = (
                self._folder or self._temporary.mktemp("hlo_lint")
            ) / f"{len(self._said) + 1}-{name}"
            shutil.copytree(capture.folder, kept)
        self._said.append(
            {
                "name": capture.name,
                "jax": capture.jax,
                "target": capture.target,
                "failed": failed,
                "failure": capture.failure,
                "dump": kept and kept.name,
                "report": json.loads(report.to_json()),
            }
        )
        return kept

    def close(self) -> None:
        """Write the findings, and remove the dumps."""
        if self._said and self._folder is not None:
            summary = {"version": 1, "test": self._test, "programs": self._said}
            _write(self._folder / FINDINGS, summary)
        for capture in self.captures:
            capture.remove()


@pytest.fixture
def hlo_lint(request: pytest.FixtureRequest) -> Iterator[HloLint]:
    """Compile jax functions and check every pass: `hlo_lint.check(f, x, y)`."""
    from hlo_lint.text.errors import UsageError

    marked, wrong = {}, ""
    try:
        marked = _marked(request.node)
    except UsageError as error:
        wrong = str(error)
    if wrong:  # not within `except`: pytest would print both errors
        pytest.fail(f"@pytest.mark.hlo_lint: {wrong}", pytrace=False)
    checks = HloLint(marked, request)
    yield checks
    checks.close()


@pytest.fixture
def hlo_lint_dump(hlo_lint: HloLint) -> Callable[..., Compilation]:
    """Compile a jax function; gives its compilation, with a dump for each pass."""

    def dump(function: Any, *arguments: Any, **options: Any) -> Compilation:
        options.setdefault("target", hlo_lint.marked.get("target"))
        return hlo_lint.capture(function, *arguments, **options).compilation

    return dump


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option that asks for a report."""
    parser.getgroup("hlo-lint").addoption(
        "--hlo-lint-report",
        metavar="DIR",
        help="Write a report here: findings of each test, dumps of failed compiles, a summary.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and begin the report."""
    config.addinivalue_line(
        "markers",
        f"hlo_lint({', '.join(f'{name}=…' for name in SETTINGS)}): how the fixture hlo_lint checks",
    )
    given = config.getoption("--hlo-lint-report")
    if given is None:
        return
    folder = config.stash[_REPORT] = Path(given).absolute()
    if _is_worker(config):
        return
    from hlo_lint.text.errors import os_errors_as

    with os_errors_as(f"--hlo-lint-report: {folder}", pytest.UsageError):
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f"*/{FINDINGS}"):
            shutil.rmtree(old.parent)
        (folder / SUMMARY).unlink(missing_ok=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the summary of all tests, whichever process they ran in."""
    folder = session.config.stash.get(_REPORT, None)
    if folder is not None and not _is_worker(session.config):
        _write(folder / SUMMARY, _summary(folder))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """The path of the report, and its counts."""
    folder = config.stash.get(_REPORT, None)
    if folder is None:
        return
    summary = json.loads((folder / SUMMARY).read_bytes())
    terminalreporter.write_line(
        f"hlo-lint: {summary['programs']} compiled in {len(summary['tests'])} tests, "
        f"{summary['failed']} failed; see {Path(config.getoption('--hlo-lint-report'), SUMMARY)}"
    )


def _summary(folder: Path) -> dict[str, Any]:
    files = [(path, json.loads(path.read_bytes())) for path in folder.glob(f"*/{FINDINGS}")]
    tests = [
        {
            "test": findings["test"],
            "programs": len(findings["programs"]),
            "failed": sum(program["failed"] for program in findings["programs"]),
            "findings": str(path.relative_to(folder)),
        }
        for path, findings in sorted(files, key=lambda entry: str(entry[1]["test"]))
    ]
    totals = {name: sum(test[name] for test in tests) for name in ("programs", "failed")}
    return {"version": 1, **totals, "tests": tests}


def _settings(config: pytest.Config) -> Settings:
    """The settings of the project (`[tool.hlo_lint]` or `hlo_lint.toml`), read once."""
    from hlo_lint.apps.jax.capture.jit import for_one_compile
    from hlo_lint.apps.settings.load import load_settings

    if _SETTINGS not in config.stash:
        config.stash[_SETTINGS] = for_one_compile(load_settings([config.rootpath]))
    return config.stash[_SETTINGS]


class _WithoutOwnFrames:
    """A context whose errors point at the test, not into this package."""

    def __enter__(self) -> None:
        """Set up no state."""

    def __exit__(self, error_type: object, error: BaseException | None, traceback: object) -> None:
        __tracebackhide__ = True
        from hlo_lint.text.errors import HloLintError

        if isinstance(error, HloLintError | TypeError):
            raise error.with_traceback(None) from None


def _marked(node: pytest.Item) -> dict[str, Any]:
    """The options of the markers: the nearest takes precedence, allowed rules add up."""
    settings: dict[str, Any] = {}
    for marker in node.iter_markers("hlo_lint"):
        if marker.args:
            from hlo_lint.text.errors import UsageError

            raise UsageError(f"settings are passed by name: {', '.join(SETTINGS)}")
        allowed = [*_names(marker.kwargs.get("allow", ())), *settings.get("allow", ())]
        settings = {**_known(marker.kwargs), **settings}
        if allowed:
            settings["allow"] = allowed
    return settings


def _arguments_of(function: Any, named: Mapping[str, Any]) -> dict[str, Any]:
    """The named arguments that the function takes, less those that are settings."""
    candidates = {name: value for name, value in named.items() if name not in SETTINGS}
    if not candidates or not callable(function):
        return {}
    parameters = inspect.signature(function).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return {name: value for name, value in candidates.items() if takes_any or name in parameters}


def _known(settings: Mapping[str, Any]) -> dict[str, Any]:
    for name in settings:
        if name not in SETTINGS:
            from hlo_lint.text.errors import UsageError, nearest

            raise UsageError(f"hlo_lint has no setting {name}: {nearest(name, SETTINGS)}")
    lists = ("select", "ignore", "allow")
    return {
        name: _names(value) if name in lists and value is not None else value
        for name, value in settings.items()
    }


def _names(given: Any) -> list[Any]:
    """A list of names or allowances, also of a single name or allowance."""
    return list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]


def _folder_of(request: pytest.FixtureRequest) -> Path | None:
    report = request.config.stash.get(_REPORT, None)
    if report is None:
        return None
    test = request.node.nodeid
    readable = re.sub(r"[^\w.\-]+", "-", test)[:100].strip("-.")
    folder = report / f"{readable}-{hashlib.sha256(test.encode()).hexdigest()[:8]}"
    shutil.rmtree(folder, ignore_errors=True)  # of the same test, run again
    return folder


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2), "utf-8")


def _is_worker(config: pytest.Config) -> bool:
    """True in a worker process of pytest-xdist."""
    return hasattr(config, "workerinput")
