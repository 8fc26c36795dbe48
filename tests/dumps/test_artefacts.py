"""The files beside the HLO: each of the fixtures is read whole, damaged ones in part."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from lark import Token, Tree, UnexpectedInput

from hlo_lint.dumps.artefacts import ARTEFACTS, Artefact, ArtefactReader, read_artefact, reader_for
from hlo_lint.dumps.artefacts.autotune import Autotuning, read_autotuning
from hlo_lint.dumps.artefacts.buffer_assignment import (
    AllocationSlice,
    BufferAssignment,
    read_buffer_assignment,
)
from hlo_lint.dumps.artefacts.buffer_values import BufferValues, read_buffer_values
from hlo_lint.hlo.grammar import grammar_parser, terminals, trees
from hlo_lint.hlo.text_format import MAX_DEPTH, read_text_proto
from hlo_lint.text.source import Position, decode
from tests.conftest import DUMPS, present
from tests.mutations import mutate

FILES = [path for path in sorted(DUMPS.rglob("*")) if path.is_file() and reader_for(path.name)]
ATTENTION = DUMPS / "gpu-jax0.11.2" / "attention"
MUTANTS = 12
"""Of each file."""


def files(ending: str) -> list[Path]:
    found = [path for path in FILES if path.name.endswith(ending)]
    assert found, ending
    return found


def _reader(ending: str) -> ArtefactReader:
    return present(reader_for(ending))


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def mutants(path: Path) -> Iterator[str]:
    data, others = path.read_bytes(), [each.read_bytes() for each in FILES[::7]]
    chance = random.Random(name_of(path))
    for _ in range(MUTANTS):
        yield decode(mutate(data, others, chance))


# ---- every file


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_as_xla_wrote_it_has_no_trouble(path: Path) -> None:
    artefact = present(read_artefact(path))
    assert artefact.problems == ()
    assert artefact.path == path


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_damaged_file_is_read_in_part(path: Path) -> None:
    for text in mutants(path):
        artefact = _reader(path.name)(text, path)
        for each in artefact.problems:
            assert 0 <= each.start <= each.end <= len(text)
            assert artefact.lines.position(each.start).line >= 1


@pytest.mark.parametrize("ending", ARTEFACTS)
def test_another_kind_of_file_is_nothing_but_trouble(ending: str) -> None:
    assert _reader(ending)("ENTRY %main {\n\x00}\udcff {{ ]\n", None).problems


@pytest.mark.parametrize("ending", ARTEFACTS)
def test_numbers_without_end_are_no_numbers(ending: str) -> None:
    number = "9" * 5000
    text = decode(files(ending)[0].read_bytes())
    for digit in "12":
        _reader(ending)(text.replace(digit, number), None)


def test_line_ends_of_windows_change_nothing() -> None:
    for ending in ("-buffer-assignment.txt", "-buffer-assignment-values.txt"):
        text, reader = decode(files(ending)[-1].read_bytes()), _reader(ending)
        artefact = reader(text.replace("\n", "\r\n"), None)
        assert artefact.problems == ()
        assert len(records_of(artefact)) == len(records_of(reader(text, None)))


def test_trouble_tells_what_stood_where() -> None:
    text = "BufferAssignment:\nallocation 0: size 4, constant:\n value: <1 a @0>\n"
    assignment = read_buffer_assignment(text)
    (only,) = assignment.problems
    assert only.message == "expected an allocation or a value, found `value: <1 a @0>`"
    assert assignment.lines.position(only.start) == Position(3, 1)


def test_the_name_of_a_file_decides_who_reads_it(tmp_path: Path) -> None:
    assert reader_for("module_0001.jit_f.gpu_target_config.pbtxt") is None
    assert reader_for("module_0001.jit_f.autotune_results.pbtxt") is read_autotuning
    assert read_artefact(ATTENTION / "MANIFEST.json") is None
    log = tmp_path / "mine.textproto"
    log.write_text('device: "d"\nper_backend_versions {\n  key: "A"\n}\n' + NEW_LOG)
    assert isinstance(read_artefact(log), Autotuning)
    log.write_text("compile_portable_executable: true\n")
    assert read_artefact(log) is None


# ---- grammar and reader


Plain = tuple[Any, ...]


def records_of(artefact: Artefact) -> list[Plain]:
    """The result of a reader, as plain values in the order of the text."""
    match artefact:
        case BufferAssignment():
            return [*_allocations(artefact), *_values(artefact.buffer_values)]
        case BufferValues():
            return [*_values(artefact)]
    raise AssertionError(artefact)


def _allocations(assignment: BufferAssignment) -> Iterator[Plain]:
    for each in assignment.allocations:
        yield (each.index, each.size, each.color, each.parameter, each.flags)
        for value in each.values:
            short = (value.id, value.instruction, value.index)
            yield (*short, value.size, value.offset, value.shape)


def _values(values: BufferValues | None) -> Iterator[Plain]:
    for value in values.values if values else ():
        short = (value.id, value.defined_at.instruction, value.defined_at.index)
        positions = tuple((each.instruction, each.index) for each in value.positions)
        uses = tuple((each.instruction, each.operand, each.index) for each in value.uses)
        yield (*short, positions, uses)


def child(tree: Tree[Token], name: str) -> Tree[Token] | None:
    return next((each for each in trees(tree) if each.data == name), None)


def numbers(tree: Tree[Token] | None) -> tuple[int, ...]:
    return tuple(int(each) for each in terminals(tree)) if tree is not None else ()


def first(tree: Tree[Token] | None, default: int | None = None) -> int | None:
    return int(terminals(tree)[0]) if tree is not None else default


def short(tree: Tree[Token]) -> Plain:
    number, name = terminals(tree)
    return (int(number), str(name), numbers(child(tree, "index")))


def assignment_by_grammar(tree: Tree[Token]) -> list[Plain]:
    found: list[Plain] = []
    for part in trees(tree):
        if part.data == "assignment":
            for allocation in trees(part):
                found += _allocation_by_grammar(allocation)
        else:
            found += map(_value_by_grammar, trees(part))
    return found


def _allocation_by_grammar(tree: Tree[Token]) -> Iterator[Plain]:
    yield (
        *numbers(tree),
        first(child(tree, "memory_space"), 0),
        first(child(tree, "parameter")),
        tuple(str(terminals(each)[0]) for each in trees(tree) if each.data == "flag"),
    )
    for each in trees(tree):
        if each.data == "value":
            size, offset, shape = terminals(each)
            yield (*short(trees(each)[0]), int(size), int(offset), str(shape))


def _value_by_grammar(tree: Tree[Token]) -> Plain:
    head, *places = trees(tree)
    positions, uses = [], []
    for place in places:
        index = numbers(child(place, "index"))
        if place.data == "position":
            positions.append((str(terminals(place)[0]), index))
        else:
            name, operand = terminals(place)
            uses.append((str(name), int(operand), index))
    return (*short(head), tuple(positions), tuple(uses))


SPECIFIED = [
    path
    for path in FILES
    if "-buffer-assignment" in path.name and "cpu-jax0.4.20" not in path.parts
]
"""That release has the live ranges in the file of the assignment, which is another grammar's."""


