"""PTX: what is read, what may lie in flight under a store, and the wait that mends it.

The kernels in `fixtures/ptx` are right as their compilers left them; taking a wait out of one makes
it wrong, or leaves it as it was for a reason that stands beside it here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_lint
from hlo_lint.hlo.grammar import grammar_parser
from hlo_lint.kernels.ptx import Hazard, Ptx, hazards, insert_wait, read_ptx
from hlo_lint.kernels.ptx.addresses import EXTERN, Addresses, Bytes
from hlo_lint.kernels.ptx.ranges import UNBOUNDED
from hlo_lint.kernels.ptx.reader import MAX_DEPTH, PtxInstruction, address
from hlo_lint.text.source import Span
from tests.conftest import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Callable

    from lark import Token, Tree

PTX = FIXTURES / "ptx"
NAMES = sorted(path.name for path in PTX.glob("*.ptx"))
WAIT = re.compile(r"^\tcp\.async\.(bulk\.)?wait_group(\.read)? \t\d+;\n", re.MULTILINE)

EQUIVALENT = {
    "triton_sm80_two_stages.ptx": "every iteration ends with a wait for all groups",
    "triton_sm80_attention.ptx": "the results go where Q was, and no copy is in flight to there",
    "triton_sm90_tma_store.ptx": "the kernel ends after it and stores nothing more",
    "xla_tma.ptx": "the kernel ends after it and stores nothing more",
}
"""Kernels in which the last wait protects no store."""


def kernel(name: str) -> str:
    return (PTX / name).read_text()


def without_last_wait(text: str) -> str:
    last = [*WAIT.finditer(text)][-1]
    return text[: last.start()] + text[last.end() :]


def mended(text: str) -> str:
    """The text with the wait of each hazard inserted."""
    fixes = {insert_wait(text, hazard) for hazard in hazards(read_ptx(text))}
    for offset, wait in sorted(fixes, reverse=True):
        text = text[:offset] + wait + text[offset:]
    return text


def program(*lines: str, threads: int = 64) -> str:
    """A kernel of one line a statement; `s` and `t` are its shared memory."""
    head = (
        ".version 8.8\n.target sm_90a\n.address_size 64\n"
        ".extern .shared .align 16 .b8 s[];\n.shared .align 16 .b8 t[4096];\n"
        f".visible .entry k(\n\t.param .u64 k_param_0\n)\n.reqntid {threads}\n{{\n"
    )
    return head + "".join(f"\t{line}\n" for line in lines) + "}\n"


def found(*lines: str) -> tuple[Hazard, ...]:
    ptx = read_ptx(program(*lines))
    assert ptx.is_whole
    return hazards(ptx)


def at(text: str, span: tuple[int, int]) -> str:
    return text[slice(*span)]


COPY = "cp.async.cg.shared.global [s], [%rd1], 16;"
COMMIT = "cp.async.commit_group;"
BARRIER = "bar.sync 0;"
STORE = "st.shared.b32 [s], %r1;"
BULK = "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [s], 256;"


# ---- the kernels that compilers wrote


@pytest.mark.parametrize("name", NAMES)
def test_kernels_as_compiled_store_under_no_copy(name: str) -> None:
    ptx = read_ptx(kernel(name))
    assert ptx.is_whole
    assert hazards(ptx) == ()


@pytest.mark.parametrize("name", sorted({*NAMES} - {*EQUIVALENT}))
def test_the_last_wait_is_missed_and_put_back(name: str) -> None:
    mutant = without_last_wait(kernel(name))
    (hazard,) = hazards(read_ptx(mutant))
    assert at(mutant, hazard.span).startswith(("st.shared", "stmatrix"))
    assert "memory that cp.async.c" in hazard.message
    assert hazards(read_ptx(mended(mutant))) == ()


@pytest.mark.parametrize("name", sorted(EQUIVALENT))
def test_a_last_wait_that_protects_no_store_is_not_missed(name: str) -> None:
    assert hazards(read_ptx(without_last_wait(kernel(name)))) == ()


def test_without_its_waits_in_the_loop_the_last_wait_is_missed() -> None:
    text = WAIT.sub("", kernel("triton_sm80_two_stages.ptx"))
    assert len(hazards(read_ptx(text))) == 1


def test_results_that_went_where_keys_are_copied_would_be_found() -> None:
    text = without_last_wait(kernel("triton_sm80_attention.ptx"))
    elsewhere = text.replace("st.shared.v4.b32 \t[%r264]", "st.shared.v4.b32 \t[%r264+4096]")
    assert elsewhere != text
    assert len(hazards(read_ptx(elsewhere))) == 1


def test_a_store_after_the_end_of_a_tma_store_would_be_found() -> None:
    for name, store in (
        ("triton_sm90_tma_store.ptx", "st.shared.b32 [global_smem], 0;"),
        ("xla_tma.ptx", "st.shared.b32 [%r186], 0;"),
    ):
        text = without_last_wait(kernel(name))
        head, end, tail = text.rpartition("\tret;")
        (hazard,) = hazards(read_ptx(f"{head}\t{store}\n{end}{tail}"))
        assert hazard.wait == "cp.async.bulk.wait_group.read 0;"


def test_the_wait_of_a_tma_store_in_a_loop_is_missed() -> None:
    text = kernel("triton_sm90_tma_store.ptx")
    first = next(WAIT.finditer(text))
    mutant = text[: first.start()] + text[first.end() :]
    (hazard,) = hazards(read_ptx(mutant))
    assert "st.shared.v4.b32 on line" in hazard.message
    assert hazard.wait == "cp.async.bulk.wait_group.read 0;"
    assert hazards(read_ptx(mended(mutant))) == ()


def test_stores_in_the_loop_beside_a_cyclic_buffer_are_told_apart_by_address() -> None:
    text = kernel("triton_sm80_masked_fill.ptx")
    inside = "st.shared.v4.b32 \t[%r34+16384]"
    assert inside in text
    (hazard,) = hazards(read_ptx(text.replace(inside, "st.shared.v4.b32 \t[%r34+12288]")))
    assert "bytes 12288 to" in hazard.notes[0]


def test_the_fix_is_the_text_that_the_compiler_wrote() -> None:
    text = kernel("xla_three_stages.ptx")
    assert mended(without_last_wait(text)).replace("wait_group 0", "wait_group \t0") == text


def test_a_message_names_both_instructions_and_both_lines() -> None:
    (hazard,) = hazards(read_ptx(without_last_wait(kernel("xla_three_stages.ptx"))))
    assert hazard.message == (
        "st.shared.v4.b32 on line 400 may write memory that cp.async.cg.shared.global on "
        "line 341 is still writing: `cp.async.wait_group 0` is missing between them"
    )
    assert hazard.notes == (
        "the store touches bytes 0 to 14335 of dynamic shared memory, "
        "the copies in flight bytes 0 to 8191 of dynamic shared memory",
        "the wait belongs before bar.sync on line 370: a thread waits only for its own copies, "
        "the barrier for the other threads",
    )


# ---- what is in flight


@pytest.mark.parametrize(
    ("wait", "is_found"),
    [
        ("cp.async.wait_group 0;", False), ("cp.async.wait_group 1;", False),
        ("cp.async.wait_group 2;", True), ("cp.async.wait_all;", False),
        ("@%p1 cp.async.wait_group 0;", True), ("cp.async.bulk.wait_group 0;", True),
        ("wgmma.wait_group.sync.aligned 0;", True), ("bar.sync 0;", True),
    ],
)  # fmt: skip
def test_a_wait_leaves_as_many_groups_as_it_says(wait: str, is_found: bool) -> None:
    other = COPY.replace("[s]", "[t]")
    assert bool(found(COPY, COMMIT, other, COMMIT, wait, STORE)) == is_found


def test_a_copy_without_a_commit_is_left_by_a_wait_for_groups() -> None:
    (hazard,) = found(COPY, "cp.async.wait_group 0;", STORE)
    assert hazard.wait == "cp.async.wait_all;"
    assert found(COPY, "cp.async.wait_all;", STORE) == ()


def test_a_commit_that_may_not_happen_ages_nothing() -> None:
    assert found(COPY, COMMIT, COMMIT, "cp.async.wait_group 1;", STORE) == ()
    assert len(found(COPY, COMMIT, f"@%p1 {COMMIT}", "cp.async.wait_group 1;", STORE)) == 1


def test_a_path_around_the_wait_is_enough() -> None:
    around = [COPY, COMMIT, "@%p1 bra L;", "cp.async.wait_group 0;", "L:", STORE]
    assert len(found(*around)) == 1
    assert found(*around[:4], "bra M;", "L:", "ret;", "M:", STORE) == ()


def test_a_copy_of_the_last_iteration_is_in_flight_in_the_next() -> None:
    loop = ["L:", STORE, COPY, COMMIT, "@%p1 bra L;", "ret;"]
    assert len(found(*loop)) == 1
    assert found("L:", "cp.async.wait_group 0;", *loop[1:]) == ()


def test_every_target_of_an_indexed_branch_is_followed() -> None:
    lines = [COPY, COMMIT, "T: .branchtargets", "A,", "B;", "brx.idx %r1, T;", "A:", "ret;", "B:"]
    assert len(found(*lines, STORE)) == 1


def test_what_an_mbarrier_completes_is_not_followed() -> None:
    assert found(COPY, "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [t];", STORE) == ()


@pytest.mark.slow
def test_too_many_copies_are_given_up() -> None:
    assert found(*[COPY, COMMIT] * 3000, STORE) == ()


# ---- where a store points


@pytest.mark.parametrize(
    ("store", "is_found"),
    [
        ("st.shared.b32 [s+16], %r1;", False), ("st.shared.b32 [s+12], %r1;", True),
        ("st.shared.v4.b32 [s+-16], {%r1, %r1, %r1, %r1};", False),
        ("st.shared.v4.b32 [s+-12], {%r1, %r1, %r1, %r1};", True),
        ("st.shared::cta.b64 [s+8], %rd1;", True), ("st.volatile.shared.b32 [s], %r1;", True),
        ("st.shared.b32 [t], %r1;", False), ("st.shared.b32 [%r9], %r1;", True),
        ("st.b32 [s], %r1;", True), ("st.b32 [%rd9], %r1;", False),
        ("st.global.b32 [s], %r1;", False),
        ("stmatrix.sync.aligned.m8n8.x1.shared.b16 [s], {%r1};", True),
        ("atom.shared.add.u32 %r2, [s], 1;", True), ("red.shared.add.u32 [s], 1;", True),
        ("ld.shared.b32 %r1, [s];", False), ("mbarrier.init.shared::cta.b64 [s], 1;", True),
        ("mbarrier.init.shared::cta.b64 [s+16], 1;", False),
    ],
)  # fmt: skip
def test_only_stores_that_may_touch_the_copied_bytes_count(store: str, is_found: bool) -> None:
    assert bool(found(COPY, COMMIT, store)) == is_found


@pytest.mark.parametrize(("high", "is_found"), [(2, False), (3, True)])
def test_a_stage_counter_stays_in_its_range(high: int, is_found: bool) -> None:
    """Copies cycle through stages of 1024 bytes; the store lies after the third."""
    lines = [
        "mov.b32 %r1, -1;",
        "L:",
        "add.s32 %r2, %r1, 1;",
        f"setp.gt.s32 %p2, %r2, {high};",
        "selp.b32 %r1, 0, %r2, %p2;",
        "shl.b32 %r3, %r1, 10;",
        "mov.b32 %r4, s;",
        "add.s32 %r5, %r4, %r3;",
        "st.shared.b32 [s+3072], 0;",
        "cp.async.ca.shared.global [%r5], [%rd1], 16;",
        COMMIT,
        "@%p1 bra L;",
    ]
    assert bool(found(*lines)) == is_found


def test_a_register_reused_after_the_store_is_another_value() -> None:
    lines = ["mov.b32 %r1, s;", "cp.async.cg.shared.global [%r1], [%rd1], 16;", COMMIT]
    again = ["add.s32 %r1, %r1, 4096;", "st.shared.b32 [%r1], 0;"]
    assert found(*lines, *again) == ()
    assert len(found(*lines, f"@%p1 {again[0]}", again[1])) == 1


def test_the_fill_of_a_masked_copy_belongs_to_it() -> None:
    masked = "@%p1 cp.async.cg.shared.global [%r1], [%rd1], 16;"
    assert found(masked, COMMIT, "@!%p1 st.shared.b32 [%r1], 0;") == ()
    assert len(found(masked, COMMIT, "@%p1 st.shared.b32 [%r1], 0;")) == 1


def test_two_variables_of_dynamic_shared_memory_are_the_same_memory() -> None:
    text = program(COPY, COMMIT, "st.shared.b32 [u], 0;")
    assert hazards(read_ptx(f".extern .shared .align 8 .b8 u[];\n{text}"))
    assert not hazards(read_ptx(f".shared .align 8 .b8 u[8];\n{text}"))


# ---- bulk stores


def test_a_bulk_store_reads_until_its_group_is_waited_for() -> None:
    commit = "cp.async.bulk.commit_group;"
    (hazard,) = found(BULK, commit, STORE)
    assert "may overwrite data that cp.async.bulk.global.shared::cta.bulk_group" in hazard.message
    assert hazard.wait == "cp.async.bulk.wait_group.read 0;"
    assert found(BULK, commit, "cp.async.bulk.wait_group.read 0;", STORE) == ()
    assert found(BULK, commit, "cp.async.bulk.wait_group 0;", STORE) == ()
    assert found(BULK, commit, "st.shared.b32 [s+256], 0;") == ()
    assert len(found(BULK, commit, "cp.async.wait_all;", STORE)) == 1


def test_a_bulk_store_without_a_commit_is_committed_by_the_fix() -> None:
    text = program(BULK, STORE)
    (hazard,) = hazards(read_ptx(text))
    assert hazard.wait == "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;"
    assert hazards(read_ptx(mended(text))) == ()


# ---- the fix


def test_the_wait_goes_before_the_barrier_that_leads_to_the_reuse() -> None:
    before = COPY, COMMIT, BARRIER, "add.s32 %r1, %r1, 1;"
    after = BARRIER, STORE, BARRIER, STORE
    wait = "cp.async.wait_group 0;"
    assert mended(program(*before, *after)) == program(*before, wait, *after)


def test_a_barrier_before_the_copy_or_under_a_predicate_is_not_the_one() -> None:
    for barrier in (BARRIER, "@%p1 bar.sync 0;"):
        lines = [barrier, COPY, COMMIT] if barrier == BARRIER else [COPY, COMMIT, barrier]
        text = program(*lines, STORE)
        assert mended(text) == program(*lines, "cp.async.wait_group 0;", STORE)
        (hazard,) = hazards(read_ptx(text))
        assert hazard.notes[-1].startswith("no barrier precedes this store")


def test_a_barrier_of_one_warp_counts_where_there_is_one_warp() -> None:
    lines = [COPY, COMMIT, "bar.warp.sync -1;", STORE]
    for threads, place in ((32, 2), (64, 3)):
        expected = [*lines[:place], "cp.async.wait_group 0;", *lines[place:]]
        assert mended(program(*lines, threads=threads)) == program(*expected, threads=threads)


def test_the_wait_stays_on_the_line_of_a_label() -> None:
    text = program(COPY, COMMIT, f"L: {BARRIER}", STORE)
    assert mended(text) == program(COPY, COMMIT, f"L: cp.async.wait_group 0; {BARRIER}", STORE)


def test_lines_keep_their_ends() -> None:
    text = program(COPY, COMMIT, BARRIER, STORE).replace("\n", "\r\n")
    assert "\tcp.async.wait_group 0;\r\n\tbar.sync" in mended(text)


# ---- reading


def spelled(tree: Tree[Token]) -> PtxInstruction:
    """An instruction as the grammar reads it, its names as they are written."""
    guard = ""
    opcode = ""
    operands = []
    for child in tree.children:
        if isinstance(child, str):
            opcode = str(child)
        elif child.data == "guard":
            guard = written(child).removeprefix("@")
        else:
            operands.append(written(child))
    span = Span(tree.meta.start_pos, tree.meta.end_pos)
    return PtxInstruction(span, opcode, tuple(operands), guard)


def written(tree: Tree[Token]) -> str:
    return "".join(str(token) for token in tree.scan_values(lambda _: True))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_reader_and_grammar_agree_on_every_instruction(name: str) -> None:
    text = kernel(name)
    tree = grammar_parser("ptx").parse(text)
    expected = sorted(map(spelled, tree.find_data("instruction")), key=lambda one: one.span)
    actual = [one for function in read_ptx(text).functions for one in function.instructions()]
    assert [one.opcode for one in actual] == [one.opcode for one in expected]
    for mine, theirs in zip(actual, expected, strict=True):
        assert at(text, mine.span) + ";" == at(text, theirs.span)
        names = [re.sub(r"@\d+", "", operand) for operand in (mine.guard, *mine.operands)]
        bare = re.compile(r"[\[\]{}(),|+ ]")
        assert [bare.sub("", one) for one in names] == [
            bare.sub("", one) for one in (theirs.guard, *theirs.operands)
        ]


@pytest.mark.parametrize(
    "text",
    [
        ".visible .entry k() { mov.b32 %r1 %r2; }", ".visible .entry k() { mov.b32 %r1, %r2 }",
        ".visible .entry k() { mov.b32 {%r1, %r2; }", ".visible .entry k( { ret; }",
        ".visible .entry k() { ret;", ".visible .entry k() { ? }", "kernel", "}",
    ],
)  # fmt: skip
def test_reader_and_grammar_refuse_the_same(text: str) -> None:
    from lark import UnexpectedInput

    assert not read_ptx(text).is_whole
    with pytest.raises(UnexpectedInput):
        grammar_parser("ptx").parse(text)


def test_names_of_inline_assembly_are_told_apart() -> None:
    waiting = [
        "{",
        ".reg .pred complete;",
        "waitLoop:",
        "mbarrier.try_wait.parity.shared::cta.b64 complete, [t], %r1;",
        "@!complete bra.uni waitLoop;",
        "}",
    ]
    (function,) = read_ptx(program(*waiting, *waiting, "ret;")).functions
    guards = [one.guard for one in function.instructions() if one.guard]
    assert len(set(guards)) == 2
    assert [block.successors for block in function.blocks] == [(0, 1), (1, 2), ()]


def test_what_follows_unreadable_text_is_left_out() -> None:
    ptx = read_ptx(f"{program(COPY, STORE)}.entry l() {{ %%% what; }}")
    assert (len(hazards(ptx)), ptx.is_whole) == (1, False)


def test_a_branch_to_nowhere_cannot_be_read() -> None:
    assert not read_ptx(program("bra NOWHERE;")).is_whole


def test_threads_come_from_the_kernel() -> None:
    for directive, threads in (
        (".reqntid 128, 2, 1", (128, 2, 1)),
        (".maxntid 64, 2", (128, 128, 128)),
        (".minnctapersm 1", (1024, 1024, 1024)),
    ):
        (function,) = read_ptx(f".entry k()\n{directive}\n{{ ret; }}").functions
        assert function.threads == threads


def test_device_functions_and_declarations_stand_beside_kernels() -> None:
    text = ".func (.param .b32 r) f(.param .b32 x) { ret; }\n.func g();\n.entry k() { ret; }"
    assert [(one.name, one.is_kernel) for one in read_ptx(text).functions] == [
        ("f", False),
        ("k", True),
    ]


def test_debug_sections_are_no_instructions() -> None:
    text = program("ret;") + "\t.section\t.debug_loc\t{\t.b8 1\n\t}\n"
    assert read_ptx(text).is_whole


def test_braces_may_be_nested_too_deep() -> None:
    for depth, is_whole in ((MAX_DEPTH - 1, True), (MAX_DEPTH, False)):
        ptx = read_ptx(program("{" * depth, COPY, STORE, "}" * depth))
        assert (len(hazards(ptx)), ptx.is_whole) == (is_whole, is_whole)


def whole(ptx: Ptx) -> bool:
    """True if everything that is pointed at lies in the text."""
    spans = [one.span for function in ptx.functions for one in function.instructions()]
    for hazard in hazards(ptx):
        spans += [hazard.span, hazard.before]
        assert 0 <= insert_wait(ptx.text, hazard)[0] <= len(ptx.text)
    return all(0 <= start <= end <= len(ptx.text) for start, end in spans)


@pytest.mark.slow
@given(st.text())
@settings(max_examples=100)
def test_any_text_is_read(text: str) -> None:
    assert whole(read_ptx(text))


PIECES = st.sampled_from(
    """cp.async.cg.shared.global cp.async.wait_group cp.async.commit_group cp.async.bulk.wait_group
    st.shared.b32 stmatrix selp.b32 setp.lt.s32 add.s32 shl.b32 lop3.b32 bra brx.idx bar.sync ret
    .entry .func .shared .reg .extern .section .loc .branchtargets .reqntid %r1 %r2 %p1 %rd1 s L k
    0 1 -1 0x10 99999999999999999999 , ; ; ; : { } [ ] ( ) < > + - @ ! | " // /* */""".split()
)


