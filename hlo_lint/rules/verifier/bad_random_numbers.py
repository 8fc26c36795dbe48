"""Random number generators."""

from __future__ import annotations

from hlo_lint.rules.base import Good
from hlo_lint.rules.verifier import VerifierRule


class BadRandomNumbers(VerifierRule):
    """A random number generator with invalid operands, state or type.

    ## Why
    The kernels of generators support a few types and a fixed form of state (`HandleRng` and others
    in `xla/service/hlo_verifier.cc`).
    """

    table = """
        rng-shape: ShapeVerifier::HandleRng (rng)
          rng: scalar operands of the result's type
            a = f32[] constant(0)
            b = f32[2] constant({0, 1})
            ROOT r = f32[8] rng(a, b), distribution=rng_uniform  // error
        rng-bit-generator-shape: ShapeVerifier::HandleRngBitGenerator (rng-bit-generator)
          rng-bit-generator: state and bits, or only bits
            ROOT r = (u64[3], u32[8]) rng-bit-generator(u64[2] p), algorithm=rng_philox  // error
        rng-state-shape: ShapeVerifier::HandleRngGetAndUpdateState (rng-get-and-update-state)
          rng-get-and-update-state: u64[2]
            ROOT r = u64[3] rng-get-and-update-state(), delta=1  // error
    """
    examples = (
        Good.entry("ROOT r = (u64[2], u32[8]) rng-bit-generator(u64[2] p), algorithm=rng_philox"),
    )
