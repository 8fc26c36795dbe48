"""Inputs that are out to break a pair of programs.

Each integer and each float is drawn at the numbers that the programs ask for (`demands.py`), at the
ends of its type, where products wrap, and at random bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import isqrt, log, prod
from typing import TYPE_CHECKING, Any, Final

from hlo_lint.engine.values.demands import SUMMED, Addends, demands
from hlo_lint.engine.values.inputs import Random, ends_of, not_finite, value
from hlo_lint.hlo.dtypes import BITS, ELEMENT_TYPES, PART_OF_COMPLEX, is_integer
from hlo_lint.hlo.parser.literals import AnyArray, numpy_dtype
from hlo_lint.hlo.shape import ArrayShape

if TYPE_CHECKING:
    from hlo_lint.engine.values.lowering.graph import Node
    from hlo_lint.engine.values.lowering.program import Input, Program

HOSTILE: Final = 1 << 21
"""The first seed of hostile inputs with ordinary floats."""
SPECIAL: Final = 1 << 22
"""The first seed of hostile floats: infinities, NaNs, zeros of both signs, denormals."""
LARGE: Final = SPECIAL + HOSTILE
"""The first seed of large floats of one sign, whose exponentials vanish or are infinite."""
LARGE_RUNS: Final = 3
OWN: Final = 1 << 23
"""The first seed of floats whose squares and exponentials overflow or vanish in their own type."""
OWN_RUNS: Final = 12
MIN_OWN_RUNS: Final = 3
"""These runs of a large program: one of each kind of `_extremes`."""
EXACT_OWN_RUNS: Final = 24
"""These runs where no operation rounds, so that every difference counts."""
MAX_COMBINATIONS: Final = 1 << 16
MAX_RUNS: Final = 64
"""The runs of a small program."""
PRODUCTS: Final = 4
"""The products that a dot computes in the time of one element of another operation, with its input,
its result and its comparison."""
RUN_WORK: Final = 1 << 19
"""Elements that all runs together compute; at least `MIN_RUNS` runs."""
MIN_RUNS: Final = 2
"""The runs of a large program."""
UNDEFINED: Final = frozenset({"bounded", "ragged-dot"})
"""Opcodes with sizes among their operands, which mean nothing outside of their range."""
MAX_PREDICATES: Final = 4
"""The most scalar predicates whose combinations all run."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The facts about a parameter for its hostile values."""

    numbers: tuple[float, ...] = ()
    """The numbers at which the programs decide, wrap or round."""
    is_count: bool = False
    """True if it decides how often a loop runs: it is then near to `numbers` or small."""
    turn: int = 0
    """The position among the scalar predicates."""
    stride: int = 1
    """For a scalar the number of combinations of the scalars before it."""
    combinations: int = 1
    """The number of combinations of all scalars."""
    addends: tuple[tuple[int, Addends], ...] | None = None
    """The sums of its elements, as `Demands.addends`; None if the programs have no such sums."""


def hostile_inputs(before: Program, after: Program, inputs: tuple[Input, ...]) -> tuple[Input, ...]:
    """The inputs of two programs with the numbers that both want."""
    both = [demands(program.graph) for program in (before, after)]
    opcodes = {source.opcode for source in before.origins.values()}
    opcodes |= {node.opcode for node in before.nodes}
    has_sizes = not UNDEFINED.isdisjoint(opcodes)
    wants = [
        {n: None for side in both for n in side.numbers.get(number, ())}
        for number in range(len(inputs))
    ]
    counts = both[0].counts | both[1].counts
    addends = next((side.addends for side in both if any(side.addends.values())), None)
    of_scalars: dict[str, dict[float, None]] = {}
    for number, input_ in enumerate(inputs):
        if prod(input_.shape.dims) == 1 and number not in counts:
            of_scalars.setdefault(input_.shape.dtype, {}).update(wants[number])
    turn, stride = 0, 1
    result: list[tuple[Input, Wanted | None]] = []
    for number, (input_, numbers) in enumerate(zip(inputs, wants, strict=True)):
        if not numbers and prod(input_.shape.dims) == 1:  # it may be compared with another scalar
            numbers = of_scalars.get(input_.shape.dtype, {})
        if has_sizes and input_.limit is not None:
            result.append((input_, None))
            continue
        sums = None if addends is None else tuple(addends.get(number, {}).items())
        wanted = Wanted(tuple(numbers), number in counts, turn, stride, addends=sums)
        result.append((input_, wanted))
        if prod(input_.shape.dims) == 1:
            turn += input_.shape.dtype == "pred"
            stride = min(stride * max(len(numbers), 1), MAX_COMBINATIONS)
    return tuple(
        replace(input_, wanted=wanted and replace(wanted, combinations=stride))
        for input_, wanted in result
    )