@pytest.mark.slow
@given(st.lists(PIECES, max_size=60))
@settings(max_examples=100)
def test_any_heap_of_pieces_is_read(pieces: list[str]) -> None:
    heap = " ".join(pieces)
    assert whole(read_ptx(heap))
    assert whole(read_ptx(program(COPY, heap, STORE)))


@pytest.mark.slow
@given(st.data())
@settings(max_examples=60)
def test_a_kernel_with_a_piece_torn_out_is_read(data: st.DataObject) -> None:
    text = kernel(data.draw(st.sampled_from(["xla_three_stages.ptx", "triton_sm90_tma_store.ptx"])))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(start + 400, len(text))))
    assert whole(read_ptx(text[:start] + text[end:]))


# ---- ranges hold what a thread computes

MASK = (1 << 32) - 1


def signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def signed_field(value: int, position: int, length: int) -> int:
    field = signed(value) >> position & ((1 << length) - 1)
    return field - (1 << length) if field >> (length - 1) else field


BINARY: dict[str, Callable[[int, int], int]] = {
    "add.s32": lambda a, b: a + b,
    "sub.s32": lambda a, b: a - b,
    "and.b32": lambda a, b: a & b,
    "or.b32": lambda a, b: a | b,
    "xor.b32": lambda a, b: a ^ b,
    "mul.lo.s32": lambda a, b: a * b,
}
SHIFTS: dict[str, Callable[[int, int], int]] = {
    "shl.b32": lambda a, by: a << by,
    "shr.u32": lambda a, by: a >> by,
    "shr.s32": lambda a, by: signed(a) >> by,
}
FIELDS: dict[str, Callable[[int, int, int], int]] = {
    "bfe.u32": lambda a, position, length: a >> position & ((1 << length) - 1),
    "bfe.s32": signed_field,
}
COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "lt.s32": lambda a, b: signed(a) < signed(b),
    "le.u32": lambda a, b: a <= b,
    "gt.s32": lambda a, b: signed(a) > signed(b),
    "ge.u32": lambda a, b: a >= b,
    "eq.s32": lambda a, b: a == b,
    "ne.s32": lambda a, b: a != b,
}
THREADS = 48


