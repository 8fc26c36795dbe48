"""The two generators of `rng-bit-generator` that are defined bit by bit: ThreeFry and Philox.

Both follow Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", as XLA expands them
(`xla/hlo/builder/lib/prng.cc`: ThreeFry2x32-20 and Philox4x32-10).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hlo_lint.engine.values.evaluator.arrays import Array, Unsupported
from hlo_lint.engine.values.evaluator.site import Kernel, Site

_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
_LOW = np.uint64(0xFFFFFFFF)


def _rotated(x: Array, distance: int) -> Array:
    return (x << np.uint32(distance)) | (x >> np.uint32(32 - distance))


def threefry(key: tuple[Array, Array], counter: tuple[Array, Array]) -> tuple[Array, Array]:
    """ThreeFry2x32 of twenty rounds."""
    keys = (*key, key[0] ^ key[1] ^ np.uint32(0x1BD11BDA))
    x, y = counter[0] + keys[0], counter[1] + keys[1]
    for block in range(5):
        for distance in _ROTATIONS[4 * (block % 2) : 4 * (block % 2) + 4]:
            x = x + y
            y = _rotated(y, distance) ^ x
        x = x + keys[(block + 1) % 3]
        y = y + keys[(block + 2) % 3] + np.uint32(block + 1)
    return x, y


def philox(key: tuple[Array, Array], counter: tuple[Array, ...]) -> tuple[Array, ...]:
    """Philox4x32 of ten rounds."""
    a, b, c, d = counter
    low, high = key
    for _ in range(10):
        first = a.astype(np.uint64) * np.uint64(0xD2511F53)
        second = c.astype(np.uint64) * np.uint64(0xCD9E8D57)
        a, b, c, d = (
            _upper(second) ^ b ^ low,
            _lower(second),
            _upper(first) ^ d ^ high,
            _lower(first),
        )
        low, high = low + np.uint32(0x9E3779B9), high + np.uint32(0xBB67AE85)
    return a, b, c, d


def _lower(x: Array) -> Array:
    return (x & _LOW).astype(np.uint32)


def _upper(x: Array) -> Array:
    return (x >> np.uint64(32)).astype(np.uint32)


def _words(state: Array) -> list[Array]:
    """The state as 32-bit words, low half first."""
    flat = state.reshape(-1)
    if flat.dtype == np.uint32:
        flat = flat.view(np.uint64)
    return [half for word in flat for half in (_lower(word), _upper(word))]


def _threefry_bits(state: Array, count: int, bits: int) -> tuple[Array, Array]:
    """Random words of 32 or 64 bits, and the next state."""
    raise Unsupported("the bits of rng_three_fry")


def _rng_bit_generator(site: Site) -> Kernel:
    raise Unsupported("no value of rng-bit-generator")


BUILDERS: dict[str, Callable[[Site], Kernel]] = {"rng-bit-generator": _rng_bit_generator}
