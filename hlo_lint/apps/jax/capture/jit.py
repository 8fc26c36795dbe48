"""One compile of a jax function, with every pass of it on disk, and what is found there.

    capture = capture_jit(f, x, y)
    print(capture.lint())
    check_jit(f, x, y)                      # raises FindingsError where there is a finding
    compile_for("h200", f, x, y).lint()     # XLA:GPU's own passes, without a GPU
    compile_for("v5e", f, x, y).lint()      # XLA:TPU's, without a TPU

The dump is asked for with compiler options, so no environment variable is set and nothing else that
is compiled is dumped. What fails to compile is not an exception: the dump says how far it came.

For a target XLA runs in a child process: if it aborts, hangs or takes too much memory, that is how
the compile failed. Without one it runs here, on the devices that jax uses here: an abort of XLA is
then the end of this process.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from hlo_lint.apps.api import lint
from hlo_lint.apps.jax.capture.children import Compiler, kept_beside
from hlo_lint.apps.jax.capture.targets import target_of
from hlo_lint.apps.jax.capture.worker import (
    OptionRefused,
    TargetRefused,
    compile_lowered,
    lower_for,
    unmeasured,
)
from hlo_lint.dumps.directory import Dump, open_dump
from hlo_lint.dumps.selection import main_pipelines
from hlo_lint.report.report import Report
from hlo_lint.rules.registry import select_rules
from hlo_lint.text.errors import CaptureError, HloLintError, UsageError, os_errors_as
from hlo_lint.text.phrases import short_repr

if TYPE_CHECKING:
    from hlo_lint.apps.settings.settings import Settings
    from hlo_lint.dumps.pipeline import Pipeline
    from hlo_lint.engine.suppressions.allowances import Allowance
    from hlo_lint.rules.base import Rule, Stage

    class LintOptions(TypedDict, total=False):
        """Options of `lint` that the methods and functions here hand on."""

        select: Sequence[str | type[Rule]] | None
        ignore: Sequence[str] | None
        before: str | None
        stage: Stage | str | None
        settings: Settings | None
        resolved: bool
        baseline: str | Path | None


class FindingsError(HloLintError, AssertionError):
    """A function that does not compile, or whose compile has findings; prints them."""

    def __init__(self, capture: Capture, report: Report) -> None:
        self.report = report
        self.failure = capture.failure
        """XLA's message if the compile failed, else None."""
        what = "has findings" if capture.failure is None else "does not compile"
        failure = "" if capture.failure is None else f"{capture.failure}\n"
        super().__init__(f"{capture.title}, {what}\n{failure}{report}")


@dataclass(eq=False, repr=False)
class Capture(AbstractContextManager["Capture"]):
    """One compile: the dump of it, and how it ended.

    The folder goes when the object does, at the end of a `with`, or with `remove`; a folder that
    the caller named stays.
    """

    folder: Path
    name: str
    """Of the function."""
    jax: str
    """The release."""
    target: str | None = None
    """The chip that was compiled for; None for what jax runs on here."""
    failure: str | None = None
    """XLA's message if the compile failed, else None."""
    is_kept: bool = False
    compile: Callable[[], Any] = field(default=lambda: None, repr=False)
    """Gives the `jax.stages.Compiled`."""

    __repr__ = short_repr

    def __post_init__(self) -> None:
        self._finalizer = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        if self.is_kept:
            self._finalizer.detach()

    @property
    def title(self) -> str:
        """`step, compiled for h200 by jax 0.11.2`"""
        target = "" if self.target is None else f" for {self.target}"
        return f"{self.name}, compiled{target} by jax {self.jax}"

    @cached_property
    def compiled(self) -> Any:
        """The `jax.stages.Compiled`, or None if the compile failed.

        For a target the dump is of a compile in a child process: this compiles again, in this one.
        """
        return None if self.failure is not None else self.compile()

    @cached_property
    def dump(self) -> Dump:
        """The dump that XLA wrote into the folder."""
        return open_dump(self.folder)

    @property
    def pipeline(self) -> Pipeline:
        """The dumps of the function's own module, pass by pass.

        Raises:
            CaptureError: where XLA left none.
        """
        pipelines = main_pipelines(self.dump)
        if not pipelines:
            raise self._no_dump()
        return max(pipelines, key=lambda pipeline: len(pipeline.dumps))

    def lint(self, *, allow: Sequence[Allowance] = (), **options: Unpack[LintOptions]) -> Report:
        """The report of `hlo_lint.lint` on the dump; paths are those in the folder if it goes.

        Raises:
            UsageError: for a rule or a pass that nothing knows.
            CaptureError: where XLA left no dump.
        """
        if not self.dump.pipelines:
            raise self._no_dump()
        report = lint(self.dump, allow=allow, **options)
        return report if self.is_kept else without_folder(report, self.folder)

    def _no_dump(self) -> CaptureError:
        why = "" if self.failure is None else f": {self.failure}"
        return CaptureError(f"{self.title}, left no dump{why}")

    def remove(self) -> None:
        """Remove the folder, unless the caller named it."""
        self._finalizer()

    def __exit__(self, *_: object) -> None:
        self.remove()