def test_a_release_without_a_blank_before_the_instruction_is_read() -> None:
    (path,) = (DUMPS / "cpu-jax0.4.20").rglob("*-buffer-assignment.txt")
    assignment = read_buffer_assignment(decode(path.read_bytes()))
    assert assignment.problems == ()
    assert present(assignment.buffer_values).values[0].defined_at.instruction == "Arg_0.1"


def by_grammar(text: str) -> list[Plain]:
    return assignment_by_grammar(grammar_parser("buffer_assignment").parse(text))


@pytest.mark.parametrize("path", SPECIFIED, ids=lambda path: path.name)
def test_grammar_and_reader_say_the_same_of_every_line(path: Path) -> None:
    text = decode(path.read_bytes())
    assert records_of(_reader(path.name)(text, None)) == by_grammar(text)


@pytest.mark.slow
def test_what_the_grammar_accepts_of_damaged_files_is_read_without_trouble() -> None:
    accepted = refused = 0
    for path in SPECIFIED:
        for text in mutants(path):
            try:
                expected = by_grammar(text)
            except UnexpectedInput:
                refused += 1
                continue
            artefact = _reader(path.name)(text, None)
            assert artefact.problems == (), text
            assert records_of(artefact) == expected
            accepted += 1
    assert min(accepted, refused) > 20


