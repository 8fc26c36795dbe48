"""A jax function compiled with a dump of every pass, to be checked.

    capture = capture_jit(f, x, y)
    print(capture.lint())
    check_jit(f, x, y)                      # raises FindingsError where there is a finding
    compile_for("h200", f, x, y).lint()     # XLA:GPU's own passes, without a GPU
    compile_for("v5e", f, x, y).lint()      # XLA:TPU's, without a TPU

The dump is asked for with compiler options: no environment variable is set, and other compiles
are not dumped. A compile that fails raises no exception: the dump shows how far it came.

For a target XLA runs in a child process: if it aborts, hangs or takes too much memory, that is how
the compile failed. Without a target it runs in this process, for the devices of jax: if XLA aborts,
this process ends.
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
from hlo_lint.dumps.selection import main_compilations
from hlo_lint.report.report import Report
from hlo_lint.rules.registry import select_rules
from hlo_lint.text.errors import CaptureError, HloLintError, UsageError, os_errors_as
from hlo_lint.text.phrases import short_repr

if TYPE_CHECKING:
    from hlo_lint.apps.settings.settings import Settings
    from hlo_lint.dumps.compilation import Compilation
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
    """A function does not compile, or its compile has findings, which are printed."""

    def __init__(self, capture: Capture, report: Report) -> None:
        self.report = report
        self.failure = capture.failure
        """XLA's message if the compile failed, else None."""
        what = "has findings" if capture.failure is None else "does not compile"
        failure = "" if capture.failure is None else f"{capture.failure}\n"
        super().__init__(f"{capture.title}, {what}\n{failure}{report}")


