"""`validate --kernels`: a verdict on each kernel of the final modules, compiled alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final

from hlo_lint.apps.jax.capture.targets import readable_description, target_of
from hlo_lint.apps.reduction import flags_of
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.directory import Dump
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.selection import modules_of
from hlo_lint.engine.diagnose import origin_of
from hlo_lint.engine.isolation.compilers import (
    AbsentKernels,
    DeviceKernels,
    RunningKernels,
    as_overrides,
)
from hlo_lint.engine.isolation.cut import cuts_of, emitter_of
from hlo_lint.engine.isolation.judge import KernelCompiler, KernelVerdict, judge_kernel
from hlo_lint.engine.mentions import names_in
from hlo_lint.hlo.ir import Module
from hlo_lint.text.errors import DumpError
from hlo_lint.xla.compiler import XlaCompiler
from hlo_lint.xla.cpu import XlaCpu
from hlo_lint.xla.environments import (
    Interpreter,
    Platform,
    environment_of,
    installed,
    interpreter_at,
    needs_download,
    release_here,
)
from hlo_lint.xla.limits import Deadline

KERNEL_SECONDS: Final = 30.0
"""The time limit for a kernel, to compile and to run."""
GPU_LIMITS: Final[Mapping[str, Any]] = {
    "seconds": 2 * KERNEL_SECONDS,
    "memory": 1 << 40,
    "environment": {"JAX_PLATFORMS": "cuda", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
}
"""The limits of kernels on the GPU of this machine; CUDA reserves more memory than it uses."""
_BEFORE_BUFFERS: Final = "after_optimizations_before_buffer_assignment"
"""The dump of XLA:TPU before its memory spaces are assigned, which can be compiled again."""


@dataclass(frozen=True)
class JudgedKernel:
    """A kernel of a compilation with its verdict."""

    verdict: KernelVerdict
    source: str
    """The line of Python, `model.py:12 in step`; empty if the dump does not have it."""
    named: tuple[str, ...] = ()
    """The instructions that XLA's message names, each with its line of Python."""

    @property
    def name(self) -> str:
        """The name of the instruction."""
        return self.verdict.cut.instruction.name

    @property
    def emitter(self) -> str:
        """The part of XLA that emits it."""
        return emitter_of(self.verdict.cut.instruction)


@dataclass(frozen=True)
class KernelCompilation:
    """The kernels of a compilation, and who compiled them."""

    title: str
    compiler: str
    """`XLA:CPU of jax 0.10.2`"""
    kernels: tuple[JudgedKernel, ...]


def emitted_dump(compilation: Compilation) -> PassDump:
    """The module that the emitters got, or the last dump of a run without it."""
    for dump in compilation.dumps:
        if dump.name is not None and dump.name.rest.startswith(_BEFORE_BUFFERS):
            return dump
    return compilation.final or compilation.dumps[-1]