def test_a_line_out_of_its_alphabet_is_refused_by_grammar_and_reader() -> None:
    for path in SPECIFIED:
        lines = decode(path.read_bytes()).split("\n")
        at = random.Random(name_of(path)).randrange(len(lines))
        text = "\n".join([*lines[:at], "~", *lines[at:]])
        assert _reader(path.name)(text, None).problems
        with pytest.raises(UnexpectedInput):
            by_grammar(text)


# ---- buffers

OLD_ASSIGNMENT = """\
BufferAssignment:
allocation 0: size 1024, parameter 1, shape |f32[16,16]| at ShapeIndex {}:
 value: <77 Arg_1.2 @0> (size=1024,offset=0): f32[16,16]{1,0}
allocation 3: size 20, maybe-live-out:
 value: <20 fusion @0> (size=20,offset=0): f32[5]{0}
 value: <95 while.47{2} (phi) @0> (size=20,offset=0): f32[5]{0}
allocation 4: size 16, output shape is |(f32[], f32[5])|, maybe-live-out:
 value: <81 tuple.93{} @0> (size=16,offset=0): (f32[], f32[5]{0})

Total bytes used: 1060 (1.0KiB)

Used values:
<20 fusion @0>
 positions:
  fusion
  tuple.5 {2}
 uses:
  tuple.5, operand 0
 from instruction: %fusion = f32[5]{0} fusion(f32[5]{0} %p.1), kind=kLoop, calls=%f<77 Arg_1.2 @0>
 positions:
  Arg_1.2
 uses:
  while.47, operand 0 {3}
 from instruction: %Arg_1.2 = f32[16,16]{1,0} parameter(1)<95 while.47{2} (phi) @0>
 positions:
  while.47 {2}
  get-tuple-element.4
 uses:
  (none)
 from instruction: %while.47 = (s32[], f32[5]{0}) while((s32[], f32[5]{0}) %tuple.5)

HloLiveRange (max 9):
  InstructionSequence:
    0:Arg_0.1
    1:copy.12
  BufferLiveRange:
    while.47{2}:1-9
  Live ranges at 1 (peak):
    copy.12: 512 bytes
    arg_tuple.21: 32 bytes
"""
"""As jaxlib 0.4.30 wrote it: one value's instruction and the next value share a line."""


def test_old_releases_write_one_file_for_assignment_values_and_live_ranges() -> None:
    old = read_buffer_assignment(OLD_ASSIGNMENT)
    assert old.problems == ()
    assert old.buffer_values is not None
    assert [value.id for value in old.buffer_values.values] == [20, 77, 95]
    for place in (("get-tuple-element.4", ()), ("tuple.5", (2,))):
        assert [value.slice for value in old.values_of(*place)] == [AllocationSlice(3, 0, 20)]
    for value in old.buffer_values.values:
        assert old.text[value.span.start :].startswith(f"<{value.id} ")
    parameter, scratch, _ = old.allocations
    assert (parameter.parameter, "maybe-live-out" in scratch.flags) == (1, True)
    assert [value.id for value in old.by_index[3].values] == [20, 95]
    text, _, _ = OLD_ASSIGNMENT.partition("HloLiveRange")
    assert records_of(old) == by_grammar(text)


def test_values_of_other_memory_spaces_share_an_allocation() -> None:
    text = (
        "BufferAssignment:\n"
        "allocation 2: size 8, color 5, page 1, preallocated-temp, of-tomorrow:\n"
        " value: <4 a{0,1} @5> (size=8,offset=0): f32[2]{0:S(5)}\n"
        " reused by buffers of a different color:\n"
        "  value: <7 b @0> (color=0)\n"
    )
    assignment = read_buffer_assignment(text)
    assert assignment.problems == ()
    (allocation,) = assignment.allocations
    assert allocation.color == 5
    assert allocation.flags == ("preallocated-temp", "of-tomorrow")
    assert allocation.values[0].index == (0, 1)
    assert [value.id for value in allocation.values] == [4]
    assert records_of(assignment) == by_grammar(text)