@st.composite
def computations(draw: st.DrawFn) -> tuple[list[str], list[int]]:
    """Integer code over the thread's number, and what its last register holds in each thread."""
    lines = ["mov.u32 %r0, %tid.x;"]
    values = [list(range(THREADS))]
    constants = st.sampled_from([0, 1, 2, 3, 7, 15, 16, 48, 112, 1024, 4095, -1, -16, 2**31 - 1])

    def operand() -> tuple[str, list[int]]:
        if draw(st.booleans()):
            constant = draw(constants)
            return str(constant), [constant & MASK] * THREADS
        index = draw(st.integers(max(0, len(values) - 3), len(values) - 1))
        return f"%r{index}", values[index]

    for _ in range(draw(st.integers(1, 12))):
        target = f"%r{len(values)}"
        kind = draw(st.sampled_from(["binary", "shift", "field", "neg", "selp"]))
        (a, xs), (b, ys) = operand(), operand()
        if kind == "binary":
            opcode = draw(st.sampled_from(sorted(BINARY)))
            result = [BINARY[opcode](x, y) for x, y in zip(xs, ys, strict=True)]
            lines.append(f"{opcode} {target}, {a}, {b};")
        elif kind == "shift":
            opcode, by = draw(st.sampled_from(sorted(SHIFTS))), draw(st.integers(0, 31))
            result = [SHIFTS[opcode](x, by) for x in xs]
            lines.append(f"{opcode} {target}, {a}, {by};")
        elif kind == "field":
            opcode, position = draw(st.sampled_from(sorted(FIELDS))), draw(st.integers(0, 20))
            length = draw(st.integers(1, 11))
            result = [FIELDS[opcode](x, position, length) for x in xs]
            lines.append(f"{opcode} {target}, {a}, {position}, {length};")
        elif kind == "neg":
            result = [-x for x in xs]
            lines.append(f"neg.s32 {target}, {a};")
        else:
            comparison = draw(st.sampled_from(sorted(COMPARISONS)))
            (c, us), (d, vs) = operand(), operand()
            holds = [COMPARISONS[comparison](x, y) for x, y in zip(xs, ys, strict=True)]
            result = [u if h else v for h, u, v in zip(holds, us, vs, strict=True)]
            lines.append(f"setp.{comparison} %p{len(lines)}, {a}, {b};")
            lines.append(f"selp.b32 {target}, {c}, {d}, %p{len(lines) - 1};")
        values.append([value & MASK for value in result])
    return lines, values[-1]


