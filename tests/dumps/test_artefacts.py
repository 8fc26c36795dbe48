"""The files beside the HLO: each of the fixtures is read whole, damaged ones in part."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lark import Token, Tree, UnexpectedInput

from hlo_lint.dumps.artefacts import ARTEFACTS, Artefact, Reader, read_artefact, reader_for
from hlo_lint.dumps.artefacts.autotune import Autotuning, read_autotuning
from hlo_lint.dumps.artefacts.buffer_assignment import (
    AllocationSlice,
    BufferAssignment,
    read_buffer_assignment,
)
from hlo_lint.dumps.artefacts.buffer_values import BufferValues, read_buffer_values
from hlo_lint.dumps.artefacts.config import ModuleConfig, read_config, shape_text
from hlo_lint.dumps.artefacts.live_range import LiveRange, read_live_range
from hlo_lint.dumps.artefacts.memory_report import MemoryReport, read_memory_report
from hlo_lint.dumps.artefacts.text_proto import MAX_DEPTH, read_text_proto
from hlo_lint.dumps.artefacts.thunks import (
    Launch,
    ThunkMetadata,
    ThunkSequence,
    read_thunk_metadata,
    read_thunk_sequence,
)
from hlo_lint.dumps.options import read_debug_options
from hlo_lint.hlo.grammar import load, tokens, trees
from hlo_lint.text.source import Position, decode
from tests.conftest import DUMPS, ROOT
from tests.mutations import mutate

FILES = [path for path in sorted(DUMPS.rglob("*")) if path.is_file() and reader_for(path.name)]
ATTENTION = DUMPS / "gpu-jax0.11.2" / "attention"
FISSION = DUMPS / "gpu-jax0.11.2" / "cublaslt_fission"
MUTANTS = 12
"""Of each file."""


def files(ending: str) -> list[Path]:
    found = [path for path in FILES if path.name.endswith(ending)]
    assert found, ending
    return found


def _reader(ending: str) -> Reader:
    reader = reader_for(ending)
    assert reader is not None
    return reader


def text_of(folder: Path, ending: str) -> str:
    (path,) = folder.glob(f"*{ending}")
    return decode(path.read_bytes())


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
    artefact = read_artefact(path)
    assert artefact is not None
    assert artefact.problems == ()
    assert artefact.path == path


@pytest.mark.parametrize("ending", ARTEFACTS)
def test_each_kind_of_file_is_among_the_fixtures(ending: str) -> None:
    assert files(ending)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_damaged_file_is_read_in_part(path: Path) -> None:
    reader = reader_for(path.name)
    assert reader is not None
    for text in mutants(path):
        artefact = reader(text, path)
        for each in artefact.problems:
            assert 0 <= each.start <= each.end <= len(text)
            assert artefact.lines.position(each.start).line >= 1


@pytest.mark.parametrize("ending", ARTEFACTS)
def test_another_kind_of_file_is_nothing_but_trouble(ending: str) -> None:
    artefact = _reader(ending)("ENTRY %main {\n\x00}\udcff {{ ]\n", None)
    assert artefact.problems


@pytest.mark.parametrize("ending", ARTEFACTS)
def test_numbers_without_end_are_no_numbers(ending: str) -> None:
    number = "9" * 5000
    text = decode(files(ending)[0].read_bytes())
    for digit in "12":
        _reader(ending)(text.replace(digit, number), None)


def test_line_ends_of_windows_change_nothing() -> None:
    for ending in ("-buffer-assignment.txt", "-live-range.txt", ".thunk_sequence.txt"):
        text = decode(files(ending)[-1].read_bytes())
        artefact = _reader(ending)(text.replace("\n", "\r\n"), None)
        assert artefact.problems == ()
        assert len(records_of(artefact)) == len(records_of(_reader(ending)(text, None)))


def test_trouble_tells_what_stood_where() -> None:
    assignment = read_buffer_assignment(
        "BufferAssignment:\nallocation 0: size 4, constant:\n value: <1 a @0>\n"
    )
    (only,) = assignment.problems
    assert only.message == "expected an allocation or a value, found `value: <1 a @0>`"
    assert assignment.lines.position(only.start) == Position(3, 1)


def test_the_name_of_a_file_decides_who_reads_it(tmp_path: Path) -> None:
    assert reader_for("module_0001.jit_f.gpu_target_config.pbtxt") is None
    assert reader_for("module_0001.jit_f.config.pbtxt") is read_config
    assert read_artefact(ATTENTION / "MANIFEST.json") is None
    log = tmp_path / "mine.textproto"
    log.write_text('device: "d"\nper_backend_versions {\n  key: "A"\n}\n' + NEW_LOG)
    assert isinstance(read_artefact(log), Autotuning)
    log.write_text("compile_portable_executable: true\n")
    assert read_artefact(log) is None


def test_nothing_here_is_imported_with_the_package() -> None:
    code = "import hlo_lint, sys; print([m for m in sys.modules if 'artefacts' in m])"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ran.stdout == "[]\n", ran.stderr


# ---- grammar and reader


Plain = tuple[Any, ...]


def records_of(artefact: Artefact) -> list[Plain]:
    """The result of a reader, as plain values in the order of the text."""
    match artefact:
        case BufferAssignment():
            return [*_allocations(artefact), *_values(artefact.buffer_values)]
        case BufferValues():
            return _values(artefact)
        case LiveRange():
            return _live(artefact)
        case MemoryReport():
            return [
                (s.name, s.color, s.total_bytes)
                if allocation is None
                else (allocation.not_shown, *(_slice(each) for each in allocation.slices))
                for s in artefact.spaces
                for allocation in (None, *s.allocations)
            ]
        case ThunkSequence():
            return [
                (
                    thunk.id,
                    thunk.kind,
                    thunk.prev and (thunk.prev.id, thunk.prev.distance),
                    thunk.next and (thunk.next.id, thunk.next.distance),
                    thunk.description,
                )
                for thunk in artefact.thunks
            ]
    raise AssertionError(artefact)


def _allocations(assignment: BufferAssignment) -> Iterator[Plain]:
    for each in assignment.allocations:
        parameter = (each.parameter, each.parameter_shape, each.parameter_index)
        yield (
            each.index,
            each.size,
            each.color,
            each.page,
            None if each.parameter is None else parameter,
            each.output_shape,
            each.flags,
        )
        for value in each.values:
            short = (value.id, value.instruction, value.index, value.is_phi, value.color)
            yield (*short, value.size, value.offset, value.shape)
        for other in each.reused_by:
            yield (other.id, other.instruction, other.index, other.color)


def _values(values: BufferValues | None) -> list[Plain]:
    if values is None:
        return []
    found: list[Plain] = [(values.total_bytes,)] if values.total_bytes is not None else []
    for value in values.values:
        place = value.defined_at
        short = (value.id, place.instruction, place.index, value.is_phi, value.color)
        positions = tuple((each.instruction, each.index) for each in value.positions)
        uses = tuple((each.instruction, each.operand, each.index) for each in value.uses)
        found.append((*short, positions, uses, value.instruction_text))
    return found


def _live(live: LiveRange) -> list[Plain]:
    found: list[Plain] = [(live.is_available, live.length, live.peak_time, live.peak_bytes)]
    found += [(each.time, each.name) for each in live.sequence]
    found += [(each.instruction, each.index, each.start, each.end) for each in live.ranges]
    found += [(e.instruction, e.index, e.size, e.cumulative) for e in live.peak]
    for each in live.peak_frames:
        numbers = (each.percent, each.total, each.current, each.remaining)
        found.append((each.depth, each.name, *numbers))
    return found


def _slice(each: Any) -> Plain:
    return (each.cumulative, each.percent, each.size, each.offset, each.used_by, each.shapes)


def child(tree: Tree[Token], name: str) -> Tree[Token] | None:
    return next((each for each in trees(tree) if each.data == name), None)


def numbers(tree: Tree[Token] | None) -> tuple[int, ...]:
    return tuple(int(each) for each in tokens(tree)) if tree is not None else ()


def first(tree: Tree[Token] | None, default: int | None = None) -> int | None:
    return int(tokens(tree)[0]) if tree is not None else default


def short(tree: Tree[Token]) -> Plain:
    number, name = tokens(tree)
    index, phi = numbers(child(tree, "index")), child(tree, "phi") is not None
    return (int(number), str(name), index, phi, first(child(tree, "color"), 0))


def assignment_by_grammar(tree: Tree[Token]) -> list[Plain]:
    found: list[Plain] = []
    for part in trees(tree):
        if part.data == "assignment":
            for allocation in trees(part):
                found += _allocation_by_grammar(allocation)
        else:
            found.append((int(tokens(part)[0]),))
            found += map(_value_by_grammar, trees(part))
    return found


def _allocation_by_grammar(tree: Tree[Token]) -> Iterator[Plain]:
    parameter, output = child(tree, "parameter"), child(tree, "output")
    yield (
        *numbers(tree),
        first(child(tree, "memory_space"), 0),
        first(child(tree, "page")),
        parameter
        and (first(parameter), str(tokens(parameter)[1]), numbers(child(parameter, "index"))),
        str(tokens(output)[0]) if output else "",
        tuple(str(tokens(each)[0]) for each in trees(tree) if each.data == "flag"),
    )
    for each in trees(tree):
        if each.data == "value":
            size, offset, shape = tokens(each)
            yield (*short(trees(each)[0]), int(size), int(offset), str(shape))
        if each.data == "reused":
            for other in trees(each):
                number, name, index, *_ = short(trees(other)[0])
                yield (number, name, index, first(other))


def _value_by_grammar(tree: Tree[Token]) -> Plain:
    head, *places = trees(tree)
    positions, uses = [], []
    for place in places:
        index = numbers(child(place, "index"))
        if place.data == "position":
            positions.append((str(tokens(place)[0]), index))
        else:
            name, operand = tokens(place)
            uses.append((str(name), int(operand), index))
    return (*short(head), tuple(positions), tuple(uses), str(tokens(tree)[0]))


def live_range_by_grammar(tree: Tree[Token]) -> list[Plain]:
    total = child(tree, "breakdown")
    found: list[Plain] = [
        (
            child(tree, "unavailable") is None,
            first(child(tree, "length")),
            first(child(tree, "peak")),
            spaced(tokens(total)[0]) if total else None,
        )
    ]
    for each in trees(tree):
        words = tokens(each)
        index = numbers(child(each, "index"))
        if each.data == "instruction":
            found.append((int(words[0]), str(words[1])))
        elif each.data == "range":
            found.append((str(words[0]), index, int(words[1]), int(words[2])))
        elif each.data == "alive":
            cumulative = first(child(each, "cumulative"))
            found.append((str(words[0]), index, int(words[1]), cumulative))
        elif each.data == "frame":
            branch, name, percent, *sizes = words
            depth = len(branch) // 4 - 1
            found.append((depth, str(name), float(percent), *map(spaced, sizes)))
    return found


def spaced(spelled: str) -> int:
    return int(spelled.replace(" ", ""))


def memory_report_by_grammar(tree: Tree[Token]) -> list[Plain]:
    found: list[Plain] = []
    for space in trees(tree):
        name, color, total, _ = tokens(space)
        found.append((str(name), int(color), int(total)))
        for allocation in trees(space):
            rest = first(child(allocation, "rest"), 0)
            rows = [tokens(each) for each in trees(allocation) if each.data == "row"]
            found.append(
                (
                    rest,
                    *(
                        (str(a), int(b), str(c), int(d), int(e), str(f))
                        for a, b, c, d, e, f in rows
                    ),
                )
            )
    return found


def thunks_by_grammar(tree: Tree[Token]) -> list[Plain]:
    found: list[Plain] = []
    waiting = trees(tree)[::-1]
    while waiting:
        thunk = waiting.pop()
        words = {each.type: str(each) for each in tokens(thunk)}
        before, after = child(thunk, "prev"), child(thunk, "next")
        found.append(
            (
                int(words["NUMBER"]),
                words["KIND"],
                numbers(before) if before else None,
                numbers(after) if after else None,
                words.get("DESCRIPTION", "").strip(),
            )
        )
        waiting += [each for each in trees(thunk) if each.data == "thunk"]
    return found


BY_GRAMMAR: dict[str, tuple[str, Callable[[Tree[Token]], list[Plain]]]] = {
    "-buffer-assignment-values.txt": ("buffer_assignment", assignment_by_grammar),
    "-buffer-assignment.txt": ("buffer_assignment", assignment_by_grammar),
    "-live-range.txt": ("live_range", live_range_by_grammar),
    "-memory-usage-report.txt": ("memory_report", memory_report_by_grammar),
    ".thunk_sequence.txt": ("thunk_sequence", thunks_by_grammar),
    ".thunk_sequence_after_thunk_passes.txt": ("thunk_sequence", thunks_by_grammar),
}
SPECIFIED = [(path, end) for end in BY_GRAMMAR for path in FILES if path.name.endswith(end)]
SPECIFIED = [each for each in SPECIFIED if "cpu-jax0.4.20" not in each[0].parts]
"""That release has the live ranges in the file of the assignment, which is another grammar's."""