def test_every_value_lies_within_its_allocation() -> None:
    for path in files("-buffer-assignment.txt"):
        assignment = read_buffer_assignment(decode(path.read_bytes()))
        assert assignment.values
        for allocation in assignment.allocations:
            whole = AllocationSlice(allocation.index, 0, allocation.size)
            for value in allocation.values:
                assert value.slice.end <= whole.end
                assert value.slice.overlaps(whole) == (value.size > 0)


def test_values_and_assignment_are_of_the_same_values() -> None:
    for path in files("-buffer-assignment.txt"):
        assignment = read_buffer_assignment(decode(path.read_bytes()))
        beside = path.with_name(path.name.replace("assignment.txt", "assignment-values.txt"))
        if not beside.exists():
            continue  # old releases have the values in the same file
        values = read_buffer_values(decode(beside.read_bytes()))
        joined = assignment.with_values(values)
        assert set(assignment.values) == {value.id for value in values.values}
        for value in values.values:
            expected = assignment.values[value.id].slice
            for place in value.positions:
                there = joined.values_of(place.instruction, place.index)
                assert expected in [other.slice for other in there]


def test_slices_overlap_where_a_byte_lies_in_both() -> None:
    slices = [AllocationSlice(*parts) for parts in product((0, 1), range(4), range(4))]
    for one, other in product(slices, slices):
        same = {*range(one.offset, one.end)} & {*range(other.offset, other.end)}
        shares = one.allocation == other.allocation and bool(same)
        assert one.overlaps(other) == shares


# ---- text protos


def test_every_spelling_of_protobuf_is_read() -> None:
    text = (
        "a: 1, b: -2; c: [3, 4] # note }\n"
        'd <e: \'x\' "\\x79\\172" "\\303\\251\\n"> f: {g: true} h: [{i: A}, {}] '
        "[type.googleapis.com/xla.Any] { j: 1.5e+10 k: [] l: ['m', 'n' 'o'] }"
    )
    message, problems = read_text_proto(text)
    assert problems == ()
    assert str(message) == (
        'a: 1 b: -2 c: 3 c: 4 d { e: "xyzé\\n" } f { g: true } h { i: A } h { } '
        '[type.googleapis.com/xla.Any] { j: 1.5e+10 l: "m" l: "no" }'
    )
    assert message.message("d").text("e") == "xyzé\n"
    one, other, *_ = message.fields
    assert [text[slice(*each.span)] for each in (one, other)] == ["a: 1", "b: -2"]


@pytest.mark.parametrize(
    ("text", "read", "says"),
    [
        ("a: 1 } b: 2", "a: 1 b: 2", "expected a field, found `} b: 2`"),
        ("a { b: 1", "a { b: 1 }", "a is never closed"),
        ("a { b: [1, 2 } c: 3", "a { b: 1 b: 2 } c: 3", "expected a field, found `} c: 3`"),
        ("a: 1\nstray words\nb: 2", "a: 1 b: 2", "expected a field, found `stray words`"),
        ('a: "x\nb: 2', "b: 2", 'expected a field, found `a: "x`'),
    ],
)
def test_a_damaged_text_proto_keeps_its_other_fields(text: str, read: str, says: str) -> None:
    message, problems = read_text_proto(text)
    assert str(message) == read
    assert says in [each.message for each in problems]


def test_messages_without_bottom_are_cut_off() -> None:
    message, problems = read_text_proto("a {" * 100_000)
    depth = 0
    while message.fields:
        depth += 1
        message = message.message("a")
    assert depth == MAX_DEPTH
    assert problems


# ---- the autotuner

NEW_LOG = """\
instruction_profiles {
  hlo_fingerprint: "a4e6"
  config_profiles { run_time { nanos: 4256 }
    config { backend: TRITON backend_config { triton { block_m: 64 num_warps: 4 } } } }
  config_profiles {
    config { backend: CUBLASLT_FISSION backend_config { gemm { algorithm: 1 } } }
    run_time { seconds: 1 nanos: 496 } scratch_bytes: 33554432 }
  failed_configs { config { backend: TRITON backend_config { triton { block_m: 16 } } }
    kind: COMPILATION_FAILED message: "RESOURCE_EXHAUSTED: \\"registers\\"" }
  hlo_text: "%gemm_fusion_dot.2 = f32[2]{0} fusion(%p), kind=kCustom"
}
"""