def run_count(before: Program, after: Program, inputs: tuple[Input, ...]) -> int:
    """The number of hostile runs: few for large programs."""
    predicates = sum(i.shape.dtype == "pred" and prod(i.shape.dims) == 1 for i in inputs)
    work = max(map(work_of, (before, after)))
    needed = 1 << predicates if predicates <= MAX_PREDICATES else 0
    return max(min(MAX_RUNS, RUN_WORK // max(work, 1)), MIN_RUNS, needed)


def hostile_seeds(
    before: Program, after: Program, hostile: tuple[Input, ...], count: int
) -> list[int]:
    """The seeds of hostile runs: the first ones, and those in which sums have one term."""
    has_sums = any(input_.wanted and input_.wanted.addends for input_ in hostile)
    is_short = max(map(work_of, (before, after))) <= MAX_SELECTING
    selecting = SELECTING if has_sums and is_short else ()
    return [HOSTILE + run for run in sorted({*range(count), *selecting})]


def work_of(program: Program) -> int:
    """The number of elements that a program computes, roughly."""
    return sum(map(_work, program.nodes))


def _work(node: Node) -> int:
    """The number of elements that a node computes, roughly."""
    elements = sum(prod(shape.dims) for shape in node.shapes)
    if node.opcode in ("dot", "convolution"):
        arrays = (*node.operands, node)
        return elements + isqrt(prod(prod(array.shape.dims) for array in arrays)) // PRODUCTS
    return elements * (64 if node.opcode == "while" else 1)


def hostile_value(input_: Input, seed: int) -> AnyArray:
    """The values of an input in a hostile run."""
    import numpy as np

    shape, wanted = input_.shape, input_.wanted
    assert wanted is not None
    dtype, dims = shape.dtype, shape.dims
    run = seed % HOSTILE
    random = np.random.default_rng((seed, input_.leaf, input_.device))
    if dtype == "pred":
        if prod(dims) == 1:
            return np.full(dims, bool(run >> wanted.turn & 1))
        return random.integers(0, 2, dims) > 0 if run % 4 < 3 else np.full(dims, run % 8 < 4)
    if dtype in PART_OF_COMPLEX:
        array = np.zeros(dims, numpy_dtype(dtype))
        part = PART_OF_COMPLEX[dtype]
        array.real, array.imag = (_floats(random, part, input_, seed + turn) for turn in range(2))
        return array
    if is_integer(dtype):
        return _integers(random, input_, run)
    return _floats(random, dtype, input_, seed)


SELECTING: Final = (5, 1)
"""The hostile runs of 16 in which the left or the right sides of products select elements of the
other ones."""
MAX_SELECTING: Final = 1 << 25
"""The most work of a program with few runs that has both of them."""
MAX_SELECTED: Final = 1 << 24
"""The largest number that they select."""
MAX_COUNT: Final = 1 << 16
_SHARES: Final = ((4, 0, 0), (3, 3, 0), (1, 3, 3), (8, 0, 0))
"""Of eight elements those at wanted numbers, at the ends of the type, and of any bits, in each run
of four. The rest is small. In the last run all elements are the same."""


def _integers(random: Random, input_: Input, run: int) -> AnyArray:
    import numpy as np

    wanted, shape = input_.wanted, input_.shape
    assert wanted is not None
    low, high = ends_of(shape.dtype)
    target = numpy_dtype(shape.dtype)
    small = value(shape, (run, input_.leaf, input_.device), limit=input_.limit)
    near = [int(n) for n in wanted.numbers]
    ends, (at_near, at_ends, any_bits) = _ends(low, high), _SHARES[run % 4]
    if wanted.is_count:
        # The largest first: a loop that does not run computes nothing.
        near = sorted((n for n in near if abs(n) <= MAX_COUNT), reverse=True)
        near = near or [n for n in (2, 1, 0, -1, 3) if low <= n <= high]
        ends, any_bits = near, 0
    near = near or ends
    widest = np.int64 if low else np.uint64
    bits = random.integers(low, high, shape.dims, widest, endpoint=True).astype(target)
    if prod(shape.dims) == 1:
        if run % 2 == 0 and wanted.numbers:
            return np.full(shape.dims, _combined(near, wanted, run // 2), object).astype(target)
        end = np.full(shape.dims, ends[random.integers(len(ends))], object)
        kinds = [small, bits if any_bits else small, end]
        return np.asarray(kinds[random.integers(len(kinds))], target)
    arranged = _arranged(random, small, near, run, input_)
    if arranged is not None:
        return arranged.astype(target)
    kind = random.integers(0, 8, shape.dims)
    choices = [
        np.array(numbers, object)[random.integers(0, len(numbers), shape.dims)].astype(target)
        for numbers in (near, ends)
    ]
    conditions = [kind < end for end in accumulate((at_near, at_ends, any_bits))]
    return np.select(conditions, [*choices, bits], small).astype(target)


def _arranged(
    random: Random, ordinary: AnyArray, wanted: Sequence[float], run: int, input_: Input
) -> AnyArray | None:
    """Wanted numbers where sums, products and maxima are one of them; None in most runs.

    They are everywhere; or each sum has one term; or they are among zeros, beside ones in other
    arrays; or in slices, each of which has one number everywhere, one among zeros, ones, or
    ordinary numbers.
    """
    import numpy as np

    assert input_.wanted is not None
    numbers = np.array(wanted, object).astype(ordinary.dtype)
    dims, turn, leaf = ordinary.shape, run // 8, input_.leaf
    if run % 16 in SELECTING and input_.wanted.addends is not None:
        return _selected(random, ordinary, wanted, input_, run)
    if run % 4 == 3:
        return np.full(dims, numbers[run // 4 * (leaf + 1) % len(numbers)])
    if run % 4 != 1 or not ordinary.size:
        return None
    array = np.zeros(dims, ordinary.dtype)
    if run % 8 == 1:
        axis = _axis(dims, turn + leaf)
        slices: AnyArray = np.moveaxis(array, axis, 0)
        rows = np.arange(len(slices))
        picks = numbers[(rows // 4 + turn) % len(numbers)]
        slices[::4] = picks[::4].reshape(-1, *[1] * (len(dims) - 1))
        alone = [random.integers(size, size=rows[1::4].size) for size in slices.shape[1:]]
        slices[(rows[1::4], *alone)] = picks[1::4]
        slices[2::4] = 1
        slices[3::4] = np.moveaxis(ordinary, axis, 0)[3::4]
    elif (turn + leaf) % 2:
        array += 1
    else:
        # No two in one row of any axis; in some runs, and of a row, only one.
        sizes = [size for size in dims if size > 1]
        is_row = len(sizes) < 2
        places = np.arange(1 if is_row or turn % 4 > 1 else min(sizes))
        diagonal = [(places + random.integers(size)) % size for size in dims]
        array[tuple(diagonal)] = numbers[(places + turn // (2 if is_row else 4)) % len(numbers)]
    return array


def _selected(
    random: Random, ordinary: AnyArray, wanted: Sequence[float], input_: Input, run: int
) -> AnyArray:
    """Wanted numbers, or ones where the array selects the addends of sums, one of each.

    A product with it then has the numbers of its other side. The small ones are more frequent, as a
    large one hides the others in a later sum; where results have few digits, most are 0.
    """
    import numpy as np

    assert input_.wanted is not None
    uses, dims = dict(input_.wanted.addends or ()), ordinary.shape
    side = SELECTING.index(run % 16)
    if (addends := uses.get(side)) is not None:
        return _one_each(random, addends).astype(ordinary.dtype)
    numbers = [n for n in wanted if abs(n) <= MAX_SELECTED] or [1]
    shares = 1 / (1 + np.abs(np.array(numbers, float)))
    places = random.choice(len(numbers), dims, p=shares / shares.sum())
    is_sparse = (run // 16 + (BITS[input_.shape.dtype] < 32)) % 2
    ends = (1, 7) if is_sparse else (5, 6)
    kind = random.integers(0, 8, dims)
    choices = [np.array(numbers, ordinary.dtype)[places], np.zeros_like(ordinary)]
    array = np.select([kind < end for end in ends], choices, ordinary)
    if side == 0 and SUMMED in uses:
        others = [n for n in numbers[run // 16 % len(numbers) :] + numbers if n]
        array = _one_each(random, uses[SUMMED], np.array(others or [1], ordinary.dtype))
    return array.astype(ordinary.dtype)


def _one_each(
    random: Random, addends: Addends, numbers: Sequence[Any] | AnyArray = (1.0,)
) -> AnyArray:
    """An array with a number in each sum, and 0 elsewhere."""
    import numpy as np

    axes = addends.axes
    others = [size for axis, size in enumerate(addends.dims) if axis not in axes]
    summed = [addends.dims[axis] for axis in axes]
    flat = np.zeros((prod(others), prod(summed)), np.asarray(numbers).dtype)
    if flat.size:
        places = np.arange(len(flat)), random.integers(flat.shape[1], size=len(flat))
        flat[places] = np.resize(numbers, len(flat))
    array = np.moveaxis(flat.reshape(*others, *summed), range(-len(axes), 0), axes)
    for node in addends.path:
        source = node.operands[0].shape.dims
        match node.opcode:
            case "reshape":
                array = array.reshape(source)
            case "transpose":
                array = array.transpose(np.argsort(node.integers("dimensions")))
            case "reverse":
                array = np.flip(array, node.integers("dimensions"))
            case "broadcast":
                kept = node.integers("dimensions")
                array = array.max(tuple({*range(array.ndim)} - {*kept}))
                array = array.transpose(np.argsort(np.argsort(kept)))
    return array


def _axis(dims: Sequence[int], turn: int) -> int:
    """The first axis of several elements, in every second turn the last one."""
    least = min(max(dims, default=1), 4)
    axes = [axis for axis, size in enumerate(dims) if size >= least]
    return axes[-(turn % 2)]


def _combined(numbers: Sequence[float], wanted: Wanted, run: int) -> float:
    """The number of a scalar: in the first run all are at their first, then in each combination."""
    import numpy as np

    if run:
        order = np.random.default_rng(0).permutation(wanted.combinations)
        run = int(order[run % wanted.combinations])
    return numbers[run // wanted.stride % len(numbers)]


def _ends(low: int, high: int) -> list[int]:
    """The ends of an integer type, and numbers whose sums and products wrap."""
    root = isqrt(high)
    numbers = [0, high, low, 1, -1, high - 1, low + 1, root + 1, -root - 1, high // 2 + 1, 2, -2, 3]
    numbers += [1 << (high.bit_length() + 1) // 2, -3]
    return [*dict.fromkeys(n for n in numbers if low <= n <= high)]


def _floats(random: Random, dtype: str, input_: Input, seed: int) -> AnyArray:
    import numpy as np

    assert input_.wanted is not None
    dims, run = input_.shape.dims, seed % HOSTILE
    target = numpy_dtype(dtype)
    ordinary = value(ArrayShape(dtype, dims), (run % 2, input_.leaf, input_.device, run))
    with np.errstate(over="ignore"):
        fitting = np.array(input_.wanted.numbers, float).astype(target).astype(float)
    numbers = wanted_numbers = fitting[np.isfinite(fitting)].tolist()
    if input_.wanted.is_count:  # a loop until values converge
        return np.asarray(ordinary, target)
    share, is_graded = 4, False
    if seed >= OWN:
        # In a dot of two large arrays every sum is infinite: in some runs every second is small, or
        # selects elements of the other one.
        turn, share = run // 3 % 4, 8
        is_large = turn % 2 or input_.leaf % 2 == turn // 2 or run % 3 == 2
        is_graded = turn == 0 and run % 3 < 2 and prod(dims) > 1
        side = 1 - (run + run // 12) % 2
        if is_graded and (addends := dict(input_.wanted.addends or ()).get(side)) is not None:
            return _one_each(random, addends).astype(target)
        numbers = _extremes(dtype, run) if is_large and not is_graded else [1.0, -1.0]
        numbers += wanted_numbers if run % 3 < 2 else []
    elif seed >= LARGE:
        powers = random.integers(4, max(min(11, ELEMENT_TYPES[dtype].max_exponent - 3), 5), dims)
        signs = random.choice([-1.0, 1.0], dims) if run % 3 == 2 else 2.0 * (run % 3) - 1
        large = random.uniform(1, 2, dims) * 2.0**powers * signs
        return np.asarray(abs(large) if dtype == "f8e8m0fnu" else large).astype(target)
    elif seed >= SPECIAL:
        least = 2.0 ** (2 - max(ELEMENT_TYPES[dtype].max_exponent, 2))
        numbers = [*numbers, 0.0, -0.0, 1.0, -1.0, least, -least / 2, *not_finite(dtype)]
    elif run % 4 == 2:
        # More digits than most types hold.
        ordinary = (random.standard_normal(dims) * 3).astype(target)
        share = 1
    if dtype == "f8e8m0fnu":
        numbers = [n for n in numbers if n > 0]
    if not numbers:
        return np.asarray(ordinary, target)
    with np.errstate(all="ignore"):
        if run % 4 == 3 and SPECIAL <= seed < LARGE:  # all infinite, where the type can be
            place = min(2 + run // 4 % 2, len(numbers))
            return np.full(dims, numbers[-place]).astype(target)
        if prod(dims) == 1:
            pick = numbers[random.integers(len(numbers))]
            if seed < SPECIAL:
                if run % 4 == 1:
                    return np.asarray(ordinary, target)
                pick = pick if run % 2 else _combined(numbers, input_.wanted, run // 2)
            return np.full(dims, pick).astype(target)
        if seed < SPECIAL:
            arranged = _arranged(random, ordinary, numbers, run, input_)
            if arranged is not None:
                return arranged
        picks = random.integers(0, len(numbers), dims)
        if seed >= OWN and run % 3 == 1:  # in these runs together each number
            order = np.random.default_rng(input_.leaf).permutation(len(numbers))
            picks = order[(np.arange(prod(dims)) + run // 3 * prod(dims)) % len(order)]
            picks = picks.reshape(dims)
        wanted = np.array(numbers)[picks].astype(target)
        if is_graded:
            # Of one sign: sums of infinities of both are NaNs, or not, depending on their order.
            slices = np.moveaxis(wanted, _axis(dims, run // 12 + input_.leaf), 0)
            grades = _grades(dtype, run, len(slices))[::2].reshape(-1, *[1] * (len(dims) - 1))
            slices[::2] = grades * random.uniform(1, 2, slices[::2].shape) * (-1) ** (run // 12)
    return np.where(random.integers(0, 8, dims) < share, wanted, ordinary).astype(target)


def _extremes(dtype: str, run: int) -> list[float]:
    """Numbers whose squares or exponentials overflow in a type, or whose squares vanish.

    A run has one of these kinds only: products of large and small numbers depend on their order,
    and beside a 1 a small number vanishes.
    """
    top = ELEMENT_TYPES[dtype].max_exponent
    large, small = 2.0 ** (top // 2 + 1), 2.0 ** (-top // 2 - 4)
    power = log(2) * top
    ones = [1.0, -1.0]
    kinds = (
        [*ones, large, -large, 2 * large],
        [*ones, power + 2, -power - 2, power / 1.5],
        [small, -small, 4 * small],
    )
    return kinds[run % len(kinds)]


def _grades(dtype: str, run: int, count: int) -> AnyArray:
    """Numbers from 1 to the extremes of a run: a sum or product of some of them is of each size."""
    import numpy as np

    end = _extremes(dtype, run)[-1]
    return np.linspace(1, 2 * end, count) if run % 3 else np.geomspace(1, end, count)
