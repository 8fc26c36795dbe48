"""Linear algebra, Fourier transforms and batch normalization, computed as doubles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hlo_lint.engine.values.evaluator.arrays import Array, Unsupported, Value, accumulator
from hlo_lint.engine.values.evaluator.site import Kernel, Site


def _cholesky(site: Site) -> Kernel:
    """The triangle; XLA leaves the other one as it likes, here it is zeros."""
    name, numbers, lower = site.array.dtype, site.numbers, site.attribute("lower", False)

    def factor(x: Array) -> Array:
        a = x.astype(accumulator(name))
        triangle = np.tril(a) if lower else np.triu(a).swapaxes(-1, -2).conj()
        strict = np.tril(triangle, -1)
        try:
            result = np.linalg.cholesky(triangle + strict.swapaxes(-1, -2).conj())
        except np.linalg.LinAlgError:
            raise Unsupported("cholesky of a matrix that is not positive definite") from None
        return numbers.cast(result if lower else result.swapaxes(-1, -2).conj(), name)

    return factor


def _triangular_solve(site: Site) -> Kernel:
    name, numbers = site.array.dtype, site.numbers
    left, lower = site.attribute("left_side", False), site.attribute("lower", False)
    unit = site.attribute("unit_diagonal", False)
    transpose = site.attribute("transpose_a", "NO_TRANSPOSE")

    def solve(a: Array, b: Array) -> Array:
        kind = accumulator(name)
        matrix = np.tril(a.astype(kind)) if lower else np.triu(a.astype(kind))
        if unit:
            diagonal = np.arange(matrix.shape[-1])
            matrix[..., diagonal, diagonal] = 1
        if transpose != "NO_TRANSPOSE":
            matrix = matrix.swapaxes(-1, -2)
        if transpose == "ADJOINT":
            matrix = matrix.conj()
        right = b.astype(kind)
        try:
            if left:
                return numbers.cast(np.linalg.solve(matrix, right), name)
            turned = np.linalg.solve(matrix.swapaxes(-1, -2), right.swapaxes(-1, -2))
        except np.linalg.LinAlgError:
            raise Unsupported("triangular-solve of a singular matrix") from None
        return numbers.cast(turned.swapaxes(-1, -2), name)

    return solve


def _fft(site: Site) -> Kernel:
    name, numbers = site.array.dtype, site.numbers
    kind = site.attribute("fft_type", "FFT")
    lengths = site.integers("fft_length")
    axes = tuple(range(-len(lengths), 0))
    transforms: dict[str, Callable[..., Any]] = {
        "FFT": np.fft.fftn,
        "IFFT": np.fft.ifftn,
        "RFFT": np.fft.rfftn,
        "IRFFT": np.fft.irfftn,
    }
    transform = transforms[kind]
    source = np.dtype(np.float64 if kind == "RFFT" else np.complex128)
    return lambda x: numbers.cast(transform(x.astype(source), lengths, axes), name)


def _along(vector: Array, rank: int, feature: int) -> Array:
    return vector.astype(np.float64).reshape([-1 if n == feature else 1 for n in range(rank)])


def _batch_norm(site: Site) -> Kernel:
    epsilon, feature = float(site.attribute("epsilon", 0.0)), site.attribute("feature_index", 0)
    numbers, shapes = site.numbers, site.results

    def finish(*values: Array) -> Value:
        return site.returned(
            tuple(numbers.cast(v, shape.dtype) for v, shape in zip(values, shapes, strict=True))
        )

    def inference(x: Array, scale: Array, offset: Array, mean: Array, variance: Array) -> Value:
        s, o, m, v = (_along(array, x.ndim, feature) for array in (scale, offset, mean, variance))
        return finish((x.astype(np.float64) - m) / np.sqrt(v + epsilon) * s + o)

    def training(x: Array, scale: Array, offset: Array) -> Value:
        axes = tuple(n for n in range(x.ndim) if n != feature)
        wide = x.astype(np.float64)
        mean, variance = wide.mean(axes), wide.var(axes)
        s, o, m, v = (_along(array, x.ndim, feature) for array in (scale, offset, mean, variance))
        return finish((wide - m) / np.sqrt(v + epsilon) * s + o, mean, variance)

    def gradient(x: Array, scale: Array, mean: Array, variance: Array, grad: Array) -> Value:
        axes = tuple(n for n in range(x.ndim) if n != feature)
        s, m, v = (_along(array, x.ndim, feature) for array in (scale, mean, variance))
        wide, centered = grad.astype(np.float64), x.astype(np.float64) - m
        deviation = np.sqrt(v + epsilon)
        offset_grad = wide.sum(axes)
        scale_grad = (wide * centered / deviation).sum(axes)
        count = x.size // x.shape[feature]
        common = _along(offset_grad, x.ndim, feature) / count
        slope = _along((wide * centered).sum(axes), x.ndim, feature) / count
        return finish(
            s / deviation * (wide - common - centered * slope / (v + epsilon)),
            scale_grad,
            offset_grad,
        )

    kernels: dict[str, Kernel] = {
        "batch-norm-inference": inference,
        "batch-norm-training": training,
        "batch-norm-grad": gradient,
    }
    return kernels[site.opcode]


BUILDERS: dict[str, Callable[[Site], Kernel]] = {
    "cholesky": _cholesky,
    "triangular-solve": _triangular_solve,
    "fft": _fft,
    "batch-norm-inference": _batch_norm,
    "batch-norm-training": _batch_norm,
    "batch-norm-grad": _batch_norm,
}