OLD_LOG = """\
logs {
  instr {
    [type.googleapis.com/xla.HloInstructionProto] { name: "gemm_fusion_dot.2" opcode: "fusion" }
  }
  results { run_time { nanos: 4256 } triton { block_m: 64 num_warps: 4 } }
  results { gemm { algorithm: 1 } scratch_bytes: 33554432 run_time { seconds: 1 nanos: 496 } }
  results { run_time { } triton { block_m: 16 }
    failure { kind: COMPILATION_FAILED msg: "RESOURCE_EXHAUSTED: \\"registers\\"" } }
}
"""

NEW_RESULTS = """\
entries {
  key { target { device: "d" hlo_fingerprint: "a4e6" } environment { codegen_version: "c" } }
  value { optimal_backend_version: "v1"
    optimal_config { backend: NATIVE_EMITTER backend_config { native_emitter { } } } }
}
"""

OLD_RESULTS = """\
version: 3
results {
  device: "d"
  hlo: "{\\n  tmp_0 = f16[4]{0} parameter(0)\\n}"
  result { other { name: "NATIVE_EMITTER"
    config { [type.googleapis.com/xla.autotuner.BackendConfig] { native_emitter { } } } } }
  version: 52
}
"""


def test_old_and_new_logs_say_the_same_of_the_same_run() -> None:
    (new,) = read_autotuning(f'device: "d"\n{NEW_LOG}').instructions
    (old,) = read_autotuning(OLD_LOG).instructions
    assert new.name == old.name == "gemm_fusion_dot.2"
    assert (new.fingerprint, new.module, new.device) == ("a4e6", 1, "d")
    for mine, other in zip(new.candidates, old.candidates, strict=True):
        for field in ("backend", "config", "nanoseconds", "scratch_bytes", "failed"):
            assert getattr(mine, field) == getattr(other, field)
    triton, fission, failed = new.candidates
    assert triton.config == "triton { block_m: 64 num_warps: 4 }"
    assert fission.nanoseconds == 1_000_000_496
    assert failed.failed
    assert new.fastest is triton
    assert new.timed == (triton, fission)


def test_old_and_new_results_name_the_winner() -> None:
    new = read_autotuning(NEW_RESULTS)
    old = read_autotuning(OLD_RESULTS)
    assert new.problems == old.problems == ()
    assert new.results[0].fingerprint == "a4e6"
    assert new.results[0].backend == old.results[0].backend == "NATIVE_EMITTER"
    assert new.results[0].config == old.results[0].config == "native_emitter { }"
    assert old.results[0].hlo.startswith("{\n  tmp_0")


def test_modules_that_share_a_log_are_told_apart() -> None:
    log = read_autotuning(f'device: "a"\n{NEW_LOG}device: "b"\n{NEW_LOG}')
    assert [(each.module, each.device) for each in log.instructions] == [(1, "a"), (2, "b")]
    for each in log.instructions:
        assert log.text[each.span.start : each.span.end] == NEW_LOG.strip()


def test_a_log_cut_off_in_a_candidate_keeps_the_others() -> None:
    log = read_autotuning(NEW_LOG[: NEW_LOG.index("run_time { seconds")])
    (instruction,) = log.instructions
    assert log.problems
    assert [each.backend for each in instruction.candidates] == ["TRITON", "CUBLASLT_FISSION"]
    assert instruction.fastest is instruction.candidates[0]
    assert instruction.candidates[1].failed


def test_a_forced_backend_stands_in_the_results_of_the_dump() -> None:
    (path,) = (DUMPS / "gpu-jax0.11.2" / "cublaslt_fission").glob("*.autotune_results.pbtxt")
    (result,) = read_autotuning(decode(path.read_bytes())).results
    assert result.backend == "CUBLASLT_FISSION"