def test_a_release_without_a_blank_before_the_instruction_is_read() -> None:
    (path,) = (DUMPS / "cpu-jax0.4.20").rglob("*-buffer-assignment.txt")
    assignment = read_buffer_assignment(decode(path.read_bytes()))
    assert assignment.problems == ()
    assert assignment.buffer_values is not None
    (first, *_) = assignment.buffer_values.values
    assert first.instruction_text.startswith("%Arg_0.1 = s8[6,10]{1,0} parameter(0)")


def by_grammar(ending: str, text: str) -> list[Plain]:
    grammar, records = BY_GRAMMAR[ending]
    return records(load(grammar).parse(text))


@pytest.mark.parametrize(("path", "ending"), SPECIFIED, ids=lambda each: Path(each).name)
def test_grammar_and_reader_say_the_same_of_every_line(path: Path, ending: str) -> None:
    text = decode(path.read_bytes())
    assert records_of(_reader(ending)(text, path)) == by_grammar(ending, text)


@pytest.mark.slow
def test_what_the_grammar_accepts_of_damaged_files_is_read_without_trouble() -> None:
    accepted = refused = 0
    for path, ending in SPECIFIED:
        for text in mutants(path):
            try:
                expected = by_grammar(ending, text)
            except UnexpectedInput:
                refused += 1
                continue
            artefact = _reader(ending)(text, path)
            assert artefact.problems == (), text
            assert records_of(artefact) == expected
            accepted += 1
    assert min(accepted, refused) > 20