class ReleaseCompiler(ExitStack):
    """The compiler of the release that wrote a dump, for single kernels and for whole modules."""

    def __init__(
        self,
        compilation: Compilation,
        *,
        release: str | None = None,
        python: str | None = None,
        chip: str | None = None,
        on_gpu: bool = False,
        deadline: Deadline | None = None,
        announce: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Choose the compiler.

        Args:
            compilation: the compilation that wrote the dump.
            release: the release to ask instead of that of the dump.
            python: a Python whose jax to ask.
            chip: the chip to compile for; by default that of the dump.
            on_gpu: True to run the kernels on the GPU of this machine.
            deadline: the end of the time for all kernels.
            announce: called with each step of a download.

        Raises:
            UsageError: there is no compiler for the chip.
            CaptureError: the environment of a release cannot be made.
        """
        super().__init__()
        self.platform = Platform[(compilation.backend or "cpu").upper()]
        is_cpu, is_tpu = self.platform is Platform.CPU, self.platform is Platform.TPU
        is_known = compilation.is_of_known_release
        may_be = [passes.version for passes in compilation.releases if is_known]
        asked: Interpreter | None = None
        if python:
            asked = interpreter_at(python)
        elif release:
            asked = environment_of(release, announce, self.platform)
        else:
            here = [version for version in may_be if not needs_download(version, self.platform)]
            if not here and not self.platform.is_here:
                here = installed(self.platform)
            asked = environment_of(here[-1], announce, self.platform) if here else None
        self.release = asked.jax if asked else release_here()
        self.title = f"XLA:{self.platform.name} of jax {self.release}"
        is_own = self.release in may_be
        self.speaks_for_dump = is_own or not may_be or bool(release or python)
        """False if another release wrote the dump, and the caller did not ask this one."""
        if is_own and len(may_be) > 1:
            others = f"{may_be[0]} to {may_be[-1]}"
            self.title += f"; {others} may have written the dump (--jax RELEASE asks another)"
        if not is_own:
            self.title += (
                f"; {' or '.join(may_be)} wrote the dump (--jax {may_be[-1]} asks it)"
                if may_be
                else "; the release that wrote the dump is unknown (--jax RELEASE asks it)"
            )
        flags = flags_of(compilation.options) if is_own else ""
        path = asked.path if asked else None
        self.kernels: KernelCompiler
        self.modules: AbsentKernels | RunningKernels
        if is_cpu or on_gpu:
            limits = GPU_LIMITS if on_gpu else {"seconds": KERNEL_SECONDS}
            xla = self.enter_context(XlaCpu(path, deadline=deadline, **limits))
            running = RunningKernels(xla, as_overrides(flags), is_cpu=is_cpu)
            self.kernels = self.modules = running
        if is_cpu:
            return
        compiler = self.enter_context(
            XlaCompiler(
                path,
                timeout=KERNEL_SECONDS,
                platform="tpu" if is_tpu else "cuda",
                deadline=deadline,
            )
        )
        config = target_of(chip or ("v5e" if is_tpu else "h100")).description
        if not is_tpu:
            own = None if chip else compilation.artefact("gpu_target_config.pbtxt")
            config = readable_description(own or config, compiler)
        if on_gpu:
            self.kernels = DeviceKernels(compiler, config, flags, xla, running)
        else:
            self.modules = AbsentKernels(compiler, config, "" if is_tpu else flags, is_tpu=is_tpu)
            self.kernels = self.modules


def judged_kernels(
    dump: Dump,
    *,
    seconds: float | None = None,
    memory: int = 8 << 30,
    note: Callable[[str], None] = lambda _: None,
    **compiler: Any,
) -> Iterator[KernelCompilation]:
    """Compile the kernels of each final module alone, and judge those that run here.

    Args:
        dump: the dumps of the modules.
        seconds: time limit for all kernels.
        memory: bytes that a child process may map.
        note: called with the kernel that is compiled.
        compiler: arguments of `ReleaseCompiler`.

    Raises:
        DumpError: a file cannot be read, or jaxlib is missing.
    """
    deadline = Deadline(inf if seconds is None else seconds)
    compilations = [compilation for compilation in dump if not compilation.is_helper]
    if not compilations:
        raise DumpError("the dump has no module to compile")
    seen: dict[tuple[str, str], KernelVerdict] = {}
    with XlaCpu(memory=memory, deadline=deadline) as judge:
        for compilation in compilations:
            with ReleaseCompiler(
                compilation, deadline=deadline, announce=note, **compiler
            ) as asked:
                kernels = []
                for whole in modules_of(emitted_dump(compilation)):
                    for cut in cuts_of(whole):
                        note(f"{compilation.title}: {cut.instruction.name}")
                        key = asked.title, cut.key
                        if key not in seen:
                            seen[key] = judge_kernel(cut, asked.kernels, judge)
                        kernels.append(_judged_kernel(whole, replace(seen[key], cut=cut)))
                yield KernelCompilation(compilation.title, asked.title, tuple(kernels))


def _judged_kernel(module: Module, verdict: KernelVerdict) -> JudgedKernel:
    kernel = verdict.cut.instruction
    names = set(names_in(verdict.message)) - {kernel.name}
    within = {row.name for body in verdict.cut.draft.bodies for row in body.rows}
    named = [
        f"%{row.name}, {origin_of(row, module) or 'of no known line'}"
        for row in (module.instructions() if names & within else ())
        if row.name in names
    ]
    return JudgedKernel(verdict, str(origin_of(kernel, module) or ""), tuple(named))
