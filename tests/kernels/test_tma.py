"""TMA descriptors: every condition alone and beside its nearest legal twin, repairs, and texts."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lark import Token

from hlo_lint.dumps.file_types import FileType, file_type_of
from hlo_lint.hlo.grammar import grammar_parser
from hlo_lint.kernels.tma.conditions import CONDITIONS, TmaViolation, repair, violations
from hlo_lint.kernels.tma.cutlass_log import MAX_LENGTH, Log, read_log
from hlo_lint.kernels.tma.descriptor import (
    Consumer,
    Descriptor,
    TensorMapType,
    element_type_of_size,
    tensor_map_type,
)
from hlo_lint.kernels.tma.xla_text import read_descriptors
from tests.conftest import FIXTURES, present

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lark import Tree

TMA = FIXTURES / "tma"
NAMES = sorted(path.name for path in TMA.glob("*.txt"))

U4_8, U4_16, U6 = tensor_map_type(13), tensor_map_type(14), tensor_map_type(15)
FLOAT16, BFLOAT16, FLOAT32, INT32 = (tensor_map_type(number) for number in (6, 9, 7, 3))


def text_of(name: str) -> str:
    return (TMA / name).read_text("utf-8")


def log(name: str) -> Log:
    return read_log(text_of(name))


def said(descriptor: Descriptor, consumer: Consumer = Consumer.CUDA) -> list[str]:
    return [str(violation) for violation in violations(descriptor, consumer)]


HEALTHY = Descriptor(
    BFLOAT16, rank=3, global_dims=(128, 57, 8), global_strides=(256, 14592), box_dims=(64, 128, 1),
    element_strides=(1, 1, 1), swizzle=3, l2_promotion=2, address=0x7F4C49E08800,
    descriptor_address=0x7FFD054484C0,
)  # fmt: skip
PACKED = replace(
    HEALTHY, element=U4_16, global_strides=(64, 3648), box_dims=(128, 128, 1), swizzle=0
)
FLAT = Descriptor(BFLOAT16, 2, (128, 57), (256,), (64, 128), (1, 1))
LINE = Descriptor(BFLOAT16, 1, (64,), (), (8,), (1,))
BYTES = replace(HEALTHY, element=tensor_map_type(0), box_dims=(128, 128, 1))
INTERLEAVED = replace(HEALTHY, interleave=2, swizzle=1)
UNKNOWN = TensorMapType(16, "type 16", 0)
BOX_OF_8_BYTES = replace(HEALTHY, swizzle=0, box_dims=(4, 128, 1))
BOX_OF_144_BYTES = replace(HEALTHY, box_dims=(72, 128, 1))
PACKED_BOX = replace(PACKED, box_dims=(64, 128, 1))
STEPS_OF_0 = replace(HEALTHY, element_strides=(0, 1, 1))
NAN_FILL = replace(HEALTHY, oob_fill=1, box_dims=(32, 128, 1))
UNSWIZZLED = replace(HEALTHY, swizzle=0)
PACKED_128 = replace(PACKED, global_strides=(128, 7296))
PACKED_80 = replace(PACKED, global_strides=(80, 3648))
SIZE_8, SIZE_16 = map(element_type_of_size, (8, 16))
MAX_SIZE = replace(
    HEALTHY,
    rank=5, global_dims=(1 << 32, 1, 1, 1, 1), global_strides=((1 << 40) - 16,) * 4,
    box_dims=(64, 256, 256, 8, 8), element_strides=(1, 8, 8, 8, 8),
)  # fmt: skip

CUDA, XLA, JAXLIB, MOSAIC = Consumer.CUDA, Consumer.XLA, Consumer.JAXLIB, Consumer.MOSAIC
Example = tuple[Consumer, Descriptor, str, Descriptor]


def alone(
    field: str,
    wrong: Any,
    right: Any = ...,
    base: Descriptor = HEALTHY,
    consumer: Consumer = CUDA,
    by: str = "",
) -> Example:
    """A wrong and a right value of a field, or `by` another one; `...` is that of the base."""
    attribute = by or re.sub(r"^\w+\(|[\[)].*$", "", field)
    values = (getattr(base, attribute) if value is ... else value for value in (wrong, right))
    broken, twin = (replace(base, **{attribute: value}) for value in values)
    return consumer, broken, field, twin


ALONE: dict[str, list[Example]] = {
    "data-type": [
        alone("data_type", UNKNOWN, by="element"),
        (JAXLIB, replace(HEALTHY, element=tensor_map_type(-1)), "data_type", BYTES),
    ],
    "jaxlib-data-type": [
        (JAXLIB, replace(HEALTHY, element=tensor_map_type(13)), "data_type", BYTES)
    ],
    "rank": [
        alone("rank", 6, base=MAX_SIZE),
        (CUDA, Descriptor(BFLOAT16, 0, (), (), (), ()), "rank", LINE),
    ],
    "rank-interleaved": [alone("rank", 1, base=FLAT, by="interleave")],
    "entries": [
        alone("len(global_strides)", (256,)),
        alone("len(box_dims)", (64, 128), consumer=JAXLIB),
    ],
    "descriptor-address": [alone("descriptor_address", 0x7FFD054484E0)],
    "address": [
        alone("address", 0x7F4C49E08808, 0x7F4C49E08810),
        alone("address", 16, 32, base=replace(INTERLEAVED, box_dims=(16, 8, 1))),
        alone("address", 16, None, base=PACKED),
    ],
    "dims": [
        alone("global_dims[1]", (128, 0, 8), (128, 1, 8)),
        alone("global_dims[2]", (128, 57, (1 << 32) + 1), (128, 57, 1 << 32), consumer=MOSAIC),
    ],
    "dims-packed": [
        alone("global_dims[0]", (192, 57, 8), (256, 57, 8), base=PACKED),
        alone("global_dims[0]", (127, 57, 8), (126, 57, 8), base=replace(PACKED, element=U4_8)),
    ],
    "stride-alignment": [
        alone("global_strides[1]", (264, 14592), (272, 14592)),
        alone("global_strides[2]", (256, 2), (256, 0)),
        alone("global_strides[1]", (272, 14592), (288, 14592), base=INTERLEAVED),
        alone("global_strides[1]", ..., U4_8, base=PACKED_80, by="element"),
    ],
    "stride-range": [
        alone("global_strides[2]", (256, 1 << 40), (256, (1 << 40) - 16)),
        alone("global_strides[1]", (-256, 14592)),
    ],
    "box": [
        alone("box_dims[1]", (64, 257, 1), (64, 256, 1)),
        alone("box_dims[2]", (64, 128, 0), consumer=MOSAIC),
    ],
    "box-size": [alone("prod(box_dims)", (64, 229, 8), (64, 228, 8))],
    "box-bytes": [
        alone("box_dims[0]", (60, 128, 1), (56, 128, 1)),
        alone("box_dims[0]", 0, 1, base=BOX_OF_8_BYTES, by="interleave"),
    ],
    "box-packed": [alone("box_dims[0]", ..., U4_8, base=PACKED_BOX, by="element")],
    "element-strides": [
        alone("element_strides[1]", (1, 9, 1), (9, 8, 1)),
        alone("element_strides[0]", 1, 0, base=STEPS_OF_0, by="interleave"),
    ],
    "interleave": [alone("interleave", 3, 1)],
    "interleave-packed": [
        alone("interleave", U6, U4_16, base=replace(PACKED, interleave=1), by="element")
    ],
    "interleave-swizzle": [alone("swizzle", 3, base=INTERLEAVED)],
    "swizzle": [alone("swizzle", 7, 6), alone("swizzle", -1, 0, consumer=JAXLIB)],
    "swizzle-span": [
        alone("box_dims[0]", ..., 0, base=BOX_OF_144_BYTES, by="swizzle"),
        alone("box_dims[0]", ..., (32, 128, 1), base=replace(HEALTHY, swizzle=2), consumer=XLA),
        alone("box_dims[0]", ..., 1, base=replace(HEALTHY, swizzle=1), by="interleave"),
    ],
    "swizzle-packed": [
        alone("swizzle", 5, 4, base=PACKED),
        alone("swizzle", U4_16, U6, base=replace(PACKED, swizzle=6), by="element"),
    ],
    "l2-promotion": [alone("l2_promotion", 4, 3)],
    "oob-fill": [(CUDA, replace(HEALTHY, oob_fill=2, element=FLOAT16), "oob_fill", HEALTHY)],
    "nan-fill": [alone("oob_fill", INT32, FLOAT32, base=NAN_FILL, by="element")],
    "innermost-stride": [
        alone("global_strides[0]", 2, consumer=consumer, by="innermost_stride")
        for consumer in (JAXLIB, MOSAIC)
    ],
    "plain-swizzle": [alone("swizzle", 4, consumer=consumer) for consumer in (XLA, JAXLIB, MOSAIC)],
    "element-size": [
        alone("element_size", SIZE_16, SIZE_8, base=UNSWIZZLED, consumer=XLA, by="element"),
        alone("element_size", U4_8, BFLOAT16, base=PACKED_128, consumer=XLA, by="element"),
    ],
    "stride-chain": [alone("global_strides[2]", (256, 14720), (256, 14592), consumer=XLA)],
    "stride-covers-dim": [alone("global_strides[1]", (112, 14560), (128, 14592), consumer=XLA)],
    "first-element-stride": [alone("element_strides[0]", (2, 1, 1), (1, 2, 1), consumer=XLA)],
}
"""For each condition: who asks, what breaks it and nothing else, which field; the legal twin."""


# ---- conditions


def test_every_condition_has_an_example() -> None:
    assert list(ALONE) == list(CONDITIONS)


@pytest.mark.parametrize("name", ALONE)
def test_a_descriptor_breaks_one_condition_and_its_twin_breaks_none(name: str) -> None:
    for consumer, broken, field, twin in ALONE[name]:
        found = violations(broken, consumer)
        assert [(v.condition, v.field) for v in found] == [(name, field)], broken
        assert violations(twin, consumer) == (), twin


@pytest.mark.parametrize("consumer", Consumer)
def test_a_healthy_descriptor_breaks_nothing_for_anybody(consumer: Consumer) -> None:
    assert violations(HEALTHY, consumer) == ()


def test_the_largest_legal_descriptor_is_legal() -> None:
    assert violations(MAX_SIZE) == ()


def test_who_reads_it_first_is_named_with_the_message_it_prints() -> None:
    broken = replace(HEALTHY, global_strides=(264, 14592))
    sources = {consumer: violations(broken, consumer)[0].source for consumer in Consumer}
    assert sources[Consumer.CUDA] == "cuTensorMapEncodeTiled, CUDA driver API manual"
    assert "tma_metadata.cc" in sources[Consumer.XLA]
    assert "triton_kernels.cc" in sources[Consumer.JAXLIB]
    assert "mosaic/gpu/runtime.cc" in sources[Consumer.MOSAIC]


def test_what_only_launchers_ask_does_not_bind_the_driver() -> None:
    odd = replace(HEALTHY, innermost_stride=2, swizzle=4, element_strides=(2, 1, 1))
    assert violations(odd, Consumer.CUDA) == ()
    assert [v.condition for v in violations(odd, Consumer.JAXLIB)] == [
        "innermost-stride",
        "plain-swizzle",
    ]


def test_a_box_larger_than_the_tensor_is_filled_and_no_violation() -> None:
    assert violations(replace(HEALTHY, global_dims=(8, 1, 1), global_strides=(16, 16))) == ()


def test_every_violation_says_field_value_and_bound() -> None:
    broken = replace(HEALTHY, box_dims=(60, 300, 1), swizzle=2, oob_fill=7)
    assert said(broken) == [
        "box_dims[1] is 300, must be 1 to 256",
        "box_dims[0] is 60, must be a multiple of 16 bytes of BFLOAT16; this is 120 bytes",
        "box_dims[0] is 60, must be at most 32 elements of BFLOAT16: swizzle 64B spans 64 bytes, "
        "not 120",
        "oob_fill is 7, must be one of 0 (NONE), 1 (NAN_REQUEST_ZERO_FMA)",
    ]


# ---- descriptors


def test_row_major_element_strides_become_bytes_with_the_innermost_first() -> None:
    descriptor = Descriptor.from_row_major(
        BFLOAT16, (32, 1, 128), (128, 1, 1), (1, 128, 64), swizzle=3
    )
    assert descriptor.global_dims == (128, 1, 32)
    assert descriptor.global_strides == (2, 256)
    assert descriptor.box_dims == (64, 128, 1)
    assert descriptor.row_major_strides() == (128, 1, 1)


@pytest.mark.parametrize("stride", range(1, 65))
def test_a_stride_of_half_bytes_is_judged_by_its_bits(stride: int) -> None:
    descriptor = Descriptor.from_row_major(U4_8, (2, 64), (stride, 1), (1, 32))
    assert (violations(descriptor) == ()) == (stride * 4 % 128 == 0)


# ---- repairs

sizes = st.sampled_from([1, 1, 2, 8, 57, 128, 1 << 20])
any_stride = st.one_of(
    st.integers(-4, 70), st.integers(0, 64).map(lambda n: n * 16), st.just(1 << 40)
)


@st.composite
def descriptors(draw: st.DrawFn) -> Descriptor:
    rank = draw(st.integers(1, 5))
    return Descriptor(
        draw(st.sampled_from([BFLOAT16, FLOAT32, U4_8, U4_16, U6, UNKNOWN])),
        rank,
        tuple(draw(sizes) for _ in range(rank)),
        tuple(draw(any_stride) for _ in range(rank - 1)),
        tuple(draw(st.integers(0, 300)) for _ in range(rank)),
        (1,) * rank,
        interleave=draw(st.sampled_from([0, 0, 1, 2])),
        swizzle=draw(st.integers(0, 6)),
    )


def strides_wrong(descriptor: Descriptor) -> list[TmaViolation]:
    known = replace(descriptor, element=INT32) if not descriptor.element.bits else descriptor
    return [v for v in violations(known) if v.field.startswith("global_strides")]


@pytest.mark.slow
@settings(max_examples=400)
@given(descriptors())
def test_a_repair_leaves_no_wrong_stride_and_touches_nothing_else(before: Descriptor) -> None:
    after = repair(before)
    wrong = strides_wrong(before)
    if any(not violation.degenerate for violation in wrong):
        assert after is None
        return
    assert after is not None
    assert strides_wrong(after) == []
    assert replace(after, global_strides=before.global_strides) == before
    changed = {
        f"global_strides[{dimension}]"
        for dimension, (a, b) in enumerate(
            zip(before.global_strides, after.global_strides, strict=True), 1
        )
        if a != b
    }
    assert changed == {violation.field for violation in wrong}


def byte_addresses(descriptor: Descriptor) -> list[int]:
    steps = (descriptor.element.bits // 8, *descriptor.global_strides)
    return [
        sum(index * step for index, step in zip(place, steps, strict=True))
        for place in product(*(range(size) for size in descriptor.global_dims))
    ]


@pytest.mark.parametrize("dims", [*product((1, 3, 8), (1, 2, 5), (1, 2, 3), (1, 2))])
def test_a_repaired_descriptor_reads_the_same_bytes(dims: tuple[int, ...]) -> None:
    strides = tuple(
        2 if size == 1 else stride for size, stride in zip(dims[1:], (16, 96, 480), strict=True)
    )
    before = Descriptor(BFLOAT16, 4, dims, strides, (8, 1, 1, 1), (1, 1, 1, 1))
    after = present(repair(before))
    assert byte_addresses(after) == byte_addresses(before)
    assert violations(after) == ()


def test_the_stride_of_the_report_becomes_the_dense_one() -> None:
    (first, *_) = log("cutlass_size_1_stride.txt").descriptors
    assert first.descriptor.global_strides == (2, 256)
    repaired = present(repair(first.descriptor))
    assert repaired.global_strides == (256, 256)
    assert repaired.row_major_strides() == (128, 128, 1)


def test_a_dense_stride_beyond_the_limit_becomes_the_one_below() -> None:
    high = replace(HEALTHY, global_dims=(128, 9, 1), global_strides=(1 << 39, 2))
    repaired = present(repair(high))
    assert repaired.global_strides == (1 << 39, 1 << 39)


def test_a_repaired_stride_spans_all_of_the_dimension_below() -> None:
    repaired = present(repair(replace(HEALTHY, global_dims=(128, 57, 1), global_strides=(256, 2))))
    assert repaired.global_strides == (256, 256 * 57)


def test_a_stride_beside_an_arbitrary_one_is_no_multiple_by_no_fault_of_its_own() -> None:
    arbitrary = replace(HEALTHY, global_dims=(128, 1, 8), global_strides=(1024, 256))
    (violation,) = violations(arbitrary, Consumer.XLA)
    assert (violation.field, violation.degenerate) == ("global_strides[2]", True)


def test_a_healthy_descriptor_is_its_own_repair() -> None:
    assert repair(HEALTHY) == HEALTHY


# ---- logs


def test_the_log_of_the_report_names_the_arbitrary_stride_three_times() -> None:
    text = text_of("cutlass_size_1_stride.txt")
    found = read_log(text)
    assert found.unreadable == ()
    assert [located.descriptor.global_dims for located in found.descriptors] == [
        (128, 1, 32),
        (128, 1, 8),
        (128, 1, 8),
    ]
    for located in found.descriptors:
        (violation,) = violations(located.descriptor)
        assert str(violation) == (
            "global_strides[1] is 2, must be a multiple of 16"
            " (an arbitrary stride of a dimension of size 1)"
        )
        start, end = located.place(violation.field)
        assert text[start - 3 : end + 5] == "(2,2,256,"


def test_the_healthy_twin_of_the_report_breaks_nothing() -> None:
    found = log("cutlass_size_1_stride_repaired.txt")
    assert [violations(located.descriptor) for located in found.descriptors] == [()] * 3
    broken = log("cutlass_size_1_stride.txt").descriptors
    assert [repair(located.descriptor) for located in broken] == [
        located.descriptor for located in found.descriptors
    ]


def test_a_padded_row_cannot_be_repaired_by_its_stride() -> None:
    (located,) = log("fmha_padded_row.txt").descriptors
    assert located.descriptor.global_dims == (100, 57, 8, 3)  # the fifth number is not a dimension
    assert said(located.descriptor) == [
        "global_strides[1] is 200, must be a multiple of 16",
        "global_strides[2] is 11400, must be a multiple of 16",
    ]
    assert repair(located.descriptor) is None


def test_what_the_attention_kernels_do_not_print_is_what_they_pass() -> None:
    (located,) = log("fmha_padded_row.txt").descriptors
    assert located.descriptor.l2_promotion == 2


def test_a_field_counts_where_it_first_stands() -> None:
    text = text_of("cutlass_size_1_stride.txt")
    again = text.replace("\nboxDim", "\nformat         6\nboxDim", 1)
    assert read_log(again).descriptors[0].descriptor.element == BFLOAT16


def test_descriptors_are_found_between_other_lines_and_after_prefixes() -> None:
    found = log("several_in_a_log.txt")
    assert found.unreadable == ()
    assert [len(violations(located.descriptor)) for located in found.descriptors] == [1, 2, 0]
    alone = log("cutlass_size_1_stride.txt").descriptors[0].descriptor
    assert found.descriptors[0].descriptor == alone
    assert found.descriptors[1].descriptor == log("fmha_padded_row.txt").descriptors[0].descriptor


def test_a_damaged_log_says_what_is_missing_and_reads_the_rest() -> None:
    text = text_of("damaged.txt")
    found = read_log(text)
    assert [damaged.message for damaged in found.unreadable] == [
        "a TMA descriptor without globalStrides", "expected 3 numbers in boxDim, got 2",
        "expected 4 numbers in Shape, got 2", "a number out of range in globalDim",
        "a TMA descriptor without format",
    ]  # fmt: skip
    assert [text[start:end] for _, start, end in found.unreadable][1:3] == ["(64,12", "100 57"]
    assert len(found.descriptors) == 1


@pytest.mark.parametrize("name", NAMES)
def test_each_place_holds_the_number_that_was_read(name: str) -> None:
    text = text_of(name)
    for located in read_log(text).descriptors:
        descriptor = located.descriptor
        lists = {
            "global_dims": (0, descriptor.global_dims),
            "global_strides": (1, descriptor.global_strides),
            "box_dims": (0, descriptor.box_dims),
            "element_strides": (0, descriptor.element_strides),
        }
        for field, (first, values) in lists.items():
            for dimension, value in enumerate(values, first):
                assert text[slice(*located.place(f"{field}[{dimension}]"))] == str(value)
        for field, number in (("data_type", descriptor.element.number), ("rank", descriptor.rank)):
            assert text[slice(*located.place(field))] == str(number)
        assert int(text[slice(*located.place("address"))], 16) == descriptor.address


@pytest.mark.parametrize("name", NAMES)
def test_a_log_cut_anywhere_is_read_without_a_crash(name: str) -> None:
    text = text_of(name)[:700]
    whole = [located.descriptor for located in read_log(text).descriptors]
    for end in range(len(text)):
        found = [located.descriptor for located in read_log(text[:end]).descriptors]
        assert found[:-1] == whole[: max(len(found) - 1, 0)]


@pytest.mark.slow
@settings(max_examples=200)
@given(st.data())
def test_a_log_with_any_character_changed_is_read_without_a_crash(data: st.DataObject) -> None:
    text = text_of(data.draw(st.sampled_from(NAMES)))
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + data.draw(st.text(max_size=3)) + text[at + 1 :]
    for located in read_log(changed).descriptors:
        assert 0 <= located.span.start < located.span.end <= len(changed)
        violations(located.descriptor)
        repair(located.descriptor)


def test_windows_line_ends_are_line_ends() -> None:
    plain = text_of("several_in_a_log.txt")
    found = read_log(plain.replace("\n", "\r\n")).descriptors
    assert [located.descriptor for located in found] == [
        located.descriptor for located in read_log(plain).descriptors
    ]


def test_a_null_pointer_is_an_address() -> None:
    text = text_of("cutlass_size_1_stride.txt").replace("0x7f4c49e08800", "0")
    assert read_log(text).descriptors[0].descriptor.address == 0


def test_a_rank_beyond_what_is_printed_is_a_violation() -> None:
    text = text_of("cutlass_size_1_stride_repaired.txt")
    ranked = text.replace("dim            3", "dim            6")
    (first, *_) = read_log(ranked).descriptors
    assert said(first.descriptor) == ["rank is 6, must be 1 to 5"]


def test_a_field_too_far_away_is_not_looked_for() -> None:
    text = text_of("cutlass_size_1_stride.txt")
    far = text.replace("\nglobalStrides", "\n" * MAX_LENGTH + "globalStrides", 1)
    assert [u.message for u in read_log(far).unreadable] == [
        "a TMA descriptor without globalStrides"
    ]


def test_a_text_is_known_for_a_log_by_its_words() -> None:
    assert all(file_type_of("run.log", text_of(name)) is FileType.TMA_LOG for name in NAMES)
    assert file_type_of("run.log", "HloModule m\n\nENTRY e {\n}\n") is FileType.HLO
    words = "Bug: TMA Descriptor Initialization Failure, its"
    assert file_type_of("run.log", words) is FileType.HLO
    assert read_log("HloModule m") == Log((), ())


# ---- the grammar


def grammar_numbers(text: str) -> dict[str, list[str]]:
    """The numbers after each word of a printed descriptor, as the grammar reads them."""
    (tree,) = grammar_parser("tma_log").parse(text).children
    assert not isinstance(tree, str)
    found: dict[str, list[str]] = {}
    scalars = [str(leaf) for leaf in tree.children if isinstance(leaf, Token)]
    found["scalars"] = [leaf for leaf in scalars if not leaf.startswith("Error")]
    lists = [child for child in tree.children if not isinstance(child, str)]
    for name, child in zip(("dims", "strides", "box", "steps"), lists, strict=False):
        found[name] = [str(leaf) for leaf in leaves(child)]
    return found


def leaves(tree: Tree[Token]) -> Iterator[Token]:
    yield from tree.scan_values(lambda leaf: isinstance(leaf, Token))


def test_grammar_and_reader_read_the_same_logs() -> None:
    blocks = [
        "TMA Desc Addr:" + block
        for block in text_of("cutlass_size_1_stride.txt").split("TMA Desc Addr:")[1:]
    ]
    for block in [*blocks, text_of("fmha_padded_row.txt")]:
        read = grammar_numbers(block)
        descriptor = read_log(block).descriptors[0].descriptor
        rank, cutlass = descriptor.rank, block.startswith("TMA")
        strides = read["strides"][1:] if cutlass else read["strides"]
        assert read["dims"][:rank] == [str(n) for n in descriptor.global_dims]
        assert strides[: rank - 1] == [str(n) for n in descriptor.global_strides]
        assert read["box"][:rank] == [str(n) for n in descriptor.box_dims]
        assert read["steps"][:rank] == [str(n) for n in descriptor.element_strides]
        numbers = [int(scalar, 0) for scalar in read["scalars"]]
        if cutlass:
            assert numbers == [
                *(descriptor.descriptor_address, descriptor.element.number, rank),
                *(descriptor.address, descriptor.interleave, descriptor.swizzle),
                *(descriptor.l2_promotion, descriptor.oob_fill),
            ]
        else:
            assert numbers == [
                *(descriptor.element.number, rank, descriptor.address, descriptor.swizzle)
            ]


# ---- XLA

ATTRIBUTE = (
    "#triton_xla.tma_descriptor<global_shape = [512, 4, 128], tile_shape = [64, 1, 64], "
    "tile_strides = [1, 1, 1], layout = [2, 1, 0], element_byte_size = 2{mode}>"
)
SWIZZLED = ATTRIBUTE.format(mode=', swizzle_mode = "128b"')
PLAIN = ATTRIBUTE.format(mode="")
MESSAGE = (
    "TmaDescriptor{element_size: 4, global_dims: {128,1,32}, global_strides: {4,512}, "
    "box_dims: {32,1,1}, element_strides: {1,1,1}, interleave: 0, swizzle: 3, l2_promotion: 2, "
    "float_oob_fill: 0}"
)


@pytest.mark.parametrize(("text", "swizzle"), [(PLAIN, 0), (SWIZZLED, 3)])
def test_an_attribute_of_xla_is_dense_in_its_layout(text: str, swizzle: int) -> None:
    (located,) = read_descriptors(f"#tma_descriptor = {text}\n")
    descriptor = located.descriptor
    assert descriptor.global_dims == (128, 4, 512)
    assert descriptor.global_strides == (256, 1024)
    assert descriptor.box_dims == (64, 1, 64)
    assert descriptor.swizzle == swizzle
    assert violations(descriptor, located.consumer) == ()


def test_a_swizzled_box_is_as_wide_as_the_swizzle() -> None:
    text = SWIZZLED.replace("element_byte_size = 2", "element_byte_size = 4")
    (located,) = read_descriptors(text)
    assert located.descriptor.box_dims == (32, 1, 64)
    assert violations(located.descriptor, located.consumer) == ()


def test_a_tile_with_steps_is_a_box_as_wide_as_its_steps() -> None:
    text = PLAIN.replace("tile_strides = [1, 1, 1]", "tile_strides = [2, 1, 1]")
    (located,) = read_descriptors(text)
    assert located.descriptor.box_dims == (64, 1, 128)
    assert located.descriptor.element_strides == (1, 1, 2)


def test_a_minor_dimension_of_size_1_makes_the_next_stride_an_element() -> None:
    text = PLAIN.replace("[512, 4, 128]", "[512, 4, 1]").replace("[64, 1, 64]", "[64, 1, 8]")
    (located,) = read_descriptors(text)
    found = violations(located.descriptor, located.consumer)
    assert [str(violation) for violation in found] == [
        "global_strides[1] is 2, must be a multiple of 16",
        "global_strides[2] is 8, must be a multiple of 16",
    ]
    assert "tma_metadata.cc" in found[0].source
    assert text[slice(*located.place("global_strides[1]"))] == "1"


def test_a_descriptor_that_each_pass_prints_is_read_once() -> None:
    text = "\n".join([PLAIN, SWIZZLED, PLAIN, SWIZZLED, PLAIN])
    found = list(read_descriptors(text))
    assert [located.descriptor.swizzle for located in found] == [0, 3]
    assert [text[slice(*located.span)] for located in found] == [PLAIN, SWIZZLED]


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.replace("layout = [2, 1, 0]", "layout = [2, 1, 1]"),
        PLAIN.replace("layout = [2, 1, 0]", "layout = [1, 0]"),
        PLAIN.replace("tile_shape = [64, 1, 64]", "tile_shape = [64, 1]"),
        PLAIN.replace("128]", "9" * 5000 + "]"), PLAIN[:-1], SWIZZLED.replace("128b", "96b"),
        MESSAGE[:-1],
    ],
)  # fmt: skip
def test_what_is_no_descriptor_of_xla_is_left_out(text: str) -> None:
    assert list(read_descriptors(text)) == []


def test_xla_prints_a_descriptor_in_a_message() -> None:
    text = f"INVALID_ARGUMENT: {MESSAGE} was refused"
    (located,) = read_descriptors(text)
    assert located.descriptor.global_dims == (128, 1, 32)
    found = violations(located.descriptor, located.consumer)
    assert [(v.condition, v.field, v.degenerate) for v in found] == [
        ("stride-alignment", "global_strides[1]", True),
        ("stride-covers-dim", "global_strides[1]", True),
    ]
    assert text[slice(*located.place("global_strides[1]"))] == "4"
    repaired = present(repair(located.descriptor))
    assert violations(repaired, Consumer.XLA) == ()


@pytest.mark.parametrize("text", [PLAIN, SWIZZLED, MESSAGE])
def test_the_grammar_reads_the_numbers_of_xla(text: str) -> None:
    (located,) = read_descriptors(text)
    read = grammar_numbers(text)
    descriptor = located.descriptor
    if text == MESSAGE:
        assert read["dims"] == [str(n) for n in descriptor.global_dims]
        assert read["strides"] == [str(n) for n in descriptor.global_strides]
        assert read["box"] == [str(n) for n in descriptor.box_dims]
    else:
        assert read["dims"] == [str(n) for n in reversed(descriptor.global_dims)]
        assert read["steps"] == ["2", "1", "0"]


def test_a_text_of_xla_is_known_by_its_words() -> None:
    assert file_type_of("run.log", PLAIN) is FileType.TMA_LOG
    assert file_type_of("run.log", MESSAGE) is FileType.TMA_LOG
    assert file_type_of("run.log", "tt.tma_descriptor = #tma_descriptor1") is FileType.HLO