def test_a_line_out_of_its_alphabet_is_refused_by_grammar_and_reader() -> None:
    for path, ending in SPECIFIED:
        lines = decode(path.read_bytes()).split("\n")
        at = random.Random(name_of(path)).randrange(len(lines))
        text = "\n".join([*lines[:at], "~", *lines[at:]])
        assert _reader(ending)(text, path).problems
        with pytest.raises(UnexpectedInput):
            by_grammar(ending, text)


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
    assert old.live_range is not None
    assert [value.id for value in old.buffer_values.values] == [20, 77, 95]
    assert old.buffer_values.values[0].instruction_text.endswith("calls=%f")
    assert old.buffer_values.total_bytes == 1060
    for place in (("get-tuple-element.4", ()), ("tuple.5", (2,))):
        assert [value.slice for value in old.values_of(*place)] == [AllocationSlice(3, 0, 20)]
    assert [each.size for each in old.live_range.peak] == [512, 32]
    for value in old.buffer_values.values:
        assert old.text[value.span.start :].startswith(f"<{value.id} ")
    text, _, _ = OLD_ASSIGNMENT.partition("HloLiveRange")
    assert records_of(old) == by_grammar("-buffer-assignment.txt", text)


def test_allocations_say_what_they_are_for() -> None:
    assignment = read_buffer_assignment(OLD_ASSIGNMENT)
    parameter, scratch, output = assignment.allocations
    assert (parameter.parameter, parameter.parameter_index) == (1, ())
    assert parameter.is_entry_computation_parameter
    assert "maybe-live-out" in scratch.flags
    assert output.output_shape == "(f32[], f32[5])"
    assert assignment.by_index[3].values[1].is_phi


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
    assert (allocation.color, allocation.page) == (5, 1)
    assert allocation.flags == ("preallocated-temp", "of-tomorrow")
    assert allocation.values[0].index == (0, 1)
    assert [(each.id, each.color) for each in allocation.reused_by] == [(7, 0)]
    assert records_of(assignment) == by_grammar("-buffer-assignment.txt", text)


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
        assert values.total_bytes == sum(each.size for each in assignment.allocations)
        for value in values.values:
            expected = assignment.values[value.id].slice
            for place in value.positions:
                there = joined.values_of(place.instruction, place.index)
                assert expected in [other.slice for other in there]


