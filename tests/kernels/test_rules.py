"""Rules on what custom calls carry, on dumps that our own program made."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import hlo_lint
from hlo_lint import Instruction
from hlo_lint.analysis.rewrite import Rewrite
from hlo_lint.hlo.attributes.plain import Alias
from hlo_lint.kernels.calls import triton_calls
from hlo_lint.kernels.custom_calls import decode_payload, encode_payload
from hlo_lint.kernels.custom_calls.triton import InputOutputAlias, with_aliases
from tests.conftest import FIXTURES

PAYLOADS = FIXTURES / "payloads"
LIST = "error autotuned-aliases-differ"
EARLY = "error autotuning-runs-early"
COMPUTED = "warning autotuning-runs-early"

FOUND = {
    "add_none_ffi": [LIST, COMPUTED], "add_none_legacy": [LIST],
    "add_parameter_wrong_ffi": [LIST, EARLY], "add_right_ffi": [COMPUTED], "add_right_legacy": [],
    "add_wrong_ffi": [LIST, COMPUTED], "add_wrong_legacy": [LIST], "add_wrong_size_legacy": [LIST],
    "descriptor_degenerate_ffi": ["error tma-descriptor-refused"],
    "descriptor_degenerate_legacy": ["error tma-descriptor-refused"], "descriptor_dense_ffi": [],
    "donated_ffi": [EARLY, COMPUTED], "donated_legacy": [], "mosaic": [], "pallas_triton": [],
    "shared_with_operand_legacy": ["error custom-call-overlaps-operand"],
    "partial_ffi": ["error kernel-misses-result"],
    "sliced_ffi": ["error alias-lost-in-fusion", "error operand-misaligned"],
}  # fmt: skip


def found_in(path: Path) -> list[str]:
    """The notes that count; if MLIR's bytecode can be read depends on the jax that is installed."""
    findings = hlo_lint.lint(path).findings
    return sorted(
        f"{f.severity.value} {f.rule}" for f in findings if f.severity is not hlo_lint.Severity.INFO
    )


@pytest.mark.slow
@pytest.mark.parametrize(("case", "found"), FOUND.items())
def test_each_payload_is_judged(case: str, found: list[str]) -> None:
    assert found_in(PAYLOADS / case) == sorted(found)


def test_every_payload_is_in_the_table() -> None:
    assert {path.name for path in PAYLOADS.iterdir() if path.is_dir()} == FOUND.keys()


FIXABLE = [case for case, found in FOUND.items() if LIST in found or "error tma" in str(found)]


def carrier_in(text: str) -> Instruction:
    """The one instruction of a text that carries a payload."""
    (call,) = filter(decode_payload, hlo_lint.parse(text).instructions())
    return call


def test_a_result_in_a_donated_parameter_gets_memory_of_its_own() -> None:
    assert not any(file.edits for file in hlo_lint.fix(PAYLOADS / "donated_ffi").files)
    fixed = hlo_lint.fix(PAYLOADS / "donated_ffi", unsafe_fixes=True)  # it costs a fill
    (file,) = (file for file in fixed.files if file.edits)
    call = carrier_in(file.after)
    last = len(call.operands) - 1
    assert call.attribute("output_to_operand_aliasing") == (Alias((), last, ()),)
    assert found_in_text(file.after) == []
    assert any("an edited module has none" in entry.reason for entry in fixed.remaining.skipped)


def test_an_assignment_from_before_a_fix_repeats_no_error(tmp_path: Path) -> None:
    shutil.copytree(PAYLOADS / "donated_ffi", tmp_path / "dump")
    (file,) = (f for f in hlo_lint.fix(tmp_path, unsafe_fixes=True).files if f.edits)
    (path,) = (tmp_path / "dump").glob("*_gpu_after_optimizations.txt")
    path.write_text(file.after)
    assert found_in(tmp_path) == [COMPUTED]


def found_in_text(text: str) -> list[str]:
    return [f.rule for f in hlo_lint.lint(text).findings]


@pytest.mark.parametrize("case", FIXABLE)
def test_a_mended_payload_is_clean_and_nothing_else_changes(case: str) -> None:
    fixed = hlo_lint.fix(PAYLOADS / case)
    (file,) = (file for file in fixed.files if file.edits)
    assert not [f for f in fixed.findings if f.fix]
    (edit,) = file.edits
    start, end = edit.span
    assert file.after == file.before[:start] + edit.text + file.before[end:]
    call = carrier_in(file.after)
    assert call.attributes["backend_config"] == edit.text


