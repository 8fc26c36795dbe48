"""The grammars specify, the fast readers are fast, and both say the same of every fixture."""

from __future__ import annotations

import random
import re
import sys
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lark import Token, UnexpectedInput

import hlo_lint
from hlo_lint.dumps.names import DumpName, parse_name
from hlo_lint.hlo.attributes import splitting
from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError
from hlo_lint.hlo.attributes.metadata import OpMetadata
from hlo_lint.hlo.attributes.plain import Alias, Padding, Slice
from hlo_lint.hlo.attributes.reading import KEPT_AS_TEXT, read_attribute
from hlo_lint.hlo.attributes.splitting import split_attributes, split_attributes_strictly
from hlo_lint.hlo.attributes.windows import WindowDimension
from hlo_lint.hlo.grammar import grammar_file, grammar_parser, terminals, trees
from hlo_lint.hlo.parser.general import SINGLE
from hlo_lint.hlo.parser.shapes import MAX_DEPTH, read_shape
from hlo_lint.hlo.records import name_of
from hlo_lint.hlo.shape import ArrayShape, ShapeSyntaxError, TupleShape, parse_shape
from hlo_lint.text.source import decode
from hlo_lint.text.stored import plain_name
from tests import conftest
from tests.conftest import DUMPS, ROUNDTRIP, completed
from tests.hlo.by_grammar import read_by_grammar, shape_by_grammar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hlo_lint.hlo.records import InstructionRecord
    from hlo_lint.hlo.shape import Shape

REPOSITORY = Path(__file__).resolve().parents[2]
FIXTURES = REPOSITORY / "fixtures"
GRAMMARS = (
    *("common", "shape", "instruction", "attribute", "dump_name"),
    *("sharding", "replica_groups", "window", "dim_labels"),
    *("program_shape", "origin", "literal"),
)
MAX_LINES = 4000
"""lark takes some 200 microseconds a line: of more lines than this a sample is read."""

HAND_WRITTEN = {
    "comment_between_every_token.hlo", "names_with_trailing_colon.hlo",
    "nested_instruction_as_operand.hlo", "nested_instruction_with_a_type.hlo",
    "nested_instructions_three_deep.hlo", "nested_parameters.hlo", "operands_nested_and_named.hlo",
    "operand_that_xla_drops.hlo", "single_instruction.hlo", "single_instruction_fusion.hlo",
    "single_instruction_without_operand_definitions.hlo",
}  # fmt: skip
"""Fixtures with lines that XLA reads and never prints: `instruction.lark` refuses them."""


# ---- what the fixtures hold


@cache
def instruction_lines() -> dict[str, tuple[InstructionRecord, str]]:
    """Each different instruction of the fixtures, as the scanner sees it, with its file's name."""
    found: dict[str, tuple[InstructionRecord, str]] = {}
    for path in hlo_files():
        module = hlo_lint.parse(path.read_bytes().decode("utf-8", "surrogateescape"))
        for instruction in module.instructions():
            found.setdefault(instruction.text, (instruction.row, path.name))
    if len(found) > MAX_LINES:
        kept = random.Random(0).sample(sorted(found), MAX_LINES)
        return {text: found[text] for text in kept}
    return found


def hlo_files() -> Iterator[Path]:
    yield from sorted((FIXTURES / "roundtrip").glob("*.hlo"))
    for path in sorted((FIXTURES / "dumps").rglob("*.txt")):
        with path.open("rb") as file:
            if b"HloModule" in file.read(200):
                yield path


def shape_texts() -> list[str]:
    return sorted({row[2] for row, _ in instruction_lines().values() if row[2]})


def tails() -> list[str]:
    return sorted({row[5] for row, _ in instruction_lines().values()})


