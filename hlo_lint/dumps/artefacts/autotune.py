"""Logs or results of the autotuner, of any release: the configurations it tried, or chose.

    new log      AllRawConfigProfiles   instruction_profiles { hlo_fingerprint config_profiles {…} }
    old log      AutotuningLogs         logs { instr {…} results { run_time {…} triton {…} } }
    new results  a cache                entries { key { target {…} } value { optimal_config {…} } }
    old results  AutotuneResults        results { device hlo result { triton {…} } version }

Logs come from `--xla_gpu_dump_autotune_logs_to` (`xla/backends/autotuner/autotuner.cc`) under a
name that the user chooses, and each module appends its records; results come from
`--xla_gpu_dump_autotune_results_to`, and a dump has them as `*.autotune_results.pbtxt`. This reader
spells configurations of all four alike, so that runs can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hlo_lint.dumps.artefacts.records import Artefact
from hlo_lint.hlo.text_format import Message, outer_fields
from hlo_lint.text.source import ParseError, Span

_instruction_name = re.compile(r"(?:ROOT )?%?([^\s=]+) =").match
_ANY = "[type.googleapis.com/"


class Candidate(NamedTuple):
    """A configuration that was tried on an instruction."""

    backend: str
    """The name in new releases: `TRITON`, `CUBLASLT_FISSION`, `NATIVE_EMITTER`."""
    config: str
    """The configuration, on one line: `triton { block_m: 64 block_n: 32 … }`."""
    nanoseconds: int
    """The time of the timed run; 0 without a timed run."""
    scratch_bytes: int
    failed: bool
    """True if it has no valid run."""
    span: Span


class TunedInstruction(NamedTuple):
    """An instruction of a log with all configurations that were tried on it."""

    name: str
    """Empty if the log lacks it."""
    fingerprint: str
    """`hlo_fingerprint`; empty in old logs."""
    module: int
    """The number of its module in the log, from 1; 0 in old logs."""
    device: str
    candidates: tuple[Candidate, ...]
    """In the order of the trials; candidates that failed to compile are last."""
    span: Span

    @property
    def timed(self) -> tuple[Candidate, ...]:
        """The candidates with a valid run."""
        return tuple(candidate for candidate in self.candidates if not candidate.failed)

    @property
    def fastest(self) -> Candidate | None:
        """The first candidate with the shortest run; None if all failed.

        XLA takes it, unless it is configured to prefer less scratch memory among nearly equal times
        (`xla/backends/autotuner/config_selector.cc`).
        """
        return min(self.timed, key=lambda candidate: candidate.nanoseconds, default=None)


class ChosenConfig(NamedTuple):
    """The winner in an entry of a results file."""

    fingerprint: str
    """`hlo_fingerprint`; empty in old results."""
    hlo: str
    """The canonical text that is the key in old results; else empty."""
    backend: str
    config: str
    span: Span


@dataclass(frozen=True, kw_only=True)
class Autotuning(Artefact):
    """A log, or results, or both in a file."""

    instructions: tuple[TunedInstruction, ...]
    """The entries of a log."""
    results: tuple[ChosenConfig, ...]
    """The entries of a results file."""


def read_autotuning(text: str, path: Path | None = None) -> Autotuning:
    """Read a log or results, old or new; unreadable parts are in `problems`."""
    problems: list[ParseError] = []
    instructions: list[TunedInstruction] = []
    results: list[ChosenConfig] = []
    module, device = 0, ""
    for field in outer_fields(text, problems):
        if field.name == "device" and isinstance(field.value, str):
            # The records of each module begin with the device.
            module, device = module + 1, field.value
        elif not isinstance(field.value, Message):
            continue  # such as `version: 3`
        elif field.name == "instruction_profiles":
            instructions.append(_profiled(field.value, module, device, field.span))
        elif field.name == "logs":
            instructions.append(_logged(field.value, field.span))
        elif field.name == "entries":
            target = field.value.message("key").message("target")
            config = _new_config(field.value.message("value").message("optimal_config"))
            results.append(ChosenConfig(target.text("hlo_fingerprint"), "", *config, field.span))
        elif field.name == "results":
            hlo = field.value.text("hlo")  # a fusion is written as its body, in braces
            config = _old_config(field.value.message("result"), hlo.startswith("{"))
            results.append(ChosenConfig("", hlo, *config, field.span))
        elif field.name != "per_backend_versions":
            problems.append(ParseError(f"unknown field: {field.name}", *field.span))
    return Autotuning(
        path=path,
        text=text,
        problems=tuple(problems),
        instructions=tuple(instructions),
        results=tuple(results),
    )


# New releases


def _profiled(profile: Message, module: int, device: str, span: Span) -> TunedInstruction:
    name = _instruction_name(profile.text("hlo_text"))
    candidates = tuple(
        _candidate(*_new_config(tried.message("config")), tried, tried, place)
        for trials in ("config_profiles", "failed_configs")
        for tried, place in _messages(profile, trials)
    )
    fingerprint = profile.text("hlo_fingerprint")
    return TunedInstruction(name[1] if name else "", fingerprint, module, device, candidates, span)


def _new_config(config: Message) -> tuple[str, str]:
    """The backend's name, and its configuration."""
    return config.text("backend"), str(config.message("backend_config"))


def _messages(message: Message, name: str) -> Iterator[tuple[Message, Span]]:
    for field in message.fields:
        if field.name == name and isinstance(field.value, Message):
            yield field.value, field.span


def _candidate(backend: str, config: str, run: Message, failure: Message, span: Span) -> Candidate:
    """A trial; in new logs one message holds its run and its failure, and is given twice."""
    time = run.message("run_time")
    # No run takes 0 ns: proto3 leaves out the field without a timed run.
    nanoseconds = time.number("seconds") * 10**9 + time.number("nanos")
    failed = any(map(failure.text, ("kind", "message", "msg"))) or nanoseconds == 0
    return Candidate(backend, config, nanoseconds, run.number("scratch_bytes"), failed, span)


# Old releases


def _logged(log: Message, span: Span) -> TunedInstruction:
    instruction = _of_any_type(log.message("instr"))
    # A log whose `instr` is not expanded is taken for that of a fusion.
    name = log.text("fusion_name") or instruction.text("name")
    is_fusion = instruction.text("opcode", "fusion") == "fusion"
    candidates = tuple(
        _candidate(*_old_config(result, is_fusion), result, result.message("failure"), place)
        for result, place in _messages(log, "results")
    )
    return TunedInstruction(name, "", 0, "", candidates, span)


def _of_any_type(message: Message) -> Message:
    """The content of a `google.protobuf.Any`, if it is expanded."""
    for field in message.fields:
        if field.name.startswith(_ANY) and isinstance(field.value, Message):
            return field.value
    return message


def _old_config(result: Message, is_fusion: bool) -> tuple[str, str]:
    """The backend's name in new releases, and its configuration.

    Follows `GetConfig` of XLA's `legacy_cache.cc`: `gemm` on a fusion means that the fusion is
    split and its dot becomes a cuBLASLt call.
    """
    for field in result.fields:
        if not isinstance(field.value, Message):
            continue
        match field.name:
            case "other":
                return field.value.text("name"), str(_of_any_type(field.value.message("config")))
            case "triton":
                return "TRITON", str(field)
            case "gemm":
                return ("CUBLASLT_FISSION" if is_fusion else "CUBLASLT"), str(field)
            case "algorithm":
                return "CUDNN", str(field)
    return "", ""