def test_slices_overlap_where_a_byte_lies_in_both() -> None:
    slices = [
        AllocationSlice(a, offset, size) for a in (0, 1) for offset in range(4) for size in range(4)
    ]
    for one_slice in slices:
        for other in slices:
            same = set(range(one_slice.offset, one_slice.end)) & set(range(other.offset, other.end))
            shares = one_slice.allocation == other.allocation and bool(same)
            assert one_slice.overlaps(other) == shares


def test_every_range_lies_within_the_schedule() -> None:
    for path in files("-live-range.txt"):
        live = read_live_range(decode(path.read_bytes()))
        assert live.length is not None
        for each in live.ranges:
            assert 0 <= each.start <= each.end <= live.length
        assert [each.time for each in live.sequence] == list(range(len(live.sequence)))
        assert live.peak_bytes == sum(each.size for each in live.peak)
        assert live.peak_frames[0].total == live.peak_bytes
        assert live.peak_frames[0].depth == 0


def test_live_ranges_may_not_be_available() -> None:
    text = "HloLiveRange not available (finalized or constructed from proto)\n"
    live = read_live_range(text)
    assert live.problems == ()
    assert not live.is_available
    assert records_of(live) == by_grammar("-live-range.txt", text)


def test_the_memory_report_lists_the_assignments_memory() -> None:
    for path in files("-memory-usage-report.txt"):
        report = read_memory_report(decode(path.read_bytes()))
        values = path.with_name(
            path.name.replace("memory-usage-report", "buffer-assignment-values")
        )
        assert report.total_bytes == read_buffer_values(values.read_text()).total_bytes


