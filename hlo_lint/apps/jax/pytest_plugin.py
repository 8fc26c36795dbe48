"""The pytest plug-in: checks every pass of the compiles of a test.

    def test_step(hlo_lint):
        hlo_lint.check(step, parameters, batch)        # fails with the finding

    @pytest.mark.hlo_lint(select=["layout"], allow=["needless-transpose"], target="h200")
    def test_attention(hlo_lint): ...

    def test_is_fused(hlo_lint_dump):
        compilation = hlo_lint_dump(step, parameters, batch)
        assert len(compilation.final.module.entry_computation.with_opcode("fusion")) == 3

pytest imports this module in every run, so it imports nothing but pytest before a fixture is used.
"""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hlo_lint.apps.jax.capture.jit import Capture
    from hlo_lint.apps.settings.settings import Settings
    from hlo_lint.dumps.compilation import Compilation
    from hlo_lint.report.report import Report

SETTINGS = ("select", "ignore", "allow", "before", "target")
"""The arguments of the marker; `check` takes the same, and they take precedence."""
_SETTINGS = pytest.StashKey["Settings"]()


class HloLint:
    """The value of the fixture `hlo_lint`: compiles and checks with the options of the markers."""

    def __init__(self, marked: Mapping[str, Any], request: pytest.FixtureRequest) -> None:
        self.marked = marked
        """The options of the markers."""
        self.captures: list[Capture] = []
        """The compiles of this test; their dumps are removed when it ends."""
        self._config = request.config
        self._folders: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")

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
                return check_capture(capture, **chosen, settings=_settings(self._config))
        except FindingsError as error:
            kept = self._folders.mktemp("hlo_lint")
            shutil.copytree(capture.folder, kept, dirs_exist_ok=True)
            error.add_note(f"the dump is kept in {kept}")
            raise

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

    def close(self) -> None:
        """Remove the dumps."""
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


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    config.addinivalue_line(
        "markers",
        f"hlo_lint({', '.join(f'{name}=…' for name in SETTINGS)}): how the fixture hlo_lint checks",
    )


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