@dataclass(eq=False, repr=False)
class Capture(AbstractContextManager["Capture"]):
    """A compile: its dump, and how it ended.

    The folder is removed with the object, at the end of a `with`, or by `remove`; a folder that
    the caller named stays.
    """

    folder: Path
    name: str
    """The name of the function."""
    jax: str
    """The release of jax."""
    target: str | None = None
    """The chip that was compiled for; None for the devices of jax in this process."""
    failure: str | None = None
    """XLA's message if the compile failed, else None."""
    is_kept: bool = False
    compile: Callable[[], Any] = field(default=lambda: None, repr=False)
    """Makes the `jax.stages.Compiled`."""

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

        For a target, the dump comes from a child process; this compiles again, in this process.
        """
        return None if self.failure is not None else self.compile()

    @cached_property
    def dump(self) -> Dump:
        """The dump in the folder."""
        return open_dump(self.folder)

    @property
    def compilation(self) -> Compilation:
        """The dumps of the function's own module, pass by pass.

        Raises:
            CaptureError: if XLA wrote no dump.
        """
        compilations = main_compilations(self.dump)
        if not compilations:
            raise self._no_dump()
        return max(compilations, key=lambda compilation: len(compilation.dumps))

    def lint(self, *, allow: Sequence[Allowance] = (), **options: Unpack[LintOptions]) -> Report:
        """The report of `hlo_lint.lint` on the dump; paths are in the folder unless it stays.

        Raises:
            UsageError: for an unknown rule or pass.
            CaptureError: if XLA wrote no dump.
        """
        if not self.dump.compilations:
            raise self._no_dump()
        report = lint(self.dump, allow=allow, **options)
        return report if self.is_kept else without_folder(report, self.folder)

    def _no_dump(self) -> CaptureError:
        why = "" if self.failure is None else f": {self.failure}"
        return CaptureError(f"{self.title}: XLA wrote no dump{why}")

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
    """Compile a function, a jitted function, or a `jax.stages.Lowered`, with a dump of its passes.

    Args:
        arguments: arrays or `jax.ShapeDtypeStruct`s, as `jax.jit(f).lower` takes them; not allowed
            for a `Lowered`.
        keywords: arguments that are passed by name.
        target: compile for this chip; see `compile_for`.
        passes: dump after passes of these names (a regular expression).
        compiler_options: further options of XLA, by the names of its flags.
        folder: keep the dump here; it must be empty or not exist.

    Raises:
        UsageError: for an option that XLA refuses, and without jax.
        DumpError: for a target that cannot be read.
        CaptureError: if the folder is not empty.
    """
    try:
        import jax
    except ImportError as error:
        raise UsageError(f"jax is not installed ({error})") from error
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
                dump_folder = new_folder()
                failure = compiler.compile(lowered, dump_folder, options, passes)
            compiled = partial(lowered.compile, options)
        else:
            if is_lowered:
                lowered = function
            else:
                jitted: Any = function if hasattr(function, "lower") else jax.jit(function)
                lowered = jitted.lower(*arguments, **(keywords or {}))
            dump_folder = new_folder()
            executable, failure = compile_lowered(lowered, dump_folder, options, passes)
            kept_beside(dump_folder, failure)
            compiled = lambda: executable  # noqa: E731
    except TargetRefused as error:
        raise UsageError(f"jax {jax.__version__} cannot compile for {target}: {error}") from error
    except OptionRefused as error:
        raise UsageError(f"jax {jax.__version__}: {error}") from error
    name = getattr(function, "__name__", None) or "the program"
    is_kept = folder is not None
    return Capture(dump_folder, name, jax.__version__, target, failure, is_kept, compiled)


def compile_for(
    target: str,
    function: Callable[..., Any],
    *arguments: Any,
    passes: str = ".*",
    compiler_options: Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
) -> Capture:
    """Compile a function with XLA:GPU or XLA:TPU for a chip that need not be present.

    `target` is "h100", "h200", the path of a `gpu_target_config.pbtxt` from a dump, or "v5e",
    "v5p", "v6e", also with a topology: "v5e:4x4". Nothing is timed, so each fusion gets XLA's
    first backend. The other arguments are as in `capture_jit`. A GPU needs jax's CUDA plugin, the
    extra `hlo-lint[gpu-compiler]`, but no driver and no CUDA; a TPU needs `jax[tpu]`.

    Raises:
        UsageError: for an unknown target, and without the plugin.
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
    """Compile a function and check every pass; returns the report if it is clean.

    The options are those of `hlo_lint.lint`: `select`, `ignore`, `before`, `settings` and so on.
    `allow` also takes rules and families, whose findings are in the report and do not raise. The
    other arguments are as in `capture_jit`.

    Raises:
        FindingsError: for an error or a warning, and if the compile fails.
        UsageError: for an unknown rule, target or option.
    """
    __tracebackhide__ = True
    with capture_jit(
        function, *arguments, keywords=keywords, target=target, compiler_options=compiler_options
    ) as capture:
        return check_capture(capture, allow, **options)


def check_capture(
    capture: Capture, allow: Sequence[str | Allowance] = (), **options: Unpack[LintOptions]
) -> Report:
    """The report of a clean compile; the arguments are as in `check_jit`.

    Raises:
        FindingsError: for an error or a warning of a rule that is not in `allow`, and if the
            compile failed.
        UsageError: for an unknown rule.
    """
    __tracebackhide__ = True
    report = capture.lint(allow=[entry for entry in allow if not isinstance(entry, str)], **options)
    allowed = select_rules([entry for entry in allow if isinstance(entry, str)])
    counted = [finding for finding in report.findings if allowed.named(finding.rule) is None]
    if capture.failure is not None or not replace(report, findings=tuple(counted)).clean:
        raise FindingsError(capture, report)
    return report


def for_one_compile(settings: Settings) -> Settings:
    """The settings of a project, without `unused-allowance`: most allowances are for others."""
    return settings.reselected(ignore=["unused-allowance"])


def without_folder(report: Report, folder: Path) -> Report:
    """A report with paths relative to a folder, and without the skipped folders in it."""

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
    """The folder, created if it does not exist.

    Raises:
        CaptureError: if it is not empty, or cannot be created.
    """
    folder = Path(path)
    with os_errors_as(f"{folder}", CaptureError):
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise CaptureError(f"{folder} is not empty; give a folder that does not exist")
    return folder