def test_memory_that_is_too_small_to_list_is_counted() -> None:
    text = (
        "Memory Space: cmem (color=5)\nTotal bytes: 4 (4B)\n"
        "  cumulative_size;       size;       offset; used_by_n_values; shapes_list\n"
        "  ------------------------------------------------------------\n"
        "         4B( 90%);         4B;            0;                6; bf16[1], 5×bf16[6,1]\n"
        "  The rest 18 values are less than 5% of the total size and not shown.\n"
    )
    report = read_memory_report(text)
    assert report.problems == ()
    assert report.spaces[0].allocations[0].not_shown == 18
    assert records_of(report) == by_grammar("-memory-usage-report.txt", text)


# ---- thunks

NESTED = """\
005: kWhile        [prev=004 (1) | next=023 (1)]   
condition:
    006: kCustomKernel [source | sink] loop_compare_fusion_1 grid: [1, 1, 1] threads: [1, 1, 1]  \
shared_memory: 0 bytes
  body:
    008: kAsyncStart   [prev=007 (1) | sink        ] stream=computation_stream[0], async_id=8
        010: kDynamicSliceFusion [source | sink] params=1, results=1
            009: kCopy [source | sink] kCopy
    012: kWhile        [prev=011 (1) | sink        ]       
condition:
        013: kKernel [source | sink] kernel=k, profile_annotation=k, launch dimensions=blocks: \
{4, 1, 1}, threads/block: {128, 1, 1}, cluster_dim=nullopt
      body:
        014: kFft [source | sink] (no description)
    017: kAsyncDone    [source       | sink        ] async_id=8
023: kConditional  [prev=005 (1) | next=024 (1)]   
  branch_0:
    019: kCopy [source | sink] kCopy
  branch_1:
    020: kSequential   [source       | next=021 (1)]       015: kCopy [source | next=016 (1)] kCopy
      016: kTriangularSolve [prev=015 (1) | sink] (no description)
    021: kCopy [prev=020 (1) | sink] kCopy
024: kCommandBuffer [source | sink] 
    025: kCopy [source | sink] kCopy
"""
"""From a scan over a scan, a switch and a triangular solve."""