SIZE = 4096
"""Bytes of `y`, operand 1 of two, which the result is to lie in."""


@pytest.mark.parametrize(
    ("pairs", "found"),
    [
        ([(1, 2, SIZE)], []),
        ([(2, 1, SIZE)], []),  # the two buffers are one when the program runs
        ([(1, 1, SIZE)], []), ([(2, 2, SIZE)], []), ([(0, 1, SIZE), (1, 2, 2 * SIZE)], []),
        ([(1, 2, SIZE - 4)], ["autotuned-aliases-differ"]),
        ([(0, 2, SIZE)], ["autotuned-aliases-differ"]),
        ([(1, 2, SIZE), (1, 3, SIZE)], ["autotuned-aliases-differ"]),  # there is no buffer 3
    ],
)  # fmt: skip
def test_equal_addresses_are_saved(pairs: list[tuple[int, int, int]], found: list[str]) -> None:
    (path,) = (PAYLOADS / "add_right_legacy").glob("*_gpu_after_optimizations.txt")
    module = hlo_lint.parse(path.read_text())
    ((call, payload),) = triton_calls(module)
    aliases = [InputOutputAlias(*pair) for pair in pairs]
    rewrite = Rewrite(module)
    changed = encode_payload(call, with_aliases(payload, aliases))
    rewrite.set_attribute(call, "backend_config", changed)
    assert found_in_text(rewrite.text()) == found


def test_a_donated_parameter_that_nothing_reads_may_be_overwritten(tmp_path: Path) -> None:
    shutil.copytree(PAYLOADS / "donated_ffi", tmp_path / "dump")
    (path,) = (tmp_path / "dump").glob("*_gpu_after_optimizations.txt")
    text = path.read_text()
    (name,) = re.findall(r"%(\S+) = f32\[\S+ parameter\(0\)", text.partition("ENTRY")[2])
    fed = re.sub(rf"(?<=\()%{re.escape(name)}(?=[,)])", "%filled", text)
    line = "  %zero = f32[] constant(0)\n  %filled = f32[1024]{0} broadcast(%zero), dimensions={}\n"
    path.write_text(re.sub(r"(?m)^(?=.*custom-call)", lambda _: line, fed, count=1))
    assert EARLY in found_in(PAYLOADS / "donated_ffi")
    assert EARLY not in found_in(tmp_path / "dump")


def test_a_mended_list_is_the_declared_one() -> None:
    fixed = hlo_lint.fix(PAYLOADS / "add_wrong_legacy")
    (after,) = (file.after for file in fixed.files if file.edits)
    right = next((PAYLOADS / "add_right_legacy").glob("*_gpu_after_optimizations.txt"))
    carried = [
        [
            decode_payload(i)
            for i in hlo_lint.parse(text).instructions()
            if i.opcode == "custom-call"
        ]
        for text in (after, right.read_text())
    ]
    assert carried[0] == carried[1]


def test_a_log_of_tensor_descriptors_is_read_as_one() -> None:
    findings = hlo_lint.lint(FIXTURES / "tma" / "cutlass_size_1_stride.txt").findings
    assert len(findings) == 3  # one for each descriptor that the log prints
    for finding in findings:
        assert finding.rule == "tma-descriptor-refused"
        assert "global_strides[1] is 2, must be a multiple of 16" in finding.message
        assert finding.excerpt[finding.column - 1 : finding.end_column - 1] == "2"


def test_its_repaired_twin_is_clean() -> None:
    repaired = FIXTURES / "tma" / "cutlass_size_1_stride_repaired.txt"
    assert hlo_lint.lint(repaired).findings == ()


def test_a_line_of_a_buffer_assignment_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    shutil.copytree(PAYLOADS / "donated_ffi", tmp_path / "dump")
    (assignment,) = (tmp_path / "dump").glob("*-buffer-assignment.txt")
    assignment.write_text(assignment.read_text() + "what is this\n")
    (unread,) = (f for f in hlo_lint.lint(tmp_path).findings if f.rule == "unreadable-text")
    assert (unread.path, unread.excerpt) == (str(assignment), "what is this")