def capture_jit(
    function: Any,
    *arguments: Any,
    keywords: Mapping[str, Any] | None = None,
    target: str | None = None,
    passes: str = ".*",
    compiler_options: Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
) -> Capture:
    """Compiles a function, what `jax.jit` made of one, or a `jax.stages.Lowered`.

    Args:
        arguments: arrays or `jax.ShapeDtypeStruct`s, as `jax.jit(f).lower` takes them; none for
            what is lowered already.
        keywords: arguments that are passed by name.
        target: compile for this chip; see `compile_for`.
        passes: dump what passes of these names change (a regular expression).
        compiler_options: further options of XLA, by the names of its flags.
        folder: keep the dump here; it must be empty or not be there.

    Raises:
        UsageError: for an option that XLA does not take, and where there is no jax.
        DumpError: for a target that cannot be read.
        CaptureError: where the folder is not empty.
    """
    jax = _jax()
    topology = None if target is None else target_of(target).topology()
    is_lowered = hasattr(function, "compile")
    if is_lowered and (arguments or keywords or target is not None):
        raise UsageError("a lowered program takes no arguments and no target")
    options = {**(unmeasured(topology) if topology else {}), **(compiler_options or {})}

    def new_folder() -> Path:
        if folder is not None:
            return empty_folder(folder)
        return Path(tempfile.mkdtemp(prefix="hlo_lint_"))

    compiled: Any
    try:
        if topology is not None:
            with Compiler(topology) as compiler:
                lowered = lower_for(function, arguments, keywords or {}, compiler.target)
                made = new_folder()
                failure = compiler.compile(lowered, made, options, passes)
            compiled = partial(lowered.compile, options)
        else:
            if is_lowered:
                lowered = function
            else:
                jitted: Any = function if hasattr(function, "lower") else jax.jit(function)
                lowered = jitted.lower(*arguments, **(keywords or {}))
            made = new_folder()
            executable, failure = compile_lowered(lowered, made, options, passes)
            kept_beside(made, failure)
            compiled = lambda: executable  # noqa: E731
    except TargetRefused as error:
        raise UsageError(f"jax {jax.__version__} cannot compile for {target}: {error}") from error
    except OptionRefused as error:
        raise UsageError(f"jax {jax.__version__}: {error}") from error
    name = getattr(function, "__name__", None) or "the program"
    return Capture(made, name, jax.__version__, target, failure, folder is not None, compiled)


