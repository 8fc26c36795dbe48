"""Kinds of instructions, and small computations that do the same."""

from hlo_lint import parse
from hlo_lint.analysis.kinds import template_of
from tests.texts import entry

_PAIRS = """\
first { p = (f32[], f32[]) parameter(0) ROOT s = f32[] subtract(p#0, p#1) }
other { q = (f32[], f32[]) parameter(0) ROOT t = f32[] subtract(q#1, q#0) }
same {
  r = (f32[], f32[]) parameter(0)
  ROOT u = f32[] subtract(r#0, r#1), metadata={op_name="sub"}
}

"""


def test_computations_that_read_other_elements_do_not_do_the_same() -> None:
    first, other, same, _ = map(
        template_of, parse(entry("  ROOT a = f32[] parameter(0)", _PAIRS)).computations
    )
    assert first == same != other