def test_thunks_know_what_they_are_part_of() -> None:
    sequence = read_thunk_sequence(NESTED)
    assert sequence.problems == ()
    parents = {
        thunk.id: (None if thunk.parent is None else sequence.thunks[thunk.parent].id, thunk.region)
        for thunk in sequence.thunks
    }
    assert parents == {
        5: (None, ""),
        6: (5, "condition"),
        8: (5, "body"),
        10: (8, ""),
        9: (10, ""),
        12: (5, "body"),
        13: (12, "condition"),
        14: (12, "body"),
        17: (5, "body"),
        23: (None, ""),
        19: (23, "branch_0"),
        20: (23, "branch_1"),
        15: (20, ""),
        16: (20, ""),
        21: (23, "branch_1"),
        24: (None, ""),
        25: (24, ""),
    }
    for thunk in sequence.thunks:
        assert sequence.text[thunk.span.start : thunk.span.end].startswith(f"{thunk.id:03}: ")
    assert records_of(sequence) == by_grammar(".thunk_sequence.txt", NESTED)


def test_thunks_say_what_they_launch() -> None:
    thunks = {thunk.id: thunk for thunk in read_thunk_sequence(NESTED).thunks}
    assert thunks[6].launch == Launch("loop_compare_fusion_1", (1, 1, 1), (1, 1, 1), 0)
    assert thunks[13].launch == Launch("k", (4, 1, 1), (128, 1, 1), None)
    assert thunks[9].launch is None


