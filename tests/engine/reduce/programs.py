"""Random modules with one `cosine` in them, which stands for a problem."""

from __future__ import annotations

from random import Random

ADD = """%add {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}"""
COND = """%cond {
  %s = (s32[], f32[8,6]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %n = s32[] constant(7)
  ROOT %less = pred[] compare(%i, %n), direction=LT
}"""
META = ', metadata={op_name="jit(f)/step" source_file="f.py" source_line=3}'


def random_module(seed: int) -> str:
    """A module of 8 to 40 instructions; the `cosine` is in the entry, a fusion or a loop."""
    random = Random(seed)
    place = random.choice(["entry", "fusion", "loop"])
    length = random.randrange(5, 30)
    marked = random.randrange(length)
    body = ["%p0 = f32[8,6]{1,0} parameter(0)", "%p1 = f32[8,6]{1,0} parameter(1)"]
    values, pairs = ["p0", "p1"], ["s32[] constant(0)"]
    for number in range(length):
        name, one, other = f"v.{number}", random.choice(values), random.choice(values)
        meta = META if random.random() < 0.5 else ""
        kind = random.choice(["unary", "binary", "transposed", "reshaped", "reduced"])
        if number == marked and place == "entry":
            body.append(f"%{name} = f32[8,6]{{1,0}} cosine(%{one}){meta}")
        elif number == marked and place == "fusion":
            call = f"fusion(%{one}, %{other}), kind=kLoop, calls=%fused{meta}"
            body.append(f"%{name} = f32[8,6]{{1,0}} {call}")
        elif number == marked:
            loop = "(s32[], f32[8,6]{1,0})"
            body += [
                f"%zero = {pairs[0]}",
                f"%start = {loop} tuple(%zero, %{one})",
                f"%loop = {loop} while(%start), condition=%cond, body=%turn{meta}",
                f"%{name} = f32[8,6]{{1,0}} get-tuple-element(%loop), index=1",
            ]
        elif kind == "unary":
            body.append(f"%{name} = f32[8,6]{{1,0}} negate(%{one}){meta}")
        elif kind == "binary":
            body.append(f"%{name} = f32[8,6]{{1,0}} add(%{one}, %{other}){meta}")
        elif kind == "transposed":
            body += [
                f"%t.{number} = f32[6,8]{{1,0}} transpose(%{one}), dimensions={{1,0}}{meta}",
                f"%{name} = f32[8,6]{{1,0}} transpose(%t.{number}), dimensions={{1,0}}",
            ]
        elif kind == "reshaped":
            body += [
                f"%r.{number} = f32[4,2,6]{{2,1,0}} reshape(%{one}){meta}",
                f"%{name} = f32[8,6]{{1,0}} reshape(%r.{number})",
            ]
        else:
            body += [
                f"%c.{number} = f32[] constant(0)",
                f"%s.{number} = f32[8]{{0}} reduce(%{one}, %c.{number}), dimensions={{1}}, "
                f"to_apply=%add",
                f"%{name} = f32[8,6]{{1,0}} broadcast(%s.{number}), dimensions={{0}}{meta}",
            ]
        values.append(name)
    kept = [f"v.{marked}", random.choice(values), random.choice(values)]
    shapes = ", ".join(["f32[8,6]{1,0}"] * 3)
    body.append(f"ROOT %out = ({shapes}) tuple({', '.join(f'%{each}' for each in kept)})")
    fused = """%fused {
  %a = f32[8,6]{1,0} parameter(0)
  %b = f32[8,6]{1,0} parameter(1)
  %d = f32[8,6]{1,0} multiply(%a, %b)
  %e = f32[8,6]{1,0} cosine(%d)
  ROOT %f = f32[8,6]{1,0} subtract(%e, %a)
}"""
    turn = """%turn {
  %st = (s32[], f32[8,6]{1,0}) parameter(0)
  %it = s32[] get-tuple-element(%st), index=0
  %xt = f32[8,6]{1,0} get-tuple-element(%st), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%it, %one)
  %yt = f32[8,6]{1,0} cosine(%xt)
  ROOT %nt = (s32[], f32[8,6]{1,0}) tuple(%next, %yt)
}"""
    computations = [ADD]
    computations += [fused] if place == "fusion" else [COND, turn] if place == "loop" else []
    entry = "\n".join(f"  {line}" for line in body)
    layout = f"{{(f32[8,6]{{1,0}}, f32[8,6]{{1,0}})->({shapes})}}"
    header = f"HloModule jit_f, entry_computation_layout={layout}"
    return "\n\n".join([header, *computations, f"ENTRY %main {{\n{entry}\n}}\n"])
