"""Values in flight: where they are, and on whose memory."""

from __future__ import annotations

import pytest

import hlo_lint
from hlo_lint.analysis.async_chains import AsyncChain, async_chains
from hlo_lint.analysis.memory_accesses import Accesses
from hlo_lint.dumps.artefacts.buffer_assignment import BufferAssignment, read_buffer_assignment
from hlo_lint.hlo.ir import Module
from tests.texts import entry

ARRAY = "f32[8]{0}"
COPY = f"({ARRAY}, {ARRAY}, u32[])"


def module_of(*lines: str, before: str = "") -> Module:
    """A schedule whose entry has a parameter, `p`, and these lines."""
    body = "\n  ".join((f"p = {ARRAY} parameter(0)", *lines))
    return hlo_lint.parse(entry(body, before, ", is_scheduled=true"))


def memory(**places: int) -> BufferAssignment:
    """Values of 32 bytes at offsets of one allocation; `s_0` is part 0 of `s`'s result."""
    lines = ["BufferAssignment:", "allocation 0: size 4096, preallocated-temp:"]
    for number, (name, offset) in enumerate(places.items()):
        instruction, _, index = name.partition("_")
        part = f"{{{index}}}" if index else ""
        lines.append(
            f" value: <{number} {instruction}{part} @0> (size=32,offset={offset}): {ARRAY}"
        )
    buffers = read_buffer_assignment("\n".join(lines) + "\n")
    assert not buffers.problems
    return buffers


def races(module: Module, **places: int) -> list[tuple[str, str]]:
    accesses = Accesses(module, memory(**places))
    return [
        (race.chain.start.name, race.theirs.instruction.name)
        for flight in async_chains(module)
        for race in accesses.races(flight)
    ]


def intervals(flight: AsyncChain) -> list[tuple[str, list[str]]]:
    return [
        (interval.computation.name, [at.name for at in interval.instructions])
        for interval in flight.intervals
    ]


@pytest.mark.parametrize(
    ("start", "done", "places", "reads", "writes"),
    [
        (f"{COPY} copy-start(p)", "copy-done(s)", {"s_0": 64}, {0}, {64}),
        (f"({ARRAY}, {ARRAY}) all-gather-start(p)", "all-gather-done(s)", {"s_1": 64}, {0}, {64}),
        (f"{ARRAY} all-reduce-start(p)", "all-reduce-done(s)", {"s": 64}, {0}, {64}),
        (f"(({ARRAY}), {ARRAY}, u32[]) fusion-start(p)", "fusion-done(s)", {"s_1": 64}, {0}, {64}),
        (f"({ARRAY}, u32[], token[]) send(p, t)", "send-done(s)", {"s_1": 64}, {0}, set()),
        (f"({ARRAY}, u32[], token[]) recv(t)", "recv-done(s)", {"s_0": 64}, set(), {64}),
    ],
)
def test_a_start_reads_its_operands_and_writes_its_result(
    start: str, done: str, places: dict[str, int], reads: set[int], writes: set[int]
) -> None:
    module = module_of("t = token[] after-all()", f"s = {start}", f"ROOT d = {ARRAY} {done}")
    touches = Accesses(module, memory(p=0, **places)).touches(async_chains(module)[0].start)
    assert {touch.value.offset for touch in touches if not touch.writes} == reads
    assert {touch.value.offset for touch in touches if touch.writes} == writes


def test_what_an_asynchronous_computation_writes_on_the_way_is_in_flight_too() -> None:
    module = module_of(
        f"s = (({ARRAY}), {ARRAY}) async-start(p), calls=a",
        f"x = {ARRAY} cosine(p)",
        f"d = {ARRAY} async-done(s)",
        f"ROOT z = {ARRAY} add(d, x)",
        before=(
            f"a {{ q = {ARRAY} parameter(0) inner = {ARRAY} negate(q) "
            f"ROOT r = {ARRAY} sine(inner) }}\n\n"
        ),
    )
    assert races(module, p=0, inner=32, r=64, x=96) == []
    assert races(module, p=0, inner=32, r=64, x=32) == [("s", "x"), ("s", "x")]
    assert races(module, p=0, inner=32, r=64, x=64) == [("s", "x")]


LOOP = f"""
body {{
  b = ({ARRAY}, {COPY}) parameter(0)
  early = {ARRAY} negate(b#0)
  bd = {ARRAY} copy-done(b#1)
  calm = {ARRAY} sine(b#0)
  bs = {COPY} copy-start(bd)
  late = {ARRAY} cosine(b#0)
  ROOT bt = ({ARRAY}, {COPY}) tuple(late, bs)
}}

condition {{
  c = ({ARRAY}, {COPY}) parameter(0)
  ROOT go = pred[] custom-call(c#0), custom_call_target="go"
}}

"""


