"""Each kind of change, on the smallest module that shows it."""

from __future__ import annotations

from hlo_lint.engine.reduce.draft import Draft, swept
from hlo_lint.engine.reduce.transformations import instructions, parameters
from hlo_lint.engine.reduce.transformations.attributes import DropAttributes, DropHeader, Rename
from hlo_lint.engine.reduce.transformations.base import Anchor, Transformation
from hlo_lint.engine.reduce.transformations.shapes import ShrinkDimensions
from hlo_lint.engine.reduce.transformations.slices import KeepSlice
from hlo_lint.hlo.parser.module import parse_file
from tests.conftest import present


def changed(
    text: str, transformation: Transformation, anchor: Anchor | None = None, only: int | None = None
) -> str:
    """The module after a change of all targets, or of one."""
    draft = Draft.of(parse_file(text).modules[0])
    targets = transformation.targets(draft, anchor)
    made = present(transformation.apply(draft, targets if only is None else [targets[only]]))
    return swept(made, draft).text.partition("\n")[2].strip()


def main_of(lines: str) -> str:
    """An entry of these lines."""
    return f"ENTRY %main {{{lines}}}"


def main(lines: str) -> str:
    """A module of that entry."""
    return f"HloModule m\n{main_of(lines)}\n"


LOOP = """HloModule m
%cond {
  %s = (s32[], f32[4], f32[9]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %n = s32[] constant(5)
  ROOT %less = pred[] compare(%i, %n), direction=LT
}
%turn {
  %t = (s32[], f32[4], f32[9]) parameter(0)
  %j = s32[] get-tuple-element(%t), index=0
  %x = f32[4] get-tuple-element(%t), index=1
  %w = f32[9] get-tuple-element(%t), index=2
  %y = f32[4] negate(%x)
  ROOT %r = (s32[], f32[4], f32[9]) tuple(%j, %y, %w)
}
ENTRY %main {
  %p = f32[4] parameter(0)
  %q = f32[9] parameter(1)
  %z = s32[] constant(0)
  %start = (s32[], f32[4], f32[9]) tuple(%z, %p, %q)
  %loop = (s32[], f32[4], f32[9]) while(%start), condition=%cond, body=%turn
  ROOT %out = f32[4] get-tuple-element(%loop), index=1
}
"""


def test_operands_become_parameters_and_what_they_read_goes() -> None:
    text = main("""
  %p = f32[4] parameter(0)
  %q = f32[4] parameter(1)
  %a = f32[4] negate(%p)
  ROOT %r = f32[4] add(%a, %q)
""")
    assert changed(text, parameters.CutOperands()) == main_of("""
  %q = f32[4] parameter(0)
  %a = f32[4] parameter(1)
  ROOT %r = f32[4] add(%a, %q)
""")


def test_a_value_with_the_shape_of_another_gives_way_to_it() -> None:
    text = main("""
  %p = f32[4] parameter(0)
  %q = f32[4] parameter(1)
  ROOT %r = f32[4] add(%p, %q)
""")
    assert changed(text, instructions.MergeValues(), only=1) == main_of("""
  %p = f32[4] parameter(0)
  ROOT %r = f32[4] add(%p, %p)
""")


def test_one_output_that_is_left_is_the_root() -> None:
    text = """HloModule m, input_output_alias={ {1}: (1, {}, may-alias) }
ENTRY %main {
  %p = f32[4] parameter(0)
  %q = f32[4] parameter(1)
  %a = f32[4] negate(%p)
  ROOT %r = (f32[4], f32[4]) tuple(%a, %q)
}
"""
    assert changed(text, parameters.DropOutputs(), only=1) == main_of("""
  %p = f32[4] parameter(0)
  ROOT %a = f32[4] negate(%p)
""")


def test_loop_state_goes_in_the_loop_and_around_it() -> None:
    after = changed(LOOP, parameters.DropLoopState(), only=2)
    assert "f32[9]" not in after.replace("%w = f32[9] constant({...})", "")
    assert "%start = (s32[], f32[4]) tuple(%z, %p)" in after
    assert "ROOT %r = (s32[], f32[4]) tuple(%j, %y)" in after


def test_a_loop_gives_way_to_one_turn() -> None:
    after = changed(LOOP, instructions.InlineCallee())
    assert "while" not in after
    assert "%y.2 = f32[4] negate(%x.2)" in after
    assert after.count("{\n") == 1


