"""Seeded values for the parameters of a module.

A seed gives the same values for the same shapes, so that two modules with equal signatures run on
the same inputs. Floats are small and have few bits, so that every float type holds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan, prod
from typing import TYPE_CHECKING, Final, TypeAlias

from hlo_lint.analysis.walks import reached
from hlo_lint.hlo.dtypes import (
    ELEMENT_TYPES,
    PART_OF_COMPLEX,
    integer_range,
    is_float,
    is_integer,
    is_signed,
)
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.parser.literals import AnyArray, numpy_dtype
from hlo_lint.hlo.shape import ArrayShape, arrays, leaves

if TYPE_CHECKING:
    import numpy

Random: TypeAlias = "numpy.random.Generator"

DEFAULT_LIMIT: Final = 4
"""The limit of integers that are no index: it keeps loops short where they are trip counts."""
SPARSE: Final = 1 << 20
"""A seed whose matrices have at most one number in each row and column, and whose floats are 1, -1
or 0.5: products of them are exact in every type, and do not grow in a loop."""
FINE: Final = SPARSE - 1
"""A seed whose floats have more digits than 16-bit types, which round all of them down."""
FINE_POSITIVE: Final = SPARSE - 3
"""The same with positive floats, whose sums grow."""
EDGES: Final = SPARSE + 1
"""The seed of inputs with infinities, NaNs and the ends of the ranges."""
SMALL_EDGES: Final = EDGES + 1
"""From this seed on, edges leave out the largest finite floats, which absorb every addend."""
_FINE_FACTOR: Final = 1 + 2.0**-10 + 2.0**-13
_EDGE_SHARE: Final = 8
"""The number of elements per edge value."""
_SMALL: Final = 64
"""In an array with fewer elements, every element is an edge value."""
_FOLLOWED: Final = frozenset(
    "add bitcast broadcast call clamp concatenate convert copy fusion maximum minimum reshape "
    "select slice transpose".split()
)
"""Opcodes through which an integer reaches its use as an index."""


def inputs_of(module: Module, seed: int = 0) -> list[AnyArray]:
    """Values for the leaves of the parameters of a module's entry computation, in order.

    Seeds alternate between numbers of both signs, positive numbers and negative numbers, so that
    the largest element of a row lies on each side of 0. Integers that the module uses as indices
    are in range; a scalar index is first nonzero, then 0, then the last index. Other integers are
    smaller than `DEFAULT_LIMIT`, except that unsigned integers of every second seed have any bits.
    Floats lie in [-2, 2]; where all have one sign, they are at least 0.5 from 0, so that no
    logarithm or root is a NaN. A scalar is neither 0 nor 1, which hide the other operand of a
    product. A predicate alternates between true and false.
    """
    limited = (
        (shape, index_limit(parameter, module))
        for parameter in (module.entry.parameters if module.entry else ())
        for shape in arrays(parameter.shape)
    )
    return [
        value(shape, (seed, number), limit=limit) for number, (shape, limit) in enumerate(limited)
    ]


def ends_of(dtype: str) -> tuple[int, int]:
    """The smallest and the largest number of an integer type."""
    numbers = integer_range(dtype)
    return numbers[0], numbers[-1]


def leaves_of(module: Module) -> list[tuple[str, ArrayShape]]:
    """The arrays in the parameters of a module's entry, in order, each with its name.

    An element of a tuple has the name of the parameter with its index: `state.0`.
    """
    return [
        (".".join([parameter.name, *map(str, index)]), shape)
        for parameter in (module.entry.parameters if module.entry else ())
        for index, shape in leaves(parameter.shape)
        if isinstance(shape, ArrayShape)
    ]


def value(
    shape: ArrayShape, seed: tuple[int, ...], *, limit: int | None = None, edges: bool = False
) -> AnyArray:
    """A value for an array; the first number of `seed` is the number of the run.

    With `edges` some elements are infinities, NaNs, zeros of both signs, and the smallest and
    largest numbers of their type.
    """
    import numpy as np

    run, *leaf = seed
    random = np.random.default_rng(seed)
    dtype, dims = shape.dtype, shape.dims
    target = numpy_dtype(dtype)
    has_sign, is_scalar = run % 3 != 1, prod(dims) == 1
    # f8e8m0fnu has no sign and no zero.
    is_plain_float = is_float(dtype) and dtype != "f8e8m0fnu"
    is_sparse = run == SPARSE and not is_scalar and (is_plain_float or dtype in PART_OF_COMPLEX)
    is_negative = run % 3 == 2 and limit is None and not is_scalar
    if is_sparse:
        return _sparse(random, dims).astype(target)
    turn = int(np.random.default_rng(leaf).integers(1 << 30)) + run
    result: AnyArray
    if is_scalar and limit is not None:
        firsts = 1 + turn % max(limit - 1, 1), 0, limit - 1
        result = np.full(dims, firsts[run] % limit if run < len(firsts) else turn % limit)
    elif is_scalar and dtype == "pred":
        result = np.full(dims, turn % 2)  # the next run takes the other branch
    elif dtype == "pred":
        result = random.integers(0, 2, dims)
    elif is_integer(dtype):
        result = _integers(random, shape, limit, has_sign)
    elif dtype in PART_OF_COMPLEX:
        result = _floats(random, dims, has_sign) + 1j * _floats(random, dims, has_sign)
    else:
        result = _floats(random, dims, has_sign and not is_negative and is_plain_float)
    if run in (FINE, FINE_POSITIVE) and (is_plain_float or dtype in PART_OF_COMPLEX):
        result = result * _FINE_FACTOR
    if is_negative and is_integer(dtype) and is_signed(dtype):
        result = -1 - abs(result)
    elif is_negative and is_plain_float:
        result = -result
    result = result.astype(target)
    if edges:
        numbers = _edge_values(dtype, limit, run < SMALL_EDGES)[::-1]
        if result.size < _SMALL:
            # The order differs for each parameter, so that each value meets others.
            shift = 0 if is_scalar else sum(leaf)
            result = numbers[(np.arange(result.size) + shift) % numbers.size].reshape(dims)
        else:
            is_edge = random.integers(0, _EDGE_SHARE, dims) == 0
            result = np.where(is_edge, random.choice(numbers, dims), result)
    return np.asarray(result, target)


def _integers(random: Random, shape: ArrayShape, limit: int | None, has_sign: bool) -> AnyArray:
    import numpy as np

    dtype, dims = shape.dtype, shape.dims
    bits = ELEMENT_TYPES[dtype].bits - is_signed(dtype)
    if not has_sign and not is_signed(dtype):
        # Without a sign they are bits: keys of random numbers, halves of wider integers.
        return random.integers(0, min(limit or 1 << bits, 1 << min(bits, 62)), dims)
    end = max(min(limit or DEFAULT_LIMIT, 1 << min(bits, 62)), 1)
    # A negative trip count runs no loop, so some seeds have positive counts only.
    signed = has_sign and is_signed(dtype) and limit is None
    if prod(dims) == 1:
        return np.asarray(
            random.integers(end // 2, end, dims) * (1 - 2 * signed * random.integers(0, 2))
        )
    return random.integers(1 - end if signed else 0, end, dims)


def _floats(random: Random, dims: tuple[int, ...], has_sign: bool) -> AnyArray:
    """Multiples of 1/8: bf16 and f16 hold them, 8-bit types the nearest values."""
    import numpy as np

    numbers = np.asarray(random.integers(-16 if has_sign else 4, 17, dims))
    return (numbers | 1 if prod(dims) == 1 else numbers) / 8


def _sparse(random: Random, dims: tuple[int, ...]) -> AnyArray:
    """The floats of `SPARSE`."""
    import numpy as np

    numbers = np.asarray(random.choice([1.0, -1.0, 0.5], dims))
    if len(dims) < 2 or 0 in dims:
        return numbers
    count, columns = dims[-2:]
    rows = np.arange(0, count, -(-count // columns))
    is_kept = np.zeros((count, columns))
    is_kept[rows, random.permutation(columns)[: len(rows)]] = 1
    return np.asarray(numbers * is_kept)


def _edge_values(dtype: str, limit: int | None, has_largest: bool) -> AnyArray:
    """The ends of a type's range, with infinities, NaN and zeros; of an index the array's."""
    import numpy as np

    target = numpy_dtype(dtype)
    if dtype == "pred":
        return np.array([False, True])
    if is_integer(dtype):
        lowest, highest = ends_of(dtype)
        # An index also gets the positions right beside the array.
        ends = [0, highest, lowest] if limit is None else [0, limit - 1, limit, -1, lowest]
        return np.array([min(max(lowest, end), highest) for end in ends], object).astype(target)
    if dtype in PART_OF_COMPLEX:
        return np.array([0, np.inf, np.nan, complex(0, -np.inf)], target)
    facts = ELEMENT_TYPES[dtype]
    largest = (2 - 2.0 ** (1 - facts.significand_bits)) * 2.0 ** (facts.max_exponent - 1)
    numbers = [1.0, largest] if dtype == "f8e8m0fnu" else [0.0, -0.0, 1.0, largest, -largest]
    if not has_largest and largest + 1 == largest:
        numbers = [number for number in numbers if abs(number) < largest]
    return np.array([*numbers, *not_finite(dtype)]).astype(target)


def not_finite(dtype: str) -> list[float]:
    """The infinities of a float type, and NaN."""
    infinities = [inf, -inf] * ELEMENT_TYPES[dtype].has_infinity
    return infinities + [nan] * (dtype not in ("f4e2m1fn", "f6e2m3fn", "f6e3m2fn"))


# ---- the integers that are indices


def index_limit(parameter: Instruction, module: Module) -> int | None:
    """The smallest size that an integer parameter indexes; None for any other parameter."""
    shape = parameter.shape_or_none
    if not any(is_integer(array.dtype) for array in arrays(shape)):
        return None
    sources = reached([parameter], lambda source: _holders(source, module))
    limits = (n for source in sources for user in source.users for n in _limits(user, source))
    return min((limit for limit in limits if limit > 0), default=None)


def _holders(source: Instruction, module: Module) -> Iterator[Instruction]:
    """The instructions that hold the integers of `source` after they, or their calls, read them."""
    for user in source.users:
        if user.opcode not in _FOLLOWED:
            continue
        for name in user.called_computations:
            body = module.computation(name)
            parameters = body.parameters if body is not None else ()
            for operand, parameter in zip(user.operands, parameters, strict=False):
                if operand.instruction is source:
                    yield parameter
        yield user


def _limits(user: Instruction, source: Instruction) -> Iterator[int]:
    """The sizes that an instruction indexes with `source`."""
    operands = [operand.instruction for operand in user.operands]
    array = user.operand_shape(0)
    if not isinstance(array, ArrayShape):
        return
    match user.opcode:
        case "gather" if operands[1:2] == [source]:
            sizes = user.integers_attribute("slice_sizes") or ()
            for axis in user.dimensions_attribute("start_index_map", len(sizes)) or ():
                if axis < array.rank:
                    yield array.dims[axis] - sizes[axis] + 1
        case "scatter" if len(operands) == 3 and operands[1] is source:
            name = "scatter_dims_to_operand_dims"
            for axis in user.dimensions_attribute(name, array.rank) or ():
                yield array.dims[axis]
        case "ragged-dot" if operands[2:3] == [source]:
            # The groups share the dimension: together they are no longer than it.
            groups, ragged = user.operand_shape(2), user.integers_attribute("lhs_ragged_dims")
            for axis in ragged or ():
                if isinstance(groups, ArrayShape) and groups.dims and axis < array.rank:
                    yield array.dims[axis] // max(groups.dims[-1], 1) + 1
        case "set-dimension-size" if operands[1:] == [source]:
            for axis in user.integers_attribute("dimensions") or ():
                yield array.dims[axis] + 1
        case "conditional" if operands[0] is source:
            yield len(user.called_computations)
        case "dynamic-slice" | "dynamic-update-slice":
            is_update = user.opcode == "dynamic-update-slice"
            part = user.operand_shape(1) if is_update else user.shape_or_none
            if isinstance(part, ArrayShape):
                starts = zip(operands[1 + is_update :], array.dims, part.dims, strict=False)
                yield from (size - taken + 1 for start, size, taken in starts if start is source)
