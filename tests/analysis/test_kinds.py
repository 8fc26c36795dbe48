"""Kinds of instructions, and small computations that do the same."""

from hlo_lint import parse
from hlo_lint.analysis.kinds import template_of

_PAIRS = """\
HloModule m

first (p: (f32[], f32[])) -> f32[] {
  p = (f32[], f32[]) parameter(0)
  ROOT s = f32[] subtract(p#0, p#1)
}

other (q: (f32[], f32[])) -> f32[] {
  q = (f32[], f32[]) parameter(0)
  ROOT t = f32[] subtract(q#1, q#0)
}

same (r: (f32[], f32[])) -> f32[] {
  r = (f32[], f32[]) parameter(0)
  ROOT u = f32[] subtract(r#0, r#1), metadata={op_name="sub"}
}

ENTRY main (a: (f32[], f32[])) -> (f32[], f32[], f32[]) {
  a = (f32[], f32[]) parameter(0)
  x = f32[] call(a), to_apply=first
  y = f32[] call(a), to_apply=other
  z = f32[] call(a), to_apply=same
  ROOT w = (f32[], f32[], f32[]) tuple(x, y, z)
}
"""


def test_computations_that_read_other_elements_do_not_do_the_same() -> None:
    first, other, same, _ = map(template_of, parse(_PAIRS).computations)
    assert first == same != other