def test_the_dimensions_of_a_loop_shrink_together() -> None:
    after = changed(LOOP, ShrinkDimensions(1))
    assert "f32[4]" not in after
    assert "f32[9]" not in after


def test_a_reshape_keeps_the_product_of_its_sizes() -> None:
    text = main("""
  %p = f32[16,5]{1,0} parameter(0)
  ROOT %r = f32[2,8,5]{0,2,1} reshape(%p)
""")
    draft = Draft.of(parse_file(text).modules[0])
    targets = ShrinkDimensions(1).targets(draft, None)
    assert targets == [(16,), (8,), (5,), (2,)]
    assert ShrinkDimensions(1).apply(draft, [(16,)]) is None  # 2 or 8 would have to shrink, too
    sizes = [
        changed(text, ShrinkDimensions(1), only=number).partition("%p = ")[2]
        for number in (1, 2, 3)
    ]
    assert sizes == [
        "f32[2,5]{1,0} parameter(0)\n  ROOT %r = f32[2,1,5]{0,2,1} reshape(%p)\n}",
        "f32[16,1]{1,0} parameter(0)\n  ROOT %r = f32[2,8,1]{0,2,1} reshape(%p)\n}",
        "f32[8,5]{1,0} parameter(0)\n  ROOT %r = f32[1,8,5]{0,2,1} reshape(%p)\n}",
    ]


def test_a_slice_makes_the_computation_of_the_problem_the_entry() -> None:
    after = changed(LOOP, KeepSlice(), ("turn", "y"), only=0)
    assert (
        after
        == """ENTRY %turn {
  %x = f32[4] parameter(0)
  ROOT %y = f32[4] negate(%x)
}"""
    )


FUSION = """HloModule m, is_scheduled=true
%body {
  %a = f32[4] parameter(0)
  %b = f32[4] parameter(1)
  ROOT %r = f32[4] negate(%b), metadata={op_name="x"}
}
ENTRY %main {
  %p = f32[4] parameter(0)
  %q = f32[4] parameter(1)
  ROOT %f = f32[4] fusion(%p, %q), kind=kLoop, calls=%body, backend_config={"a":"b"}
}
"""


def test_a_parameter_that_a_fusion_does_not_read_goes_with_its_operand() -> None:
    after = changed(FUSION, parameters.DropCalleeParameters())
    assert "%b = f32[4] parameter(0)" in after
    assert "fusion(%q)" in after
    assert "%p" not in after


def test_elements_of_a_tuple_that_is_made_here_are_read_directly() -> None:
    text = main("""
  %p = f32[4] parameter(0)
  %t = (f32[4], f32[4]) tuple(%p, %p)
  %e = f32[4] get-tuple-element(%t), index=1
  ROOT %r = f32[4] negate(%e)
""")
    assert changed(text, instructions.ForwardElement()) == main_of("""
  %p = f32[4] parameter(0)
  ROOT %r = f32[4] negate(%p)
""")


def test_instructions_of_a_fusion_become_constants() -> None:
    assert "ROOT %r = f32[4] constant({...})" in changed(FUSION, instructions.ZeroOut())


def test_attributes_that_the_opcode_needs_stay() -> None:
    after = changed(FUSION, DropAttributes())
    assert "backend_config" not in after
    assert "metadata" not in after
    assert "kind=kLoop, calls=%body" in after


def test_the_header_goes() -> None:
    draft = Draft.of(parse_file(FUSION).modules[0])
    header = DropHeader()
    made = present(header.apply(draft, header.targets(draft, None)))
    assert made.text.startswith("HloModule m\n")


def test_names_are_short_where_they_are_called_and_waited_for() -> None:
    text = FUSION.replace("kind=kLoop", "kind=kLoop, control-predecessors={%q}")
    after = changed(text, Rename(), only=0)
    assert "%computation {" in after
    assert "fusion(%p0.2, %p1.2), kind=kLoop, control-predecessors={%p1.2}, calls=%comp" in after


def test_what_was_unused_before_a_change_stays() -> None:
    text = main("""
  %p = f32[4] parameter(0)
  %dead = f32[4] negate(%p)
  %a = f32[4] cosine(%p)
  ROOT %r = f32[4] tanh(%a)
""")
    assert "%dead" in changed(text, parameters.CutOperands(), only=1)
