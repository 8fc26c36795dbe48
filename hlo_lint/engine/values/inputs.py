"""Seeded values for the parameters of a module.

The same seed gives the same values for the same shapes, so that two modules with one signature run
on the same inputs. Floats are small, and have few bits, so that every type of float holds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from hlo_lint.hlo.dtypes import ELEMENT_TYPES, PART_OF_COMPLEX, is_integer, is_signed
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.parser.literals import numpy_dtype
from hlo_lint.hlo.shape import ArrayShape, arrays

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

DEFAULT_LIMIT: Final = 4
"""Integers that index nothing are smaller: a trip count among them keeps loops short."""
_EDGE_SHARE: Final = 8
"""With edge values, one element of so many is one."""
_FOLLOWED: Final = frozenset(
    "add bitcast broadcast call clamp concatenate convert copy fusion maximum minimum reshape "
    "select slice transpose".split()
)
"""Opcodes through which an integer reaches the place where it is an index."""


def inputs_of(module: Module, seed: int = 0, *, edges: bool = False) -> list[NDArray[Any]]:
    """Values for the leaves of the parameters of a module's entry computation, in order.

    Integers that the module uses as indices are in range; others are smaller than `DEFAULT_LIMIT`,
    of both signs with an even seed, but for the unsigned ones of an odd seed, which have any bits.
    Floats of an even seed lie in [-2, 2], those of an odd one in [0.5, 2], where no logarithm and
    no root is a NaN. With `edges` some elements are infinities, NaNs, zeros of both signs, and the
    smallest and largest numbers of their type.
    """
    entry = module.entry
    if entry is None:
        return []
    return values(
        [
            (shape, index_limit(parameter, module))
            for parameter in entry.parameters
            for shape in arrays(parameter.shape)
        ],
        seed,
        edges=edges,
    )


def values(
    shapes: Sequence[tuple[ArrayShape, int | None]], seed: int, *, edges: bool = False
) -> list[NDArray[Any]]:
    """Values for arrays; of integers with a limit, all are smaller."""
    return [
        value(shape, (seed, number), limit=limit, edges=edges)
        for number, (shape, limit) in enumerate(shapes)
    ]


def value(
    shape: ArrayShape, seed: tuple[int, ...], *, limit: int | None = None, edges: bool = False
) -> NDArray[Any]:
    """A value for one array; the first number of `seed` is that of the run."""
    import numpy as np

    random = np.random.default_rng(seed)
    dtype, dims = shape.dtype, shape.dims
    kind = numpy_dtype(dtype)
    result: NDArray[Any]
    if dtype == "pred":
        result = random.integers(0, 2, dims).astype(bool)
    elif is_integer(dtype):
        bits = ELEMENT_TYPES[dtype].bits - is_signed(dtype)
        # Without a sign they are bits: keys of random numbers, halves of wider integers.
        is_bits = seed[0] % 2 == 1 and not is_signed(dtype)
        end = min(limit or (1 << bits if is_bits else DEFAULT_LIMIT), 1 << min(bits, 62))
        # A negative trip count runs no loop: those of an odd seed have none.
        has_sign = seed[0] % 2 == 0 and is_signed(dtype) and limit is None
        begin = 1 - end if has_sign else 0
        result = random.integers(begin, max(end, 1), dims).astype(kind)
    elif dtype in PART_OF_COMPLEX:
        real, imaginary = (_floats(random, dims, seed[0] % 2 == 1) for _ in range(2))
        result = (real + 1j * imaginary).astype(kind)
    else:
        positive = seed[0] % 2 == 1 or dtype == "f8e8m0fnu"  # which has no sign and no zero
        result = _floats(random, dims, positive).astype(kind)
    if edges and result.size:
        chosen = random.integers(0, _EDGE_SHARE, dims) == 0
        special = _edge_values(dtype, limit)
        result = np.where(chosen, special[random.integers(0, len(special), dims)], result)
    return np.asarray(result, kind)


def _floats(random: numpy.random.Generator, dims: tuple[int, ...], positive: bool) -> NDArray[Any]:
    """Multiples of an eighth: bf16 and f16 hold them, the types of 8 bits the nearest ones."""
    import numpy as np

    begin = 4 if positive else -16
    return np.asarray(random.integers(begin, 17, dims) / 8)


def _edge_values(dtype: str, limit: int | None) -> NDArray[Any]:
    import numpy as np

    kind = numpy_dtype(dtype)
    if dtype == "pred":
        return np.array([False, True])
    if is_integer(dtype):
        bits = ELEMENT_TYPES[dtype].bits - is_signed(dtype)
        lowest = -(1 << bits) if is_signed(dtype) else 0
        highest = (1 << bits) - 1
        return np.array([0, highest if limit is None else limit - 1, lowest], object).astype(kind)
    if dtype in PART_OF_COMPLEX:
        return np.array([0, np.inf, np.nan, complex(0, -np.inf)], kind)
    facts = ELEMENT_TYPES[dtype]
    largest = (2 - 2.0 ** (1 - facts.significand_bits)) * 2.0 ** (facts.max_exponent - 1)
    numbers = [1.0, largest] if dtype == "f8e8m0fnu" else [0.0, -0.0, 1.0, largest, -largest]
    if facts.has_infinity:
        numbers += [np.inf, -np.inf]
    if dtype not in ("f4e2m1fn", "f6e2m3fn", "f6e3m2fn"):
        numbers.append(np.nan)
    return np.array(numbers).astype(kind)


# ---- the integers that are indices


def index_limit(parameter: Instruction, module: Module) -> int | None:
    """The smallest size that a parameter of integers indexes; None if it indexes nothing."""
    shape = parameter.shape_or_none
    if not any(is_integer(array.dtype) for array in arrays(shape)):
        return None
    by_name = {computation.name: computation for computation in module.computations}
    limits: list[int] = []
    seen = {parameter}
    queue = [parameter]
    for source in queue:
        for user in source.users:
            limits += _limits(user, source)
            for target in _reached(user, source, by_name):
                if target not in seen:
                    seen.add(target)
                    queue.append(target)
    return min((limit for limit in limits if limit > 0), default=None)


def _reached(
    user: Instruction, source: Instruction, by_name: Mapping[str, Computation]
) -> Iterator[Instruction]:
    """The instructions that hold the integers of `source` after `user` has read them."""
    if user.opcode not in _FOLLOWED:
        return
    if not user.called_computations:
        yield user
        return
    for name in user.called_computations:
        body = by_name.get(name)
        parameters = body.parameters if body is not None else ()
        for number, operand in enumerate(user.operands):
            if operand.instruction is source and number < len(parameters):
                yield parameters[number]
    yield user


def _limits(user: Instruction, source: Instruction) -> Iterator[int]:
    """The sizes that an instruction indexes with `source`."""
    operands = [operand.instruction for operand in user.operands]
    array = user.operands[0].shape if user.operands else None
    if not isinstance(array, ArrayShape):
        return
    match user.opcode:
        case "gather" if operands[1:2] == [source]:
            sizes = _integers(user, "slice_sizes")
            for axis in _integers(user, "start_index_map"):
                yield array.dims[axis] - sizes[axis] + 1
        case "scatter" if len(operands) == 3 and operands[1] is source:
            for axis in _integers(user, "scatter_dims_to_operand_dims"):
                yield array.dims[axis]
        case "dynamic-slice" if source in operands[1:]:
            shape = user.shape_or_none
            if isinstance(shape, ArrayShape):
                for axis, operand in enumerate(operands[1:]):
                    if operand is source and axis < array.rank:
                        yield array.dims[axis] - shape.dims[axis] + 1
        case "dynamic-update-slice" if source in operands[2:]:
            update = user.operands[1].shape
            if isinstance(update, ArrayShape):
                for axis, operand in enumerate(operands[2:]):
                    if operand is source and axis < array.rank:
                        yield array.dims[axis] - update.dims[axis] + 1


def _integers(instruction: Instruction, name: str) -> tuple[int, ...]:
    """The integers that an attribute lists; none where it is absent."""
    numbers = instruction.attribute(name)
    return (
        tuple(number for number in numbers if isinstance(number, int))
        if isinstance(numbers, tuple)
        else ()
    )