def test_a_copy_that_a_loop_carries_is_in_flight_to_the_done_of_the_next_turn() -> None:
    module = module_of(
        f"s = {COPY} copy-start(p)",
        f"before = {ARRAY} negate(p)",
        f"t = ({ARRAY}, {COPY}) tuple(before, s)",
        f"w = ({ARRAY}, {COPY}) while(t), condition=condition, body=body",
        f"after = {ARRAY} negate(p)",
        f"d = {ARRAY} copy-done(w#1)",
        f"ROOT z = {ARRAY} add(d, after)",
        before=LOOP,
    )
    inside, outside = async_chains(module)
    ends = {"e": ["after"], "body": ["b", "early"], "condition": ["c", "go"]}
    assert dict(intervals(outside)) == ends
    assert intervals(outside)[0] == ("e", ["before", "t"])
    for interval in (("body", ["late", "bt"]), ("body", ["b", "early"]), ("e", ["after"])):
        assert interval in intervals(inside)
    assert {done.name for done in inside.dones} == {done.name for done in outside.dones}
    assert [done.name for done in inside.dones] == ["bd", "d"]


def test_what_a_loop_runs_in_between_counts() -> None:
    before = f"""
body {{ b = {ARRAY} parameter(0) ROOT bx = {ARRAY} negate(b) }}

condition {{
  c = {ARRAY} parameter(0)
  ROOT go = pred[] custom-call(c), custom_call_target="go"
}}

"""
    module = module_of(
        f"y = {ARRAY} negate(p)",
        f"s = {COPY} copy-start(p)",
        f"w = {ARRAY} while(y), condition=condition, body=body",
        f"d = {ARRAY} copy-done(s)",
        f"ROOT z = {ARRAY} add(d, w)",
        before=before,
    )
    assert races(module, p=0, s_0=32, y=64, bx=64, b=64, w=64, c=64, go=96) == []
    assert races(module, p=0, s_0=32, y=64, bx=0, b=64, w=64, c=64, go=96) == [("s", "bx")]
    assert races(module, p=0, s_0=32, y=64, bx=64, b=64, w=64, c=64, go=32) == [("s", "go")]


def test_two_operations_in_flight_may_read_the_same_but_not_write_it() -> None:
    module = module_of(
        f"s = {COPY} copy-start(p)",
        f"u = {COPY} copy-start(p)",
        f"d = {ARRAY} copy-done(s)",
        f"v = {ARRAY} copy-done(u)",
        f"ROOT z = {ARRAY} add(d, v)",
    )
    assert races(module, p=0, s_0=32, u_0=64) == []
    assert races(module, p=0, s_0=32, u_0=48) == [("s", "u")]


def test_who_says_that_regions_differ_may_share() -> None:
    attribute = ', frontend_attributes={xla_disjoint_read_write_regions="true"}'
    lines = [
        f"s = {COPY} copy-start(p){attribute}",
        f"x = {ARRAY} negate(p){attribute}",
        f"d = {ARRAY} copy-done(s)",
        f"ROOT z = {ARRAY} add(d, x)",
    ]
    assert races(module_of(*lines), p=0, s_0=32, x=0) == []
    lines[1] = lines[1].removesuffix(attribute)
    assert races(module_of(*lines), p=0, s_0=32, x=0) == [("s", "x")]


def test_a_value_that_is_needed_after_the_done_may_not_lie_under_the_result() -> None:
    module = module_of(
        f"x = {ARRAY} negate(p)",
        f"s = {COPY} copy-start(p)",
        f"d = {ARRAY} copy-done(s)",
        f"ROOT z = {ARRAY} add(d, x)",
    )
    (flight,) = async_chains(module)
    for offset, expected in ((64, []), (48, [("x", "z")])):
        losses = Accesses(module, memory(p=0, x=offset, s_0=32)).losses(flight)
        found = [(loss.read.value.instruction, loss.reader.name) for loss in losses]
        assert found == expected


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([f"ROOT d = {ARRAY} copy-done(p)"], "waits for %p, which is not a start but parameter"),
        (
            [f"x = {ARRAY} negate(p)", f"ROOT d = {ARRAY} copy-done(x)"],
            "waits for %x, which is not a start but negate",
        ),
        ([f"ROOT d = {ARRAY} copy-done(gone)"], "waits for %gone, which is not defined"),
        (
            [f"d = {ARRAY} copy-done(s)", f"s = {COPY} copy-start(p)", f"ROOT z = {ARRAY} copy(d)"],
            "is scheduled before its start, %s",
        ),
    ],
)
def test_a_done_needs_a_start_before_it(lines: list[str], says: str) -> None:
    module = module_of(*lines)
    (finding,) = hlo_lint.lint(module, ["start-without-done"]).findings
    assert says in finding.message


def test_a_group_of_sends_is_waited_for_one_by_one() -> None:
    """`_collectives_group`: the start is inside of the asynchronous computation."""
    sent = f"({ARRAY}, u32[], token[])"
    before = f"""
group {{
  q = {ARRAY} parameter(0)
  t = token[] after-all()
  inner = {sent} send(q, t), channel_id=1
  ROOT r = ({sent}) tuple(inner)
}}

"""
    module = module_of(
        f"s = (({ARRAY}), ({sent})) async-start(p), calls=group",
        f"d = ({sent}) async-done(s)",
        f"x = {ARRAY} negate(p)",
        "ROOT z = token[] send-done(d#0)",
        before=before,
    )
    inner, _ = async_chains(module)
    assert [done.name for done in inner.dones] == ["z"]
    assert hlo_lint.lint(module, ["start-without-done"]).findings == ()
    assert races(module, p=0, x=64) == []
    assert ("inner", "x") in races(module, p=0, x=16)