def attribute_texts() -> list[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for tail in tails():
        found.update((name, tail[a:b]) for name, (a, b) in split_attributes(tail).items())
    return sorted(found)


# ---- what the grammars say


def read_instruction(text: str) -> InstructionRecord:
    """A row as `instruction.lark` reads it."""
    (tree,) = trees(grammar_parser("instruction").parse(text))
    parts = {str(part.data): part for part in trees(tree)}
    leaves = {token.type: str(token) for token in terminals(tree)}
    operands = parts["operands"] if "operands" in parts else parts["literals"]
    begin, end = operands.meta.start_pos, operands.meta.end_pos
    shape = parts.get("type")
    return (
        "ROOT " if "ROOT" in leaves else "",
        leaves["NAME"].removeprefix("%"),
        text[shape.meta.start_pos : shape.meta.end_pos] if shape else "",
        leaves["OPCODE"] if "OPCODE" in leaves else leaves["LITERAL_OPCODE"],
        text[begin + 1 : end - 1],
        text[end:],
        tuple(
            token.removeprefix("%") for token in terminals(operands) if token.type == "REFERENCE"
        ),
    )


def read_dump_name(name: str) -> DumpName | None:
    """A file's name as `dump_name.lark` reads it, less `.gz`; None for what is not a dump."""
    leaves = (
        grammar_parser("dump_name")
        .parse(plain_name(name))
        .scan_values(lambda leaf: isinstance(leaf, Token))
    )
    parts = {leaf.type: str(leaf) for leaf in leaves}
    if "OTHER" in parts:
        return None

    def one_of(*names: str) -> str:
        return next((parts[name] for name in names if name in parts), "")

    return DumpName(
        timestamp=one_of("TIMESTAMP").removesuffix("."),
        module_id=int(parts["MODULE_ID"].removeprefix("module_").removesuffix(".")),
        module=one_of("MODULE_OF_PASS", "MODULE_OF_NAMED", "MODULE_OF_ARTEFACT", "MODULE"),
        step=int(parts["STEP"]) if "STEP" in parts else None,
        pipeline=one_of("PIPELINE"),
        after=one_of("AFTER"),
        before=one_of("BEFORE"),
        rest=one_of("EXTENSION", "NAMED", "METADATA", "REST"),
    )


# ---- grammars


@pytest.mark.parametrize("name", GRAMMARS)
def test_a_grammar_opens_with_its_source_and_a_real_line(name: str) -> None:
    comment = grammar_file(name).read_text(encoding="utf-8").partition("\n\n")[0]
    assert comment.startswith("//")
    assert re.search(r"`xla/[\w/]+\.cc`", comment)
    assert re.search(r"^//   \S", comment, re.M)


def test_every_grammar_is_in_the_index() -> None:
    index = (REPOSITORY / "grammars" / "README.md").read_text(encoding="utf-8")
    assert [
        path.name for path in grammar_file("shape").parent.glob("*.lark") if path.name not in index
    ] == []


def test_a_missing_grammar_says_where_it_was_looked_for() -> None:
    with pytest.raises(FileNotFoundError, match=r"no grammar poem\.lark in .*grammars"):
        grammar_file("poem")


def test_readers_do_not_import_lark_before_they_need_it() -> None:
    program = (
        "import sys, hlo_lint\n"
        "from hlo_lint.analysis.callees import configuration\n"
        "from hlo_lint.hlo import grammar\n"
        "from hlo_lint.hlo.attributes.reading import read_attribute\n"
        "from hlo_lint.hlo.parser import shapes\n"
        "read_attribute('dimensions', '{1,0}')\n"
        "read_attribute('sharding', '{{maximal device=0}, {devices=[2]<=[2]}}')\n"
        "shapes.read_shape('(token[], bf16[8,128]{1,0:T(8,128)(2,1)S(1)})')\n"
        "shapes.read_shape('()')\n"
        "assert not configuration('{n = 1 : i32}')\n"
        "print('lark' in sys.modules)"
    )
    found = completed([sys.executable, "-c", program], cwd=REPOSITORY, check=True)
    assert found.stdout == "False\n"


# ---- whole files

WIDER_THAN_THE_SCANNER = {
    "missing_computation_header.hlo": "several instructions without a computation are reported",
    "operand_that_xla_drops.hlo": "a shape alone is an operand of single instructions only",
}
"""Files that `module.lark` takes although the scanner has something to say."""


class Line(NamedTuple):
    """An instruction that is not written into the operands of another."""

    is_root: bool
    name: str
    type: str
    opcode: str
    reads: tuple[str, ...]


def lines_of_grammar(text: str) -> tuple[list[str], list[Line]]:
    """The names of computations and the instructions of a file, in the order of the text."""
    tree = grammar_parser("module").parse(text)
    heads, lines = [], []
    for each in tree.iter_subtrees():
        kind = str(each.data)
        if kind == "computation":
            leaf = next(leaf for leaf in terminals(each) if leaf.type in ("NAME", "HEAD"))
            heads.append((each.meta.start_pos, leaf.removeprefix("%").removesuffix(":")))
        elif kind in ("instruction", "single"):
            leaves = {leaf.type: str(leaf) for leaf in terminals(each)}
            opcode = leaves.get("OPCODE") or leaves.get("LITERAL_OPCODE")
            if opcode is None:
                continue  # a single instruction that has a name is one inside it
            parts = {str(part.data): part for part in trees(each)}
            shape = parts.get("type")
            operands = trees(parts["operands"]) if "operands" in parts else []
            name = leaves.get("RESULT", "_").removeprefix("%").removesuffix(":")
            spelled = text[shape.meta.start_pos : shape.meta.end_pos] if shape else ""
            reads = tuple(
                leaf.removeprefix("%")
                for operand in operands
                for leaf in terminals(operand)
                if leaf.type == "REFERENCE"
            )
            line = Line("ROOT" in leaves, name, spelled, opcode, reads)
            lines.append((each.meta.start_pos, line))
    return [name for _, name in sorted(heads)], [line for _, line in sorted(lines)]


def lines_of_scanner(text: str) -> tuple[list[str], list[Line]]:
    heads, lines = [], []
    for module in hlo_lint.parse_all(text):
        calls = chain.from_iterable(each.inline.values() for each in module.computations)
        inline = {call.computation for call in chain.from_iterable(calls)}
        for number, computation in enumerate(module.computations):
            begin = module.start + module.offset(number)
            if computation.text.startswith("{") or computation.name == SINGLE:
                assert computation in inline or not module.header
            else:
                heads.append((begin, computation.name))
            made = {name_of(computation.rows[nested]) for nested in computation.nested}
            for at, (root, name, shape, opcode, _, _, reads) in enumerate(computation.rows):
                if at not in computation.nested:
                    kept = tuple(read for read in reads if read not in made or ".anon" not in read)
                    kept = tuple(read for read in kept if not re.fullmatch(r"_\d+", read))
                    line = Line(bool(root), name, shape, opcode, kept)
                    lines.append((begin + computation.spans[at].start, line))
    return [name for _, name in sorted(heads)], [line for _, line in sorted(lines)]


@pytest.mark.slow
def test_grammar_and_scanner_read_the_same_whole_files() -> None:
    refused = []
    small = sorted(conftest.hlo_files(DUMPS), key=lambda path: (path.stat().st_size, path.name))
    paths = [*conftest.hlo_files(ROUNDTRIP), *small[:40]]
    for path in paths:
        text = decode(path.read_bytes())
        problems = [p for module in hlo_lint.parse_all(text) for p in module.problems]
        try:
            found = lines_of_grammar(text)
        except UnexpectedInput:
            refused.append(path.name)
            assert problems, path
            continue
        assert not problems or path.name in WIDER_THAN_THE_SCANNER, path
        if not problems:
            assert found == lines_of_scanner(text), path
    assert len(refused) < 10


# ---- instructions


@pytest.mark.slow
def test_scanner_and_grammar_read_the_same_instructions() -> None:
    lines = instruction_lines()
    assert len(lines) > 1000
    refused: set[str] = set()
    for text, (row, file) in lines.items():
        try:
            assert read_instruction(text) == row, text
        except UnexpectedInput:
            refused.add(file)
    assert refused <= HAND_WRITTEN


INSTRUCTIONS: dict[str, InstructionRecord] = {
    "%add.3 = f32[8]{0} add(%p.1, %while.2#1#0)": (
        *("", "add.3", "f32[8]{0}", "add", "%p.1, %while.2#1#0", ""),
        ("p.1", "while.2#1#0"),
    ),
    "ROOT t = (f32[2]{0}, /*index=1*/()) tuple(a, /*index=1*/b)": (
        *("ROOT ", "t", "(f32[2]{0}, /*index=1*/())", "tuple", "a, /*index=1*/b", ""),
        ("a", "b"),
    ),
    "%c = c64[2]{0} constant({(0, 1), (nan(0x7fc00001), -inf)})": (
        *("", "c", "c64[2]{0}", "constant", "{(0, 1), (nan(0x7fc00001), -inf)}", ""),
        (),
    ),
    "%a = f32[] add(f32[] %x, (f32[2]{0}, s32[]) %y), dimensions={}": (
        *("", "a", "f32[]", "add", "f32[] %x, (f32[2]{0}, s32[]) %y", ", dimensions={}"),
        ("x", "y"),
    ),
    '%k = f32[] custom-call(), backend_config={lower = true, ir = "ML\\EF}"}': (
        *("", "k", "f32[]", "custom-call", "", ', backend_config={lower = true, ir = "ML\\EF}"}'),
        (),
    ),
    "%g = f32[2]{0} all-reduce(%x), replica_groups=mesh['x'=2] {'x'}, to_apply=%sum": (
        *("", "g", "f32[2]{0}", "all-reduce", "%x"),
        ", replica_groups=mesh['x'=2] {'x'}, to_apply=%sum",
        ("x",),
    ),
    "%b = b(f32[4]{0}) custom-call(%a), replica_groups=[1,128]<=[128]T(1,0)": (
        *("", "b", "b(f32[4]{0})", "custom-call", "%a", ", replica_groups=[1,128]<=[128]T(1,0)"),
        ("a",),
    ),
}


@pytest.mark.parametrize("text", INSTRUCTIONS)
def test_the_grammar_takes_an_instruction_apart(text: str) -> None:
    assert read_instruction(text) == INSTRUCTIONS[text]


@pytest.mark.parametrize(
    "text",
    [
        "%a f32[] add(%x)", "%a = f32[] add(%x", "%a = f32[] add(%x), dimensions",
        "%a = f32[] add(%x), dimensions={0", "%a = f32[] add(%x) %b",
        '%a = f32[] add(%x), metadata={op_name="}',
    ],
)  # fmt: skip
def test_the_grammar_refuses_what_is_no_instruction(text: str) -> None:
    with pytest.raises(UnexpectedInput):
        grammar_parser("instruction").parse(text)


# ---- shapes

SHAPES = (
    "f32[]", "f32[8,3]{1,0}", "pred[<=8,3]{0,1}", "bf16[?,3]{1,0}", "f32[]{:T(256)}",
    "f32[<=8,2]{1,0:T(2,128)S(5)}", "f32[8]{0:E(16)}", "f32[8,128]{1,0:T(8,128)(2,1)S(1)}",
    "f32[8,128]{1,0:T(8,*)}", "s4[16]{0:E(4)S(5)}",
    "f32[8]{0:D(C+~)T(2)L(4)#(u32)*(u8)E(4)S(5)SC(0:1,2)(1:3)P(f32[9]{0:T(2)})M(8)}", "f32[2]{5}",
    "f8e4m3fn[2]{0}", "b(f32[2]{0})", "token[]", "opaque[]", "()", "((), (f32[2]{0}, token[]))",
)  # fmt: skip


@pytest.mark.parametrize("text", SHAPES)
def test_a_shape_prints_as_it_was_read(text: str) -> None:
    assert str(read_shape(text)) == text
    assert read_shape(text) == shape_by_grammar(text)


@pytest.mark.parametrize(
    "text",
    [
        "f32[8]{0:}", "f32[8]{0:T()}", "f32[8]{0:T(8,)}", "f32[8]{1,0:T(8)}", "f32[,8]{0:T(8)}",
        "f32[8]{0:T(9999999999999999999)}",
    ],
)  # fmt: skip
def test_layouts_that_xla_does_not_print_read_the_same_by_grammar(text: str) -> None:
    def read(reader: Callable[[str], Shape]) -> Shape | None:
        try:
            return reader(text)
        except ShapeSyntaxError:
            return None

    assert read(read_shape) == read(shape_by_grammar)


def test_blanks_and_comments_are_no_part_of_a_shape() -> None:
    text = " ( f32 [2]{ 0 : T(8, 128) } ,/*index=1*/ ( ) /* , */ )\n"
    assert str(read_shape(text)) == "(f32[2]{0:T(8,128)}, ())"
    assert read_shape(text) == shape_by_grammar(text)


def test_the_shapes_of_the_fixtures_read_the_same_by_grammar() -> None:
    assert len(shape_texts()) > 50
    for text in shape_texts():
        if len(text) < 2000:
            by_grammar = shape_by_grammar(text)
            assert parse_shape(text) == by_grammar
            assert read_shape(text) == by_grammar


def shape_error(text: str) -> ShapeSyntaxError:
    with pytest.raises(ShapeSyntaxError) as raised:
        read_shape(text)
    return raised.value


SHAPE_ERRORS = {
    message: texts.split("; ")
    for message, texts in {
        "expected a shape": "; [2]; 2; F32[2]; %x; f32; f32(2)",
        "expected a size": (
            "f32[a]; f32[-1]; f32[,2]; f32[2,]; f32[2,,3]; f32[<=]; f32[<=a]; f32[2,x]"
        ),
        "expected `,` or `]` after a size": "f32[2 3]; f32[2); f32[2}; f32[?2]; f32[?x",
        "expected the number of a dimension": "f32[2]{a}; f32[2]{0,}; f32[2]{,0}; f32[2]{0,,1}",
        "expected `,`, `:` or `}` in a layout": "f32[2]{0 1}; f32[2]{0]; f32[2]{0); f32[2]{0x",
        "expected a part of a layout: D, T, L, #, *, E, S, SC, P or M, in this order": (
            "f32[2]{0:Tx; f32[2]{0:Ex; f32[2]{0:Sx; f32[2]{0:Mx; "
            "f32[2]{0:X(1)}; f32[2]{0:1}; f32[2]{0:E(4)X}; f32[2]{0:S(5)X}; f32[2]{0:S(5)E(4)}; "
            "f32[2]{0:T(2)X}; f32[2]{0:L(2)X}; f32[2]{0:#(u32)X}; f32[2]{0:*(u32)X}; "
            "f32[2]{0:SC(0:1)X}; f32[2]{0:D(D)X}; f32[2]{0:M(1)X}; f32[2]{0:M(1)M(1)}; "
            "f32[2]{0:P(f32[2])X}"
        ),
        "expected a number in parentheses": (
            "f32[2]{0:T(a)}; f32[2]{0:T(2,)}; f32[2]{0:E()}; "
            "f32[2]{0:E(x)}; f32[2]{0:S()}; f32[2]{0:L()}; "
            "f32[2]{0:M()}"
        ),
        "a token has no sizes": "token[2]; opaque[2]; token[?]; opaque[<=2]",
        "a buffer holds one array": "b(); b(token[]); b((f32[2])); b(b(f32[2])); b(2",
        "nothing may follow a shape": "f32[2] x; f32[2],; f32[2]{0}{0}; token[]{; b(f32[2])x",
    }.items()
}


@pytest.mark.parametrize(
    ("message", "text"),
    [(message, text) for message, texts in SHAPE_ERRORS.items() for text in texts],
)
def test_a_malformed_shape_says_what_is_expected(message: str, text: str) -> None:
    assert shape_error(text).message == message


@pytest.mark.parametrize(
    ("text", "message", "offset"),
    [
        ("f32[8,3]{0}", "a layout needs as many numbers as the shape has dimensions", 0),
        ("f32[8]{1,0}", "a layout needs as many numbers as the shape has dimensions", 0),
        ("(s32[], f32[8,3]{0})", "a layout needs as many numbers as the shape has dimensions", 8),
        ("f32[8,3", "a shape's brackets never close", 7),
        ("f32[8]{0:T(2", "a shape's brackets never close", 12),
        ("(f32[8], (s32[])", "a shape's brackets never close", 16),
        ("(f32[8],)", "expected a shape", 8), ("(,f32[8])", "expected a shape", 1),
        ("(f32[8] s32[])", "nothing may follow a shape", 8),
        ("((f32[8]) s32[])", "nothing may follow a shape", 10),
        ("(f32[8])x", "nothing may follow a shape", 8), ("(f32[8], f32[x])", "expected a size", 13),
        ("(f32[8]})", "nothing may follow a shape", 7), ("(f32[8], /* ", "expected a shape", 9),
        (f"f32[{'9' * 5000}]", "a number does not fit", 4),
        ("(" * 5000, f"tuples nest deeper than {MAX_DEPTH}", MAX_DEPTH),
    ],
)  # fmt: skip
def test_a_shape_error_points_at_its_place(text: str, message: str, offset: int) -> None:
    error = shape_error(text)
    assert (error.message, error.text, error.offset) == (message, text, offset)


def test_layouts_nest_only_so_deep() -> None:
    text = "f32[2]{0:P(" * 3000 + "f32[2]" + ")}" * 3000
    assert shape_error(text).message == f"brackets nest deeper than {MAX_DEPTH}"


def test_a_large_tuple_reads_each_spelling_once() -> None:
    spellings = [f"f32[{size}]{{0:T({size})}}" for size in range(7)]
    shape = read_shape("(" + ", ".join(spellings * 1000) + ")")
    assert isinstance(shape, TupleShape)
    assert len(shape.elements) == 7000
    assert len({id(element) for element in shape.elements}) == 7


@pytest.mark.slow
@settings(max_examples=150)
@given(st.text("()[]{},:<=?*#TES0129f32b token/*\ud800", max_size=20) | st.text(max_size=8))
def test_any_text_is_a_shape_or_a_shape_error(text: str) -> None:
    try:
        shape = read_shape(text)
    except ShapeSyntaxError as error:
        place: int | None = error.offset
    else:
        place = None
        assert read_shape(str(shape)) == shape
    assert place is None or 0 <= place <= len(text)


def test_an_order_that_names_no_dimension_is_left_to_the_rules() -> None:
    shape = read_shape("f32[8,3]{0,7:T(2)}")
    assert isinstance(shape, ArrayShape)
    assert not shape.has_valid_layout


# ---- attributes


def test_attributes_join_to_the_tail_of_a_dumped_line() -> None:
    dumped = {row[5] for row, file in instruction_lines().values() if file.startswith("module_")}
    assert len(dumped) > 100
    for tail in dumped:
        spans = split_attributes_strictly(tail)
        assert "".join(f", {name}={tail[a:b]}" for name, (a, b) in spans.items()) == tail


def test_the_fast_way_to_split_attributes_is_the_exact_one() -> None:
    for tail in tails():
        spans: dict[str, tuple[int, int]] = {}
        offset = 0
        while offset < len(tail):
            offset = splitting._scan_attribute(tail, offset, spans)
        assert split_attributes_strictly(tail) == spans


TAILS: dict[str, dict[str, str]] = {
    "": {},
    " // nothing\n": {},
    ", a={ {0}: (0, {}, may-alias) }, l={(f32[8]{0})->f32[]}": {
        "a": "{ {0}: (0, {}, may-alias) }",
        "l": "{(f32[8]{0})->f32[]}",
    },
    ", g=mesh['x'=2] {'x'}, s={mesh['x'=2], [{'x'}, {}]}": {
        "g": "mesh['x'=2] {'x'}",
        "s": "{mesh['x'=2], [{'x'}, {}]}",
    },
    ', m={op_name="a, b=({\\"" id=1}, c="}"': {"m": '{op_name="a, b=({\\"" id=1}', "c": '"}"'},
    ', j={"a":{"b":{"c":{"d":["}"]}}}}, k=kLoop': {
        "j": '{"a":{"b":{"c":{"d":["}"]}}}}',
        "k": "kLoop",
    },
    ",\n  a={\n 1}\n  , b /* = */=2 // why\n": {"a": "{\n 1}"},
    ", a=/*x*/{1}/*y*/ , b=2 /*z*/": {"a": "{1}", "b": "2"},
    ", a=1, a=2": {"a": "1"},
    ", r=[2,4]<=[4,2]T(1,0), d=b01f_01io->b01f": {
        "r": "[2,4]<=[4,2]T(1,0)",
        "d": "b01f_01io->b01f",
    },
}


@pytest.mark.parametrize("tail", TAILS)
def test_attributes_are_told_apart(tail: str) -> None:
    spans = split_attributes(tail)
    spans.pop("", None)
    assert {name: tail[a:b] for name, (a, b) in spans.items()} == TAILS[tail]


@pytest.mark.parametrize(
    ("tail", "message", "offset", "left"),
    [
        (", a=1, b=(", "expected `)`", 10, ""),
        (", a=1)", "expected `, name=value`", 5, ")"),
        (', a=1, b="', "a string or comment never ends", 9, '"'),
        (", a=1, b=/* ", "a string or comment never ends", 9, "/* "),
        (", a=1, b={(})", "`}` closes what another bracket opens", 11, "})"),
        (", a=1, b", "expected `, name=value`", 5, ", b"),
    ],
)
def test_what_is_left_stands_under_no_name(tail: str, message: str, offset: int, left: str) -> None:
    assert {name: tail[a:b] for name, (a, b) in split_attributes(tail).items()} == {
        "a": "1",
        "": left,
    }
    with pytest.raises(AttributeSyntaxError) as raised:
        split_attributes_strictly(tail)
    assert (raised.value.message, raised.value.offset) == (message, offset)


NOT_IN_THE_GRAMMAR = {"backend_config", "literal", "outfeed_shape", *KEPT_AS_TEXT}


def test_the_attributes_of_the_fixtures_read_the_same_by_grammar() -> None:
    texts = [pair for pair in attribute_texts() if pair[0] not in NOT_IN_THE_GRAMMAR]
    if len(texts) > MAX_LINES:
        texts = random.Random(0).sample(texts, MAX_LINES)
    assert len({name for name, _ in texts}) > 20
    for name, text in texts:
        value = read_attribute(name, text)
        try:
            by_grammar = read_by_grammar(name, text)
        except AttributeSyntaxError:
            assert value == text, name
        else:
            assert (value, type(value)) == (by_grammar, type(by_grammar)), name


ATTRIBUTES = [
    ("dimensions", "{0,2,1}", (0, 2, 1)),
    ("dimensions", "{}", ()),
    ("dimensions", "{ 0, /*x*/ 1 }", (0, 1)),
    ("index", "3", 3),
    ("is_stable", "true", True),
    ("slice", "{[0:4], [1:8:2]}", (Slice(0, 4), Slice(1, 8, 2))),
    ("slice", "{ [0:4] }", (Slice(0, 4),)),
    ("padding", "0_1x-2_3_4", (Padding(0, 1), Padding(-2, 3, 4))),
    ("calls", "%fused_add.1", "fused_add.1"),
    ("to_apply", "region_0.4", "region_0.4"),
    ("branch_computations", "{%then, %else.1}", ("then", "else.1")),
    ("to_apply", "{ a = f32[] parameter(0) }", "{ a = f32[] parameter(0) }"),
    (
        "control-predecessors",
        "{%copy.8, %get-tuple-element.39}",
        ("copy.8", "get-tuple-element.39"),
    ),
    ("custom_call_target", '"__cublas$gemm"', "__cublas$gemm"),
    ("custom_call_target", r'"a\"b\\c\303\251\x41\n"', 'a"b\\cé' + "A\n"),
    (
        "output_to_operand_aliasing",
        "{{}: (1, {}), {0,1}: (2, {3})}",
        (Alias((), 1, ()), Alias((0, 1), 2, (3,))),
    ),
    ("input_output_alias", "{ {0}: (0, {}, may-alias) }", (Alias((0,), 0, (), "may-alias"),)),
    ("kind", "kLoop", "kLoop"),
    ("direction", "LT", "LT"),
    ("window", "{size=3 pad=1_2}", (WindowDimension(3, 1, 1, 2),)),
    ("backend_config", '{"a":[1,{"b":null}]}', {"a": [1, {"b": None}]}),
    ("backend_config", '"281457329920656"', "281457329920656"),
    ("backend_config", r'"{\"a\":1}"', {"a": 1}),
    ("backend_config", "{grid_x = 4 : i32", "{grid_x = 4 : i32"),
    ("backend_config", "{" * 100_000, "{" * 100_000),
    (
        "frontend_attributes",
        '{a="b",xla.c="{\\"d\\"}",e={}}',
        {"a": "b", "xla.c": '{"d"}', "e": "{}"},
    ),
    ("of_tomorrow", "{1,0}", (1, 0)),
    ("of_tomorrow", "{{0,1},{2}}", ((0, 1), (2,))),
    ("of_tomorrow", "{highest,highest}", ("highest", "highest")),
    ("of_tomorrow", "%x", "x"),
    ("of_tomorrow", "9" * 5000, "9" * 5000),
    ("of_tomorrow", "{" * 5000, "{" * 5000),
    ("of_tomorrow", "", ""),
]


@pytest.mark.parametrize(("name", "text", "value"), ATTRIBUTES)
def test_an_attribute_has_its_value(name: str, text: str, value: object) -> None:
    found = read_attribute(name, text)
    assert (found, type(found)) == (value, type(value))


def test_metadata_reads_every_field_it_knows() -> None:
    text = (
        r'{op_type="add" op_name="jit(f)/\"ab\", {->}" source_file="a b.py" source_line=3 '
        r"source_end_line=4 source_column=5 source_end_column=6 stack_frame_id=7 "
        r'scheduling_name="s" deduplicated_name="d" preserve_layout=true of_tomorrow={1 "}"}}'
    )
    expected = OpMetadata(
        *("add", 'jit(f)/"ab", {->}', "a b.py", 3, 4, 5, 6, 7),
        scheduling_name="s",
        deduplicated_name="d",
        preserve_layout=True,
    )
    assert read_attribute("metadata", text) == expected
    assert read_by_grammar("metadata", text) == expected


# ---- names of dumps

DUMP_NAMES = {
    "module_0008.jit_f.0023.hlo_normalization.after_algsimp.before_cse.txt": DumpName(
        "", 8, "jit_f", 23, "hlo_normalization", "algsimp", "cse", ".txt"
    ),
    "module_0008.jit_f.0319.copy-insertion.after_removing_unnecessary_copies.txt": DumpName(
        "", 8, "jit_f", 319, "copy-insertion", "removing_unnecessary_copies", "", ".txt"
    ),
    "1700000000000000.module_0001.jit_f.0001.p.after_a.before_b.hlo.pb.gz": DumpName(
        "1700000000000000", 1, "jit_f", 1, "p", "a", "b", ".hlo.pb"
    ),
    "module_0012.gemm_fusion_dot.5_computation.0001.p.after_a.before_b.txt": DumpName(
        "", 12, "gemm_fusion_dot.5_computation", 1, "p", "a", "b", ".txt"
    ),
    "module_0001.jit_f.before_optimizations.txt": DumpName(
        "", 1, "jit_f", None, "", "", "", "before_optimizations.txt"
    ),
    "module_0001.jit_f.sm_9.0a_gpu_after_optimizations-buffer-assignment.txt": DumpName(
        *("", 1, "jit_f", None, "", "", ""), "sm_9.0a_gpu_after_optimizations-buffer-assignment.txt"
    ),
    "module_0001.jit_f.gfx942_gpu_after_optimizations.txt": DumpName(
        "", 1, "jit_f", None, "", "", "", "gfx942_gpu_after_optimizations.txt"
    ),
    "module_0001.a.b.cpu_after_optimizations.txt": DumpName(
        "", 1, "a.b", None, "", "", "", "cpu_after_optimizations.txt"
    ),
    "module_0001.jit_f.thunk_sequence.txt": DumpName(
        "", 1, "jit_f", None, "", "", "", "thunk_sequence.txt"
    ),
    "module_0001.jit_f.debug_options": DumpName("", 1, "jit_f", None, "", "", "", "debug_options"),
    "module_0001.metadata.textproto": DumpName("", 1, "", None, "", "", "", "metadata.textproto"),
    "module_0001.jit_f.fusion.3.ttir.txt": DumpName(
        "", 1, "jit_f", None, "", "", "", "fusion.3.ttir.txt"
    ),
    "topology.textproto": None,
    "module_attributes.hlo": None,
    "03.after_propagation.mlir": None,
}


@pytest.mark.parametrize("name", DUMP_NAMES)
def test_a_dump_name_comes_apart(name: str) -> None:
    assert read_dump_name(name) == DUMP_NAMES[name]
    assert parse_name(name) == DUMP_NAMES[name]


def test_grammar_and_regular_expression_agree_on_every_name_of_the_fixtures() -> None:
    names = {path.name for path in (FIXTURES / "dumps").rglob("*") if path.is_file()}
    named = [name for name in sorted(names) if "module_" in name]
    assert len(named) > 100
    for name in sorted(names):
        assert read_dump_name(name) == parse_name(name), name
    assert [name for name in named if parse_name(name) is None] == []
