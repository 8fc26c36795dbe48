"""Random bits, as XLA's expander makes them (`xla/hlo/builder/lib/prng.cc`).

What a device draws by itself (`rng`, `rng-get-and-update-state`) has no value of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

import numpy as np

from hlo_lint.engine.values.evaluator.arrays import Array, Unsupported, Value
from hlo_lint.engine.values.evaluator.site import Kernel, Site

_ROTATIONS: Final = (13, 15, 26, 6, 17, 29, 16, 24)
_LOW: Final = np.uint64(0xFFFFFFFF)
_WIDTH: Final = np.uint64(32)


def _rng_bit_generator(site: Site) -> Kernel:
    state_shape, result = site.results[-2:] if len(site.results) == 2 else (None, site.array)
    algorithm = site.attribute("algorithm", "rng_default")
    bits = result.element_bits
    if bits not in (8, 16, 32, 64) or result.dtype != f"u{bits}":
        raise Unsupported(f"random bits of {result.dtype}")
    # XLA:CPU and XLA:GPU expand the default as Philox.
    draw, sizes = (_philox, {(2,), (3,)})
    if algorithm == "rng_three_fry":
        draw, sizes = _three_fry, {(2,)}
    wide = bits == 64

    def generate(state: Array) -> Value:
        # XLA's expander refuses any other state; Threefry has a counter of one word.
        if state.dtype != np.uint64 or state.shape not in sizes:
            raise Unsupported(f"a generator whose state is {state.dtype.name}{list(state.shape)}")
        site.spend(40 * prod(result.dims))
        with np.errstate(over="ignore"):
            drawn, after = draw(state, result.dims, wide)
        values = drawn.astype(f"u{bits // 8}")
        if state_shape is None:
            return values
        return np.concatenate([state[:1], after]), values

    return generate


def _halves(words: Array) -> tuple[Array, Array]:
    """The low and the high 32 bits, each in 64."""
    return words & _LOW, words >> _WIDTH


def _joined(low: Array, high: Array) -> Array:
    return np.asarray(low | high << _WIDTH)


def _three_fry(state: Array, dims: tuple[int, ...], wide: bool) -> tuple[Array, Array]:
    """Bits and the counter after them; words of 32 bits are drawn in pairs."""
    drawn = dims or (1,)
    sizes = list(drawn)
    even = [axis for axis, size in enumerate(drawn) if not size % 2]
    axis = even[0] if even else int(np.argmax(drawn))
    if not wide:
        # Of a dimension each two neighbours are one pair: the first that is even, or the largest.
        sizes[axis] = -(-sizes[axis] // 2)
    count = prod(sizes)
    counters = state[1] + np.arange(count, dtype=np.uint64)
    low, high = _three_fry_block(_halves(counters), _halves(state[0]))
    after = state[1:2] + np.uint64(count)
    if wide:
        return _joined(low, high).reshape(dims), after
    pairs = np.stack([low.reshape(sizes), high.reshape(sizes)], axis + 1)
    sizes[axis] *= 2
    return pairs.reshape(sizes).take(range(drawn[axis]), axis).reshape(dims), after


def _three_fry_block(x: tuple[Array, Array], key: tuple[Array, Array]) -> tuple[Array, Array]:
    """Threefry-2x32 with 20 rounds."""
    keys = (*key, np.uint64(0x1BD11BDA) ^ key[0] ^ key[1])
    one, other = (part + own & _LOW for part, own in zip(x, key, strict=True))
    for step in range(5):
        for rotation in _ROTATIONS[step % 2 * 4 :][:4]:
            one = one + other & _LOW
            by = np.uint64(rotation)
            other = (other << by | other >> _WIDTH - by) & _LOW ^ one
        one = one + keys[(step + 1) % 3] & _LOW
        other = other + keys[(step + 2) % 3] + np.uint64(step + 1) & _LOW
    return one, other


def _philox(state: Array, dims: tuple[int, ...], wide: bool) -> tuple[Array, Array]:
    """Bits and the counter after them, of 128 bits; each step draws four words."""
    count = -(-prod(dims) * (2 if wide else 1) // 4)
    low = state[1]
    # Of a state of two words the key is the upper half of the counter, too.
    high = state[2] if state.size > 2 else state[0]
    lows = low + np.arange(count, dtype=np.uint64)
    highs = high + (lows < low)
    words = np.stack(_philox_block([*_halves(lows), *_halves(highs)], _halves(state[0])), 1)
    words = words.reshape(-1)
    if wide:
        words = _joined(words[0::2], words[1::2])
    next_low = low + np.uint64(count)
    after = np.array([next_low, high + np.uint64(next_low < low)])
    return words[: prod(dims)].reshape(dims), after[: state.size - 1]


def _philox_block(x: list[Array], key: tuple[Array, Array]) -> list[Array]:
    """Philox-4x32 with 10 rounds."""
    one, other = key
    for _ in range(10):
        low, high = (x[at] * np.uint64(factor) for at, factor in ((0, 0xD2511F53), (2, 0xCD9E8D57)))
        x = [high >> _WIDTH ^ x[1] ^ one, high & _LOW, low >> _WIDTH ^ x[3] ^ other, low & _LOW]
        one = one + np.uint64(0x9E3779B9) & _LOW
        other = other + np.uint64(0xBB67AE85) & _LOW
    return x


BUILDERS: dict[str, Callable[[Site], Kernel]] = {"rng-bit-generator": _rng_bit_generator}