def compile_for(
    target: str,
    function: Callable[..., Any],
    *arguments: Any,
    passes: str = ".*",
    compiler_options: Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
) -> Capture:
    """Compiles a function with XLA:GPU or XLA:TPU for a chip that need not be there.

    `target` is "h100", "h200", the path of a `gpu_target_config.pbtxt` from a dump, or "v5e",
    "v5p", "v6e", also with a topology: "v5e:4x4". Nothing is timed, so each fusion gets the first
    backend that XLA takes by default. The rest is as in `capture_jit`. A GPU needs jax's CUDA
    plugin, the extra `hlo-lint[gpu-compiler]`, and no driver, no CUDA; a TPU needs `jax[tpu]`.

    Raises:
        UsageError: for a target that nothing knows, and without the plugin.
        DumpError: for a target that cannot be read.
    """
    return capture_jit(
        function,
        *arguments,
        target=target,
        passes=passes,
        compiler_options=compiler_options,
        folder=folder,
    )


def check_jit(
    function: Any,
    *arguments: Any,
    keywords: Mapping[str, Any] | None = None,
    target: str | None = None,
    compiler_options: Mapping[str, Any] | None = None,
    allow: Sequence[str | Allowance] = (),
    **options: Unpack[LintOptions],
) -> Report:
    """Compiles a function and checks every pass of it; gives the report where it is clean.

    The options are those of `hlo_lint.lint`, `select`, `ignore`, `before`, `settings` …, and so are
    allowances in `allow`; what rules or families in it find is in the report, and no reason to
    raise. The rest is as in `capture_jit`.

    Raises:
        FindingsError: for an error or a warning, and where the compile fails.
        UsageError: for a rule, a target or an option that nothing knows.
    """
    __tracebackhide__ = True
    with capture_jit(
        function,
        *arguments,
        keywords=keywords,
        target=target,
        compiler_options=compiler_options,
    ) as capture:
        return check_capture(capture, allow, **options)


def check_capture(
    capture: Capture, allow: Sequence[str | Allowance] = (), **options: Unpack[LintOptions]
) -> Report:
    """The report of a compile that succeeded and is clean; the arguments are those of `check_jit`.

    Raises:
        FindingsError: for an error or a warning of a rule that is not in `allow`, and where the
            compile failed.
        UsageError: for a rule that nothing knows.
    """
    __tracebackhide__ = True
    report = capture.lint(allow=[entry for entry in allow if not isinstance(entry, str)], **options)
    allowed = select_rules([entry for entry in allow if isinstance(entry, str)])
    counted = [finding for finding in report.findings if allowed.named(finding.rule) is None]
    if capture.failure is not None or not replace(report, findings=tuple(counted)).clean:
        raise FindingsError(capture, report)
    return report


def for_one_compile(settings: Settings) -> Settings:
    """The settings of a project, most of whose allowances are about other programs than this."""
    return settings.reselected(extend_ignore=["unused-allowance"])


def without_folder(report: Report, folder: Path) -> Report:
    """A report whose paths are those within a folder; other files of XLA there are not reported."""

    def within(path: str) -> str:
        return path.removeprefix(f"{folder}/")

    skipped = tuple(
        skip._replace(path=within(skip.path))
        for skip in report.skipped
        if not Path(skip.path).is_dir()
    )
    allowed = tuple(
        replace(suppressed, finding=suppressed.finding.relocated(within))
        for suppressed in report.allowed
    )
    findings = tuple(finding.relocated(within) for finding in report.findings)
    return replace(report, findings=findings, skipped=skipped, allowed=allowed)


def empty_folder(path: str | Path) -> Path:
    """The folder, made where it is not there yet.

    Raises:
        CaptureError: where something is in it, or it cannot be made.
    """
    folder = Path(path)
    with os_errors_as(f"{folder}", CaptureError):
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise CaptureError(f"{folder} is not empty; give a folder that is not there yet")
    return folder


def _jax() -> Any:
    try:
        import jax
    except ImportError as error:
        raise UsageError(f"jax is not installed ({error})") from error
    return jax