def test_sequence_and_metadata_are_of_the_same_thunks() -> None:
    for path in files(".thunk_sequence.txt"):
        sequence = read_thunk_sequence(decode(path.read_bytes()))
        beside = path.with_name(path.name.replace("thunk_sequence", "thunk_metadata"))
        metadata = read_thunk_metadata(decode(beside.read_bytes()))
        assert isinstance(metadata, ThunkMetadata)
        assert sequence.thunks
        kinds = {info.id: info.kind for info in metadata.thunks}
        for thunk in sequence.thunks:
            assert kinds[thunk.id] == thunk.kind


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
  config_profiles {
    config { backend: TRITON backend_config { triton { block_m: 64 num_warps: 4 } } }
    run_time { nanos: 4256 }
  }
  config_profiles {
    config { backend: CUBLASLT_FISSION backend_config { gemm { algorithm: 1 } } }
    run_time { seconds: 1 nanos: 496 }
    scratch_bytes: 33554432
  }
  failed_configs {
    config { backend: TRITON backend_config { triton { block_m: 16 } } }
    kind: COMPILATION_FAILED
    message: "RESOURCE_EXHAUSTED: \\"registers\\""
  }
  hlo_text: "%gemm_fusion_dot.2 = f32[2]{0} fusion(%p), kind=kCustom"
}
"""

OLD_LOG = """\
logs {
  instr {
    [type.googleapis.com/xla.HloInstructionProto] { name: "gemm_fusion_dot.2" opcode: "fusion" }
  }
  results { run_time { nanos: 4256 } triton { block_m: 64 num_warps: 4 } }
  results {
    gemm { algorithm: 1 }
    scratch_bytes: 33554432
    run_time { seconds: 1 nanos: 496 }
  }
  results {
    failure { kind: COMPILATION_FAILED msg: "RESOURCE_EXHAUSTED: \\"registers\\"" }
    run_time { }
    triton { block_m: 16 }
  }
}
"""

NEW_RESULTS = """\
entries {
  key { target { device: "d" hlo_fingerprint: "a4e6" } environment { codegen_version: "c" } }
  value {
    optimal_config { backend: NATIVE_EMITTER backend_config { native_emitter { } } }
    optimal_backend_version: "v1"
  }
}
"""

OLD_RESULTS = """\
version: 3
results {
  device: "d"
  hlo: "{\\n  tmp_0 = f16[4]{0} parameter(0)\\n}"
  result {
    other {
      name: "NATIVE_EMITTER"
      config { [type.googleapis.com/xla.autotuner.BackendConfig] { native_emitter { } } }
    }
  }
  version: 52
}
"""


def test_old_and_new_logs_say_the_same_of_the_same_run() -> None:
    (new,) = read_autotuning(f'device: "d"\n{NEW_LOG}').instructions
    (old,) = read_autotuning(OLD_LOG).instructions
    assert new.name == old.name == "gemm_fusion_dot.2"
    assert (new.fingerprint, new.module, new.device) == ("a4e6", 1, "d")
    for mine, other in zip(new.candidates, old.candidates, strict=True):
        for field in ("backend", "config", "nanoseconds", "scratch_bytes", "failure"):
            assert getattr(mine, field) == getattr(other, field)
    triton, fission, failed = new.candidates
    assert triton.config == "triton { block_m: 64 num_warps: 4 }"
    assert fission.nanoseconds == 1_000_000_496
    assert failed.failed
    assert failed.failure == 'RESOURCE_EXHAUSTED: "registers"'
    assert new.fastest is triton
    assert {name: len(tried) for name, tried in new.backends.items()} == {
        "TRITON": 1,
        "CUBLASLT_FISSION": 1,
    }


def test_old_and_new_results_name_the_winner() -> None:
    new = read_autotuning(NEW_RESULTS)
    old = read_autotuning(OLD_RESULTS)
    assert new.problems == old.problems == ()
    assert new.chosen("a4e6") == new.results[0]
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
    results = read_autotuning(text_of(FISSION, ".autotune_results.pbtxt")).results
    assert [each.backend for each in results] == ["CUBLASLT_FISSION"]


# ---- the configuration


def test_the_configuration_has_the_shapes_of_the_entry_computation() -> None:
    for path in files(".config.pbtxt"):
        config = read_config(decode(path.read_bytes()))
        assert isinstance(config, ModuleConfig)
        before = path.with_name(path.name.replace("config.pbtxt", "before_optimizations.txt"))
        head = decode(before.read_bytes()).partition("\n")[0].replace("/*index=5*/", "")
        layout = f"entry_computation_layout={{({', '.join(config.parameters)})->{config.result}}}"
        assert layout in head
        assert (config.replica_count, config.num_partitions) == (1, 1)


def test_the_configuration_has_the_flags_of_the_run() -> None:
    for path in files(".config.pbtxt"):
        beside = path.with_name(path.name.replace("config.pbtxt", "debug_options"))
        flags = read_config(decode(path.read_bytes())).debug_options
        for name, values in read_debug_options(beside.read_text()).values.items():
            if values[-1] not in ("false", "0"):
                assert flags[name] == values, name


@pytest.mark.parametrize(
    ("proto", "text"),
    [
        ("element_type: TOKEN", "token[]"),
        ("element_type: F32", "f32[]"),
        (
            "element_type: S4 dimensions: [8, 3] is_dynamic_dimension: [true, false] layout { "
            "minor_to_major: [1, 0] tiles { dimensions: [8, 128] } element_size_in_bits: 4 "
            "memory_space: 5 }",
            "s4[<=8,3]{1,0:T(8,128)E(4)S(5)}",
        ),
        (
            "element_type: TUPLE tuple_shapes { element_type: PRED } tuple_shapes { "
            "element_type: TUPLE }",
            "(pred[], ())",
        ),
    ],
)
def test_shapes_are_spelled_as_hlo_spells_them(proto: str, text: str) -> None:
    assert shape_text(read_text_proto(proto)[0]) == text