@pytest.mark.slow
@given(computations())
@settings(max_examples=150)
def test_a_range_holds_what_every_thread_computes(computation: tuple[list[str], list[int]]) -> None:
    lines, values = computation
    last = max(int(name) for name in re.findall(r"%r(\d+)", " ".join(lines)))
    text = program(*lines, "mov.b32 %a, s;", f"add.s32 %b, %a, %r{last};", threads=THREADS)
    (function,) = read_ptx(text).functions
    end = sum(1 for _ in function.instructions())
    text = text.replace("}\n", "\tst.shared.b8 [%b], 0;\n}\n")
    (function,) = read_ptx(text).functions
    base, start, stop = Addresses(function, [(end, "[%b]")]).bytes(end, "[%b]", 1)
    assert base in {EXTERN, None}
    turns = [0, 1, -1, 2, -2]
    for value in values:
        assert any(start <= value + (turn << 32) < stop for turn in turns)


def test_ranges_are_as_tight_as_the_kernel_is() -> None:
    """The XLA kernel's copies: 16 bytes each of 128 threads, row by row."""
    (function,) = read_ptx(kernel("xla_three_stages.ptx")).functions
    instructions = list(function.instructions())
    copies = [at for at, one in enumerate(instructions) if one.is_a("cp.async.cg")]
    asked = [(at, instructions[at].operands[0]) for at in copies]
    addresses = Addresses(function, asked)
    assert [addresses.bytes(at, operand, 16) for at, operand in asked][:4] == [
        Bytes(EXTERN, start, start + 2048) for start in (0, 2048, 4096, 6144)
    ]


