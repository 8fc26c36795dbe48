"""Attributes as values: readers and grammars agree, and errors say what is wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_lint.hlo.attributes import devices, origin, sharding
from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError
from hlo_lint.hlo.attributes.devices import AxisRef, Iota, Mesh, MeshReplicaGroups, ReplicaGroupList
from hlo_lint.hlo.attributes.metadata import OpMetadata
from hlo_lint.hlo.attributes.origin import Origin, OriginalArray
from hlo_lint.hlo.attributes.plain import Alias, Donor, Tolerance
from hlo_lint.hlo.attributes.reading import read_attribute
from hlo_lint.hlo.attributes.shapes import ProgramShape, TypedLiteral
from hlo_lint.hlo.attributes.sharding import DimensionSharding, Domain, NamedSharding, TiledSharding
from hlo_lint.hlo.attributes.splitting import split_attributes
from hlo_lint.hlo.attributes.windows import ConvolutionDimensionNumbers, WindowDimension
from hlo_lint.hlo.parser.mlir_dictionary import Dictionary
from hlo_lint.hlo.parser.stack_frames import Frame, read_stack_frames
from hlo_lint.hlo.shape import ShapeSyntaxError, parse_shape
from tests.hlo.by_grammar import read_by_grammar

X, Y = AxisRef("x"), AxisRef("y")
XY = Mesh((devices.MeshAxis("x", 2), devices.MeshAxis("y", 4)))
TURNED = Mesh(XY.axes, Iota((4, 2), (1, 0)))
PAIR = parse_shape("(s32[], token[])")
REPLICATED, OPEN_X = TiledSharding("replicated"), DimensionSharding((X,), False)
ON_X = NamedSharding(Mesh(XY.axes[:1]), (DimensionSharding((X,)), DimensionSharding(())))

VALUES: list[tuple[str, str, object]] = [
    ("sharding", "{replicated}", TiledSharding("replicated")),
    ("sharding", "{maximal device=3}", TiledSharding("maximal", devices=(3,))),
    ("sharding", "{single_device[device_id=1]}", NamedSharding(Mesh((), (1,)))),
    (
        "sharding",
        "{{replicated}, {maximal device=1}, /*index=2*/{mesh['x'=2], [{'x'}, {}]}}",
        sharding.TupleSharding((REPLICATED, TiledSharding("maximal", devices=(1,)), ON_X)),
    ),
    ("sharding", "{devices=[2,1]0,1}", TiledSharding("tiled", (2, 1), (0, 1))),
    ("sharding", "{devices=[2,1]<=[2]}", TiledSharding("tiled", (2, 1), Iota((2,), (0,)))),
    (
        "sharding",
        "{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}",
        TiledSharding("tiled", (2, 1, 2), Iota((2, 2), (1, 0)), ("replicated",)),
    ),
    (
        "sharding",
        '{devices=[2,2]0,1,2,3 last_tile_dims={manual} shard_as 7 metadata={op_name="a"}}',
        TiledSharding(
            *("tiled", (2, 2), (0, 1, 2, 3), ("manual",), sharding.ShardGroup("shard_as", 7)),
            (OpMetadata(op_name="a"),),
        ),
    ),
    (
        "sharding",
        "{{replicated}, {manual}}",
        sharding.TupleSharding((REPLICATED, TiledSharding("manual"))),
    ),
    ("sharding", "{}", sharding.TupleSharding(())),
    (
        "sharding",
        "{mesh['x'=2,'y'=4], [{'x', 'y'}, {?}, {'x', ?}]}",
        NamedSharding(XY, (DimensionSharding((X, Y)), DimensionSharding((), False), OPEN_X)),
    ),
    ("sharding", "{mesh['x'=2,'y'=4], manual}", NamedSharding(XY, manual=(X, Y))),
    ("sharding", "{mesh[], replicated}", NamedSharding(Mesh(()))),
    ("sharding", "{maximal_mesh[device_id=3]}", NamedSharding(Mesh((), (3,)))),
    (
        "sharding",
        "{mesh['x'=2,'y'=4], device_ids=([4,2]T(1,0)), [{}], replicated={'y':(1)2}, "
        'unreduced=max{\'x\'}, metadata={{op_name="a"}, {op_name="b"}}}',
        NamedSharding(
            *(TURNED, (DimensionSharding(()),), (AxisRef("y", (1, 2)),), (X,)),
            reduction="max",
            metadata=(OpMetadata(op_name="a"), OpMetadata(op_name="b")),
        ),
    ),
    ("replica_groups", "{{0,1},{2}}", ReplicaGroupList(((0, 1), (2,)))),
    ("replica_groups", "{}", ReplicaGroupList(())),
    ("replica_groups", "[2,4]<=[8]", devices.IotaReplicaGroups(2, 4, Iota((8,), (0,)))),
    ("replica_groups", "[4,2]<=[2,4]T(1,0)", devices.IotaReplicaGroups(4, 2, Iota((2, 4), (1, 0)))),
    ("replica_groups", "mesh['x'=2,'y'=4] {'y'}", MeshReplicaGroups(XY, (Y,))),
    (
        "replica_groups",
        "mesh['x'=2,'y'=4], device_ids=([4,2]T(1,0)) {'y'}",
        MeshReplicaGroups(TURNED, (Y,)),
    ),
    (
        "replica_groups",
        "mesh['x'=2,'y'=4], device_ids=(0,1,2,3,4,5,7,6) {'x','y':(2)2}",
        MeshReplicaGroups(Mesh(XY.axes, (0, 1, 2, 3, 4, 5, 7, 6)), (X, AxisRef("y", (2, 2)))),
    ),
    (
        "window",
        "{size=3x2 stride=2x1 pad=1_1x0_-2 lhs_dilate=2x2 rhs_dilate=3x1 rhs_reversal=1x0}",
        (WindowDimension(3, 2, 1, 1, 2, 3, True), WindowDimension(2, 1, 0, -2, 2, 1, False)),
    ),
    ("window", "{ size = 3 }", (WindowDimension(3),)),
    ("window", "{}", ()),
    (
        "dim_labels",
        "b01f_01io->b10f",
        ConvolutionDimensionNumbers(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (2, 1)),
    ),
    ("dim_labels", "bf_io->b?f", ConvolutionDimensionNumbers(0, 1, (), 0, 1, (), 0, 2, ())),
    (
        "entry_computation_layout",
        "{(f32[8]{0}, /*index=1*/(s32[], token[]))->pred[]}",
        ProgramShape((parse_shape("f32[8]{0}"), PAIR), parse_shape("pred[]")),
    ),
    ("entry_computation_layout", "{()->()}", ProgramShape((), parse_shape("()"))),
    (
        "operand_layout_constraints",
        "{f32[8]{0}, s4[2]}",
        (parse_shape("f32[8]{0}"), parse_shape("s4[2]")),
    ),
    ("operand_layout_constraints", "{}", ()),
    ("outfeed_shape", "f32[4,8]{0,1}", parse_shape("f32[4,8]{0,1}")),
    ("origin", '{{"x" {1,0}}}', Origin(OriginalArray("x", (1, 0)))),
    ("original_value", '{({"x"}, ({}))}', Origin((OriginalArray("x"), (None,)))),
    ("origin", '{{"x"},["a/b"]}', Origin(OriginalArray("x"), "a/b")),
    ("origin", "{[synthetic_call]}", Origin((), "", True)),
    ("source_target_pairs", "{{0,1},{1,0}}", ((0, 1), (1, 0))),
    ("source_target_pairs", "{}", ()),
    ("slice_sizes", "{1,8}", (1, 8)),
    ("slice_sizes", "{{1,8},{2,2}}", ((1, 8), (2, 2))),
    ("operand_precision", "{high,default}", ("high", "default")),
    ("result_accuracy", "{mode=highest}", "highest"),
    ("result_accuracy", "{tolerance={atol=0,rtol=0.5,ulps=2}}", Tolerance(0.0, 0.5, 2)),
    (
        "statistics",
        "{visualizing_index=1,stat-1=33.5,stat-2=4}",
        (("visualizing_index", 1), ("stat-1", 33.5), ("stat-2", 4.0)),
    ),
    ("epsilon", "1e-05", 1e-05),
    ("allow_spmd_sharding_propagation_to_output", "{true,false}", (True, False)),
    ("allow_spmd_sharding_propagation_to_output", "true", (True,)),
    ("parameter_replication", "{false, /*index=1*/true}", (False, True)),
    ("buffer_donor", "{ (0, {}), (1, {2,0}) }", (Donor(0, ()), Donor(1, (2, 0)))),
    ("input_output_alias", "{ {}: (1, {0}, must-alias) }", (Alias((), 1, (0,), "must-alias"),)),
    ("algorithm", "dot_bf16_bf16_f32_x3", "dot_bf16_bf16_f32_x3"),
    ("schedule", "SCHEDULE_LATEST", "SCHEDULE_LATEST"),
    ("sparsity", "L.1@2:4", "L.1@2:4"),
]


@pytest.mark.parametrize(("name", "text", "value"), VALUES)
def test_reader_and_grammar_read_the_same_value(name: str, text: str, value: object) -> None:
    found = read_attribute(name, text)
    assert (found, type(found)) == (value, type(value))
    if name not in ("sparsity", "outfeed_shape"):
        by_grammar = read_by_grammar(name, text)
        assert (by_grammar, type(by_grammar)) == (value, type(value))


SIGNS = "{ } [ ] ( ) , : = <= ' \" ? - x _ T 0 1 %a true a.b # /*c*/".split()
OF_THE_VALUE = re.compile(
    "devices for|needs|names each|no axis|no such part|stands|once|as many|how many|one of"
)
"""Messages about a text that the grammar takes: its numbers or names do not fit together."""


def mutant(chance: Random, text: str) -> str:
    at = chance.randrange(len(text) + 1)
    return text[:at] + chance.choice(["", " ", *SIGNS]) + text[at + chance.randrange(2) :]


def test_reader_and_grammar_refuse_the_same_mutants() -> None:
    chance = Random(0)
    kept = [(name, text) for name, text, _ in VALUES if name not in ("sparsity", "outfeed_shape")]
    refused = 0
    for _ in range(4000):
        name, text = chance.choice(kept)
        for _ in range(chance.choice((1, 1, 2))):
            text = mutant(chance, text)
        try:
            value = read_attribute(name, text)
        except AttributeSyntaxError as error:
            refused += 1
            if not OF_THE_VALUE.search(error.message):
                with pytest.raises((AttributeSyntaxError, ShapeSyntaxError)):
                    read_by_grammar(name, text)
        else:
            assert value == read_by_grammar(name, text), (name, text)
    assert 1000 < refused < 3700


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("operand_precision", "{HIGH,Default}", ("high", "default")),
        ("distribution", "RNG_Uniform", "rng_uniform"),
        ("algorithm", "DOT_F32_F32_F32", "dot_f32_f32_f32"),
        ("api_version", "api_version_typed_ffi", "API_VERSION_TYPED_FFI"),
        ("result_accuracy", "{mode=HIGHEST}", "highest"),
        ("direction", "lt", "lt"),
    ],
)
def test_a_word_has_the_case_that_xla_prints(name: str, text: str, value: object) -> None:
    assert read_attribute(name, text) == read_by_grammar(name, text) == value


def spaced(text: str) -> str:
    """The same value with white space wherever a bracket or comma stands outside of words."""
    return "".join(f" {sign} /* , */ " if sign in "{}[]()," else sign for sign in text)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        (name, text, value)
        for name, text, value in VALUES
        if name not in ("sparsity", "dim_labels", "outfeed_shape")
        and '"' not in text
        and "'" not in text
    ],
)
def test_blanks_and_comments_are_no_part_of_a_value(name: str, text: str, value: object) -> None:
    odd = spaced(text).replace(" [synthetic_call] ", "[synthetic_call]")
    if "synthetic" not in text:
        assert read_attribute(name, odd.strip()) == value


def test_a_domain_has_two_sides() -> None:
    text = '{kind="sharding", entry={maximal device=0}, exit={replicated}}'
    entry = TiledSharding("maximal", devices=(0,))
    assert read_attribute("domain", text) == Domain("sharding", entry, REPLICATED)


def test_a_configuration_is_json_or_a_dictionary_of_mlir() -> None:
    found = read_attribute("backend_config", '{grid_x = 4 : i32, ir = "ML\\EF"}')
    assert isinstance(found, Dictionary)
    assert found.values == {"grid_x": 4, "ir": b"ML\xef"}
    assert read_attribute("backend_config", '{"a":[{}]}') == {"a": [{}]}
    assert read_attribute("backend_config", "{neither, nor") == "{neither, nor"


def test_a_frontend_attribute_in_braces_may_nest() -> None:
    text = '{a="b",c={"d":{"e":"}"}},f={g = {h = 1}}}'
    assert read_attribute("frontend_attributes", text) == {
        "a": "b",
        "c": '{"d":{"e":"}"}}',
        "f": "{g = {h = 1}}",
    }


def test_a_literal_as_an_attribute_is_numpy_on_demand() -> None:
    found = read_attribute("literal", "s32[2]{0} {1, 2}")
    assert found == TypedLiteral(parse_shape("s32[2]{0}"), "{1, 2}")
    assert isinstance(found, TypedLiteral)
    numpy = pytest.importorskip("numpy")
    assert numpy.array_equal(found.value, [1, 2])
    assert read_attribute("literal", "f32[] 4") == TypedLiteral(parse_shape("f32[]"), "4")


def test_the_order_of_devices_belongs_to_the_mesh_in_front_of_it() -> None:
    tail = ", replica_groups=mesh['x'=2], device_ids=(1,0) {'x'}, to_apply=%add"
    spans = {name: tail[start:end] for name, (start, end) in split_attributes(tail).items()}
    assert spans == {"replica_groups": "mesh['x'=2], device_ids=(1,0) {'x'}", "to_apply": "%add"}


def test_a_field_of_metadata_may_stand_behind_a_blank() -> None:
    text = '{op_name= "a" source_line=\n3 profile_type={1, 2}}'
    expected = OpMetadata(op_name="a", source_line=3, profile_type=(1, 2))
    assert read_attribute("metadata", text) == expected
    assert read_by_grammar("metadata", text) == expected


def test_stack_frames_are_read_as_loosely_as_xla_reads_them() -> None:
    tables = (
        'FileNames\n1"a \\"b\\".py"\n\nFunctionNames\n 1  "<module>"',
        "FileLocations\n1 {file_name_id= 1 function_name_id=1 line=9}",
        "StackFrames\n1 {file_location_id=1 parent_frame_id=1}",
    )
    assert read_stack_frames(tables).stack(1) == (Frame('a "b".py', 9, "<module>"),)


# ---- devices


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("{{0,2},{1,3}}", ((0, 2), (1, 3))), ("[2,4]<=[8]", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("[4,2]<=[2,4]T(1,0)", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("[2,4]<=[2,2,2]T(2,0,1)", ((0, 2, 4, 6), (1, 3, 5, 7))),
        ("mesh['x'=2,'y'=4] {'x'}", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("mesh['x'=2,'y'=4] {'y'}", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("mesh['x'=2,'y'=4] {'x','y'}", ((0, 1, 2, 3, 4, 5, 6, 7),)),
        ("mesh['x'=2,'y'=4] {'y','x'}", ((0, 4, 1, 5, 2, 6, 3, 7),)),
        ("mesh['x'=2,'y'=4] {'y':(1)2}", ((0, 2), (1, 3), (4, 6), (5, 7))),
        ("mesh['x'=2,'y'=4] {'y':(2)2}", ((0, 1), (2, 3), (4, 5), (6, 7))),
        ("mesh['x'=2,'y'=4] {'y':(1)2,'x'}", ((0, 4, 2, 6), (1, 5, 3, 7))),
        ("mesh['x'=2,'y'=2], device_ids=(0,1,3,2) {'x'}", ((0, 3), (1, 2))),
        ("mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)) {'y'}", ((0, 2), (1, 3))),
        ("mesh['x'=4] {}", ((0,), (1,), (2,), (3,))), ("mesh['x'=0] {'x'}", ()),
    ],
)  # fmt: skip
def test_groups_of_all_forms_list_devices(text: str, groups: tuple[tuple[int, ...], ...]) -> None:
    found = read_attribute("replica_groups", text)
    assert isinstance(found, ReplicaGroupList | devices.IotaReplicaGroups | MeshReplicaGroups)
    assert found.groups == groups


def test_devices_of_a_hostile_size_are_not_listed() -> None:
    found = read_attribute("sharding", "{devices=[999999999,999]<=[999999999,999]T(1,0)}")
    assert isinstance(found, TiledSharding)
    with pytest.raises(OverflowError, match="too many to list"):
        devices.device_numbers(found.devices)


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4).flatmap(
        lambda dims: st.tuples(st.just(dims), st.permutations(range(len(dims))))
    )
)
def test_a_transposed_array_of_devices_is_numpys(case: tuple[list[int], Sequence[int]]) -> None:
    numpy = pytest.importorskip("numpy")
    dims, permutation = case
    whole = numpy.arange(numpy.prod(dims)).reshape(dims)
    expected = tuple(whole.transpose(permutation).ravel().tolist())
    assert Iota(tuple(dims), tuple(permutation)).devices == expected


# ---- errors

MALFORMED = {
    "sharding": {
        "expected a sharding in braces": "replicated; [; mesh['x'=2]",
        "expected devices=[…], replicated, manual, maximal device=0 or mesh[…]": (
            "{x}; {0}; {[]}; {()}; {manual x}"
        ),
        "expected a size": "{devices=[x]}; {devices=[2,x]}; {devices=[-2]0,1}",
        "expected devices, like 0,1,2,3 or <=[4]": "{devices=[2]x}; {devices=[2]}",
        "expected the order of the dimensions, like T(1,0)": (
            "{devices=[2]<=[2]T[0]}; {devices=[2]<=[2]T(x)}"
        ),
        "expected the kinds of subgroups, like {manual}": (
            "{last_tile_dims=x}; {last_tile_dims={x}}"
        ),
        "expected the number of a group": "{shard_as x}; {shard_like }",
        "expected an axis and its size, like 'x'=2": "{mesh[x]}; {mesh['x'=x]}",
        "expected an axis in single quotes": (
            "{mesh['x'=2], [{x}]}; {mesh['x'=2], [{'x',x}]}; {mesh['x'=2], [{}], manual={x}}"
        ),
        "expected the axes of each dimension, like [{'x'}, {}]": (
            "{mesh['x'=2], x}; {mesh['x'=2], [x]}; {mesh['x'=2], [{},x]}; {mesh['x'=2], {}}"
        ),
        "expected replicated, unreduced, manual or metadata": "{mesh['x'=2], [{}], x}",
        "a number does not fit": "{maximal device=18446744073709551616}",
    },
    "replica_groups": {
        "expected the axes of the groups, like {'x'}": "mesh['x'=2]; mesh['x'=2] x",
        "expected an axis and its size, like 'x'=2": "mesh[x]; mesh['x'=2,x]",
        "expected an axis in single quotes": "mesh['x'=2] {x}; mesh['x'=2] {'x',x}",
        "expected a group in braces": "{0}; {{0},0}; {x}",
        "expected the number of a device": "{{x}}; {{0,x}}; {{0,}}",
        "expected the sizes of all devices, like <=[8]": "[2,4]x; [2,4]<=x; [2,4]]",
        "expected the order of the dimensions, like T(1,0)": "[1,2]<=[2]T[0]",
        "a number does not fit": "{{99999999999999999999}}; [9223372036854775808,1]<=[1]",
    },
    "window": {
        "expected size, stride, pad, lhs_dilate, rhs_dilate or rhs_reversal": "{x}; {size=3 x}",
        "expected a number for each dimension, like 3x3": "{size=x}; {stride=}; {size=[3]}",
        "expected low_high for each dimension, like 1_1x0_0": "{pad=x}; {pad=1x1}",
        "a number does not fit": "{size=9223372036854775808}; {size=" + "9" * 5000 + "}",
    },
    "dim_labels": {"expected labels of dimensions, like b01f_01io->b01f": "i; bf_io->i; bf_io; "},
    "entry_computation_layout": {
        "expected shapes in braces, like {(f32[8]{0})->f32[8]{0}}": "{(f32[8])}; {f32[8]->()}"
    },
    "origin": {
        'expected an array, like {"x" {1}} or {}': "{x}; {(x)}; {({},x)}",
        "expected a name in double quotes": "{{x}}; {{1}}; {{}, [x]}",
        "expected an index, like {1,0}": '{{"x" x}}; {{"x" {x}}}; {{"x" {1,x}}}',
    },
}


@pytest.mark.parametrize(
    ("name", "message", "text"),
    [
        (name, message, text)
        for name, messages in MALFORMED.items()
        for message, texts in messages.items()
        for text in texts.split("; ")
    ],
)
def test_a_malformed_value_says_what_was_expected(name: str, message: str, text: str) -> None:
    with pytest.raises(AttributeSyntaxError) as raised:
        read_attribute(name, text)
    assert raised.value.message == message


@pytest.mark.parametrize(
    ("name", "text", "message", "offset"),
    [
        ("dimensions", "{0,a}", "expected a list of integers, like {1,0}", 3),
        ("dimensions", "{0,", "a bracket never closes", 3),
        ("index", "one", "expected an integer", 0),
        ("index", "", "expected an integer", 0),
        ("index", "9" * 5000, "a number does not fit", 0),
        ("is_stable", "maybe", "expected true or false", 0),
        ("slice", "{[0:4:1:2]}", "expected ranges, like {[0:4], [1:8:2]}", 7),
        (
            *("padding", "0"),
            "expected low_high or low_high_interior for each dimension, like 0_1x0_0_2",
            0,
        ),
        ("calls", "{%a", "a bracket never closes", 3),
        ("calls", "{%a %b}", "expected the name of a computation, or names in braces", 4),
        ("control-predecessors", "%a", "expected names in braces, like {%a, %b}", 0),
        ("custom_call_target", "foo", "expected a string in double quotes", 0),
        ("output_to_operand_aliasing", "{0}", "expected aliases, like {{0}: (1, {})}", 1),
        ("metadata", 'op_name="x"', "expected braces", 0),
        ("metadata", '{op_name="x" source_line}', "expected `field=value` in metadata", 24),
        ("metadata", "{source_line=x}", "source_line is an integer", 1),
        ("frontend_attributes", '{a="b" c="d"}', 'expected `name="text"`', 7),
        ("sharding", "{maximal}", "maximal needs one device", 1),
        ("sharding", "{devices=[2,1]0}", "1 devices for 2 places", 14),
        ("sharding", "{devices=[2,1]<=[3]}", "3 devices for 2 places", 16),
        ("sharding", "{devices=[2]<=[2]T(1)}", "a transposition names each dimension once", 17),
        (
            *("sharding", "{devices=[2,2]<=[2,2]}"),
            *("an array of several dimensions needs their order, like T(1,0)", 16),
        ),
        ("sharding", "{mesh['x'=2], [{'y'}]}", "the mesh has no axis y", 16),
        ("sharding", "{mesh['x'=4], [{'x':(1)3}]}", "axis x has no such part", 19),
        ("sharding", "{mesh['x'=2], [{?, 'x'}]}", "`?` may occur once, after the axes", 15),
        ("sharding", "{manual", "a bracket never closes", 7),
        ("sharding", "{mesh['x'=2], device_ids=(0), [{}]}", "1 devices for 2 places", 26),
        ("replica_groups", "[2]<=[2]", "expected how many groups, and how large: [2,4]", 0),
        ("replica_groups", "[2,4]<=[4]", "4 devices for 8 places", 7),
        (
            *("window", "{size=3x3 stride=1}"),
            *("every part of a window has as many numbers as it has dimensions", 10),
        ),
        ("window", "{size=3 size=3}", "size is given twice", 8),
        ("dim_labels", "bf_io->bb", "expected each of b, f once in bb", 7),
        ("dim_labels", "b02f_02io->b02f", "spatial dimensions are 0, 1, … each once", 0),
        (
            *("operand_layout_constraints", "{f32[8]{1,0}}"),
            *("a layout needs as many numbers as the shape has dimensions", 1),
        ),
        (
            "result_accuracy", "{mode}",
            "expected {mode=highest} or {tolerance={atol=0,rtol=0.1,ulps=2}}", 1,
        ),
        ("operand_precision", "high", "expected names in braces, like {%a, %b}", 0),
        ("direction", "{LT}", "expected a word", 0),
        ("buffer_donor", "{ 0 }", "expected parts of parameters, like { (0, {}), (1, {2}) }", 2),
        ("literal", "4", "expected a shape and a value, like s32[2]{0} {1, 2}", 0),
        ("domain", "{replicated}", 'expected kind="sharding", entry={…}, exit={…}', 1),
    ],
)  # fmt: skip
def test_an_error_points_at_its_place(name: str, text: str, message: str, offset: int) -> None:
    with pytest.raises(AttributeSyntaxError) as raised:
        read_attribute(name, text)
    error = raised.value
    assert (error.message, error.text, error.offset) == (message, text, offset)


KNOWN = sorted(
    {name for name, _, _ in VALUES} | {"domain", "literal", "metadata", "backend_config"}
)


def offset_of_error(name: str, text: str) -> int:
    """The position at which the text is not a value; 0 if it is one."""
    try:
        read_attribute(name, text)
    except AttributeSyntaxError as error:
        return error.offset
    return 0


@pytest.mark.slow
@settings(max_examples=300)
@given(
    st.sampled_from(KNOWN),
    st.text("{}[]()<=,:'\"xT0123mesh device_sharding_ids?%-/*\ud800", max_size=24)
    | st.text(max_size=8),
)
def test_any_text_is_a_value_or_an_error(name: str, text: str) -> None:
    assert 0 <= offset_of_error(name, text) <= len(text)


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("bracket", ["{", "(", "[", "{(", "{{[", '{"a":{'])
def test_brackets_nest_only_so_deep(name: str, bracket: str) -> None:
    text = bracket * 20_000
    assert 0 <= offset_of_error(name, text) <= len(text)


def test_brackets_that_nest_too_deep_say_so() -> None:
    text = "{" + "(" * origin.MAX_DEPTH + "({})" + ")" * origin.MAX_DEPTH + "}"
    with pytest.raises(AttributeSyntaxError, match="brackets nest deeper than 100"):
        read_attribute("origin", text)


def test_a_large_value_takes_linear_time() -> None:
    groups = ",".join(f"{{{n},{n + 1}}}" for n in range(0, 200_000, 2))
    found = read_attribute("replica_groups", f"{{{groups}}}")
    assert isinstance(found, ReplicaGroupList)
    assert len(found.groups) == 100_000
    layout = ", ".join(["f32[8,16]{1,0}"] * 50_000)
    program = read_attribute("entry_computation_layout", f"{{({layout})->f32[]}}")
    assert isinstance(program, ProgramShape)
    assert len(program.parameters) == 50_000
