"""Find the rules and commands that explain a message of XLA."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from hlo_lint.dumps.messages import KINDS, MessageSource
from hlo_lint.rules.base import Rule
from hlo_lint.text.patterns import late

SHORTEST = 8
"""The least characters of a part of a message that identify the message."""

_MEMORY = "hlo-lint check --select huge-temporary,copied-donation,copied-loop-state DUMP"
_KERNEL = "hlo-lint payload DUMP CALL, or hlo-lint validate --kernels DUMP"

KNOWN = {
    r"\bE0100\b|RuntimeBufferAllocationFailure|\bE1000\b|CompileTimeHbmOom": (
        "the memory of a TPU is used up: E1000 at the end of the compilation, E0100 when the "
        "program runs",
        _MEMORY,
    ),
    r"\bE0101\b|RuntimeProgramAllocationFailure": (
        "the code of a program does not fit into the memory of a TPU beside what is there already",
        _MEMORY,
    ),
    r"\bE0102\b|RuntimeProgramInputMismatch": (
        "a program is called with arguments of another number, size or layout than it was "
        "compiled for",
        "compare entry_computation_layout in the dump with the arguments of the call",
    ),
    r"\bE0200\b|RuntimeUnexpectedCoreHalt": (
        "a core of a TPU halted: a kernel read or wrote out of bounds, or the hardware failed",
        _KERNEL,
    ),
    r"\bE1200\b|CompileTimeHostOffloadOutputLocationMismatch": (
        "host offloading: a result is in host memory and the program says device memory, or the "
        "reverse",
        "hlo-lint check --select memory DUMP, and S(5) in entry_computation_layout",
    ),
    r"\bE200[123]\b|CompileTimeMosaic\w+": (
        "Mosaic, the compiler of Pallas kernels on a TPU, refuses a kernel: an element type of a "
        "matmul (E2001), blocks that do not fit the tiling (E2002), an address that is not proven "
        "to be aligned (E2003)",
        _KERNEL,
    ),
    r"\bE300[01]\b|CompileTimeSparseCore\w+": (
        "the SparseCore of a TPU: its memory is used up (E3000), or the number of replicas does "
        "not fit (E3001)",
        "hlo-lint check DUMP",
    ),
    "Shared memory size limit exceeded|uses too much shared data": (
        "a kernel needs more shared memory than a block of the chip has: a tile of a Pallas or "
        "Triton kernel is too large, or a fusion holds too much at once",
        "hlo-lint check DUMP, then smaller blocks in the kernel",
    ),
    r"memory space vmem|scoped.vmem|[Ss]coped [Vv]mem|\bE1001\b|ScopedVmemOom": (
        "an operation or a Pallas kernel needs more on-chip memory (vmem) of the TPU than it may "
        "use; the memory of the device is not full",
        "hlo-lint payload DUMP CALL, if it is a kernel: smaller blocks, or "
        "--xla_tpu_scoped_vmem_limit_kib",
    ),
    "Failed to verify layout for Mosaic kernel operand": (
        "a Mosaic kernel takes its operand in another layout than the custom call has: compare its "
        "operand_layout_constraints with the kernel",
        "hlo-lint payload DUMP CALL",
    ),
    "Mosaic failed to compile": (
        "Mosaic, the compiler of Pallas kernels on a TPU, refuses a kernel",
        _KERNEL,
    ),
    "Autotuning failed|No valid config found|No supported configs?|WRONG RESULTS|"
    "Results do not match the reference|Results mismatch between different": (
        "the autotuner found no kernel that compiles and gives the right result for a fusion or "
        "call, or measured a kernel with another result",
        "hlo-lint check --select autotuning DUMP; --xla_gpu_autotune_level=0 switches it off",
    ),
    "triton_fusion_numerics_verifier": (
        "XLA compared a Triton fusion with the same fusion of the other emitter, and they differ",
        "hlo-lint validate DUMP",
    ),
    "is statically false": (
        "a YNN kernel (slinky) of XLA:CPU: the HLO may be right; seen in jax 0.10.0 and 0.10.1",
        "hlo-lint validate --kernels DUMP",
    ),
    "Involuntary full rematerialization|[Ii]nvoluntary full remat": (
        "the SPMD partitioner (pass spmd-partitioning) goes from a sharding to another by way of "
        "the whole array on each device: slow, and large",
        "hlo-lint check DUMP, then a sharding constraint where the two shardings meet",
    ),
    "Can't reduce memory use below|rematerialization.{0,60}only reduced": (
        "rematerialization could not bring the memory of the program below the limit",
        _MEMORY,
    ),
    "Very slow compile|slow_operation_alarm|Constant folding an instruction is taking": (
        "a compilation takes long; the result is still right",
        "hlo-lint passes DUMP",
    ),
    "donated buffers were not usable": (
        "a donated argument has the shape, layout or sharding of no result, so it is not reused",
        "hlo-lint check --select copied-donation DUMP",
    ),
    r"'scf\.\w+' op|scf\.yield": (
        "an emitter wrote MLIR that MLIR refuses: the HLO of the fusion may be right; seen in "
        "jax 0.10.2 on a GPU for a fusion of a concatenate",
        "hlo-lint capture --target h200 --jax A --jax B",
    ),
    "[Ff]ailed to .{0,40}CUDA graph|command buffer.{0,40}failed": (
        "a command buffer (CUDA graph) of XLA:GPU",
        "hlo-lint check DUMP; --xla_gpu_enable_command_buffer= (empty) switches them off",
    ),
    "prepare to abort the process to avoid infinite hangs|HangWatchdog": (
        "a run makes no progress: the watchdog of executions ends the process",
        "hlo-lint ranks DUMPS",
    ),
    r"(?i)megascale.{0,200}(?:hang|error|time|fail|stuck|deadline)": (
        "Megascale, the transfers between slices of TPUs",
        "hlo-lint ranks DUMPS",
    ),
    "localAxisSize|Shardy.{0,40}failed": (
        "Shardy: the mesh and a sharding of the program do not fit",
        "hlo-lint check DUMP, then the sizes of the axes of the mesh",
    ),
    "ptxas (?:error|fatal|exited)": (
        "ptxas, the assembler of NVIDIA's GPUs, refuses a kernel",
        "hlo-lint check DUMP",
    ),
    r"\b[NR]CCL (?:operation|WARN|error|fail)|\bnccl\w*(?:Error|Aborted)\b|"
    r"[Gg]loo.{0,60}(?:[Tt]imed out|fail|[Cc]onnection)": (
        "the library of collectives: as a rule a process is lost, late, or runs another program",
        "hlo-lint ranks DUMPS",
    ),
    r"CUDNN_STATUS_\w+": (
        "cuDNN refuses a convolution, norm or attention",
        "hlo-lint check --select autotuning DUMP",
    ),
    r"CUBLAS_STATUS_\w+": (
        "cuBLAS refuses a GEMM",
        "hlo-lint check --select layout,autotuning DUMP",
    ),
    "DNN library initialization failed": (
        "cuDNN does not start: as a rule its version does not fit, or memory is used up",
        "read the lines of the log before it",
    ),
    "CUDA_ERROR_NO_DEVICE|Unable to initialize backend": (
        "no device can be used: the driver, the plugin or the device is missing, and no program "
        "was compiled for it",
        "read the lines of the log before it",
    ),
    "device compute in host memory space|does device compute in host": (
        "an instruction computes on a value in host memory, so it runs on the host",
        "hlo-lint check --select computes-on-host-memory DUMP",
    ),
    "S4/U4 is currently only supported": (
        "the HLO verifier: an instruction takes int4, and only convert may: convert s4 and u4 "
        "before it",
        "hlo-lint check --select verifier DUMP",
    ),
    r"'(?:mhlo|stablehlo|chlo)\.\w+' op": (
        "the verifier of StableHLO refuses an operation before XLA's first pass: the framework, or "
        "the translation from HLO, wrote it",
        "hlo-lint check FILE, if it came from HLO",
    ),
    "common_utilization <= producer_output_utilization": (
        "rounding in the cost model of fusion: the program is right",
        "--xla_disable_hlo_passes=priority-fusion gets past it; hlo-lint capture --jax A --jax B",
    ),
    "TMA descriptor": (
        "the driver refuses a tensor descriptor",
        "hlo-lint check --select tma DUMP",
    ),
    "CACHE MISS": (
        "jax.jit traces a function again",
        "hlo-lint diff A B, the modules before optimizations of two of its compiles",
    ),
    "[Oo]ut of memory|CUDA_ERROR_OUT_OF_MEMORY": (
        "memory is used up, as a rule that of the device",
        _MEMORY,
    ),
}
"""The meaning of messages that say more than their component, and a command to run, by pattern;
the first match counts."""

GENERAL = {
    "RESOURCE_EXHAUSTED": (
        "memory or another resource is used up, as a rule the memory of the device",
        _MEMORY,
    ),
    "may be stuck|is stuck|[Rr]endezvous.*(?:timed out|[Tt]erminat)": (
        "processes or devices wait for each other in a collective",
        "hlo-lint ranks DUMPS",
    ),
    r"(?<![\w-])[Nn]a[Nn](?![\w-])": ("the program makes a NaN", "hlo-lint run --first-nan DUMP"),
    "CUDA_ERROR_ILLEGAL_ADDRESS|illegal memory access|CUDA_ERROR_MISALIGNED": (
        "a kernel reads or writes where it must not",
        "hlo-lint check --select memory,autotuning DUMP",
    ),
    r"hlo_verifier\.cc|Verification failed": (
        "XLA's verifier refuses the module",
        "hlo-lint check --select verifier DUMP",
    ),
    "[Ss]egmentation fault|SIGSEGV|SIGABRT": (
        "the process died in native code: the log does not tell where",
        "hlo-lint check DUMP names the pass if it was compiling; hlo-lint exec python PROGRAM.py",
    ),
    "RET_CHECK failure|Check failed:": (
        "a part of XLA got a program that it does not support",
        "hlo-lint check DUMP",
    ),
}
"""The same for messages of no known component."""


class XlaMessage(NamedTuple):
    """A part of a message of XLA."""

    file: str
    """The source file that it names, or ""."""
    text: str

    def is_in(self, log: str) -> bool:
        """True if a log contains the message."""
        parts = [re.escape(part.strip()) for part in self.text.split("…")]
        return re.search(".{0,400}?".join(parts), log) is not None

    def has(self, part: str) -> bool:
        """True if the message contains a part that a user typed."""
        return len(part) >= SHORTEST and part.lower() in self.text.lower()


_split_message = late(r"(?:(\w+\.cc): )?(.*)").fullmatch
_split_failure = late(r".*?\((\w+\.cc)\) (.*)|\w+: (.*)").fullmatch
_source_files = late(r"\b(\w+\.cc)\b").findall


def messages_of(rule: Rule) -> Iterator[XlaMessage]:
    """The messages of a rule, and of the pass whose demand it checks."""
    for written in rule.messages:
        file, text = _split_message(written).groups("")  # type: ignore[union-attr]
        yield XlaMessage(file, text)
    if rule.precondition is not None:
        match = _split_failure(rule.precondition.failure)
        assert match is not None
        file, text, bare = match.groups("")
        for part in (text or bare).split(", or "):
            yield XlaMessage(file, part)


def rules_for(log: str, rules: Sequence[Rule]) -> list[Rule]:
    """The rules for the messages in a log, or for a part of a message."""
    log = " ".join(log.split())
    messages = [(rule, message) for rule in rules for message in messages_of(rule)]
    return list(
        dict.fromkeys(rule for rule, message in messages if message.is_in(log) or message.has(log))
    )


def rules_for_files(log: str, rules: Sequence[Rule]) -> list[Rule]:
    """The rules with messages from the source files that a log names."""
    files = set(_source_files(log))
    messages = [(rule, message) for rule in rules for message in messages_of(rule)]
    return list(dict.fromkeys(rule for rule, message in messages if message.file in files))


def command_for(
    log: str, answers: Mapping[str, tuple[str, str]] = KNOWN | GENERAL
) -> tuple[str, str] | None:
    """The meaning of a log without messages of rules, and a command to run."""
    log = " ".join(log.split())
    return next((answer for pattern, answer in answers.items() if re.search(pattern, log)), None)


def origin(sources: Sequence[MessageSource]) -> str:
    """The lines that say where a message comes from: component, pass, time, fault, next commands.

    Sources of a single component share their lines; several say that it may be each of them.
    """
    lines = []
    for component in dict.fromkeys(source.component for source in sources):
        of = [source for source in sources if source.component == component]
        passes = list(dict.fromkeys(name for source in of for name in source.passes))
        # A bare name may be of another folder in another release.
        files = (source.quoted or source.path.removeprefix("xla/") for source in of)
        names = ", ".join(dict.fromkeys(files))
        how = "" if of[0].quoted else ", by its words"
        lines.append(f"from: {component.name} ({names}{how})")
        if passes:
            lines.append(f"  pass: {', '.join(passes)}")
        elif callers := list(dict.fromkeys(name for source in of for name in source.callers)):
            counted = f"{callers[0]}, see the dump" if callers[0].isdigit() else ", ".join(callers)
            lines.append(f"  passes that call it: {counted}")
        elif component.passes == ():
            lines.append("  pass: none, it is outside the passes")
        lines.append(f"  runs: {component.when}")
        if kinds := {KINDS[source.kind] for source in of if source.kind} - {""}:
            lines += [f"  fault: {kind}" for kind in sorted(kinds)]
        lines += [f"  next: {command}" for command in component.next]
        off = component.off
        if passes and component.optional:
            off = f"--xla_disable_hlo_passes={','.join(passes)}"
        if off:
            lines.append(f"  off: {off}")
    if len({source.component for source in sources}) > 1:
        lines.insert(0, "this may come from each of these:")
    return "\n".join(lines) + "\n"