def test_a_counter_that_nothing_bounds_points_anywhere() -> None:
    lines = ["mov.b32 %r1, s;", "L:", "add.s32 %r1, %r1, 16;", "st.shared.b8 [%r1], 0;", "bra L;"]
    (function,) = read_ptx(program(*lines)).functions
    assert Addresses(function, [(2, "[%r1]")]).bytes(2, "[%r1]", 1) == Bytes(
        EXTERN, -UNBOUNDED, UNBOUNDED
    )


def test_an_address_is_a_base_and_an_offset() -> None:
    assert address("[%r1+0x10]") == ("%r1", 16)
    assert address("[s]") == ("s", 0)
    assert address("[%r1+%r2]") is None


def test_a_kernel_without_its_last_wait_is_found_and_mended() -> None:
    broken = PTX / "last_wait_removed" / "triton_sm80_three_stages.ptx"
    (finding,) = hlo_lint.lint(broken).findings
    assert (finding.rule, finding.severity, finding.line) == (
        "store-overtakes-copy",
        hlo_lint.Severity.ERROR,
        465,
    )
    result = hlo_lint.fix(broken)
    assert not result.findings
    lines = result.text.split("\n")
    assert lines[441].split() == ["cp.async.wait_group", "0;"]
    assert "bar.sync" in lines[442]
