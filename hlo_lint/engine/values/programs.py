"""The verdict on two programs that run on the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import inf, isfinite, prod
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeAlias

from hlo_lint.engine.values.bounds import (
    SMOOTH_SHARE,
    WIDE_BOUND,
    fallback_bound,
    is_by_sign_of_nan,
    is_exact_on_sparse,
    is_masked_by_product,
    is_smooth,
    narrowed,
    rounded_share,
    wide_bound,
)
from hlo_lint.engine.values.comparable import excuse, incomparable
from hlo_lint.engine.values.compare import (
    EXACT,
    Bound,
    LargestDifference,
    array_difference,
    is_rounded,
    keep_bound,
    largest_error,
    result_difference,
    where_finite,
)
from hlo_lint.engine.values.hostile import (
    EXACT_OWN_RUNS,
    HOSTILE,
    LARGE,
    LARGE_RUNS,
    MIN_OWN_RUNS,
    MIN_RUNS,
    OWN,
    OWN_RUNS,
    SPECIAL,
    hostile_inputs,
    hostile_seeds,
    hostile_value,
    run_count,
)
from hlo_lint.engine.values.inputs import EDGES, FINE, FINE_POSITIVE, SMALL_EDGES, SPARSE, value
from hlo_lint.engine.values.lowering.emit import NATIVE, WIDE, emit_graph
from hlo_lint.engine.values.own_types import (
    MAX_NODES,
    hidden_difference,
    may_become_finite,
    may_hide,
    ranged_changes,
    rounds_nothing,
)
from hlo_lint.hlo.dtypes import BITS
from hlo_lint.hlo.parser.literals import AnyArray, numpy_dtype
from hlo_lint.xla.cpu import JUDGE, MAX_EXECUTABLES, NotRun, XlaCpu
from hlo_lint.xla.limits import SECONDS, NoTimeLeft

if TYPE_CHECKING:
    from hlo_lint.engine.values.lowering.program import Input, Program

ROUNDINGS: Final = 2
"""A difference up to this multiple of the native run's rounding error is not reported."""
NARROWED_ROUNDINGS: Final = 1.5
"""That multiple, over several seeds, where a pass computes in a narrower type."""
CONSTANT_ROUNDINGS: Final = 8
"""That multiple where a pass computed constants."""
MIN_OPTIMIZED_BYTES: Final = 1 << 28
"""A program with more input bytes takes longer to run than to compile."""
OPTIMIZED: Final = {"xla_backend_optimization_level": 1}
"""Flags for such a program: LLVM optimizes its loops, and values stay the same."""
UNCONFIRMED: Final = "XLA:CPU gives different results with its passes off"
"""The reason where the second judge sees no difference."""
MAX_WIDE_BYTES: Final = 1 << 27
"""Programs with more input bytes run in their own types first: f64 takes a multiple."""
MAX_INPUT_BYTES: Final = 1 << 30
"""The most input bytes of a program that is run."""
MAX_KEPT_BYTES: Final = 1 << 30
"""The bytes of results that are held for later comparisons."""
ROUNDED: Final = (FINE, FINE_POSITIVE, 1, 5, 8)
"""The seeds on which rounding is measured: the errors of one sum may cancel."""
MAX_SMALL: Final = 64
"""Programs with at most this many input elements get `MORE_RUNS` further runs."""
MORE_RUNS: Final = 6
HANG_SECONDS: Final = 5.0
SLOWER: Final = 20
"""A program that runs this much longer on hostile inputs than any did before does not end on them,
after `HANG_SECONDS` at least."""
MAX_NOT_RUN: Final = 2
"""Hostile inputs on which a program does not run, after which no others are tried."""

Inputs: TypeAlias = "tuple[Input, ...]"
GivenInputs: TypeAlias = "Mapping[int, AnyArray]"
"""Arrays by the number of the leaf."""


class StepOutcome(Enum):
    """The verdict on a step."""

    SAME_GRAPH = "equal by graph"
    SAME_BITS = "equal bit for bit"
    WITHIN_BOUND = "equal within the bound"
    BETWEEN = "between two that are equal"
    CHANGED = "changed"
    NOT_COMPARABLE = "not comparable"
    NOT_RUN = "not run"
    NOT_LOWERED = "not lowered"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The verdict on two programs."""

    outcome: StepOutcome
    reason: str = ""
    """The reason why they were not compared."""
    difference: LargestDifference | None = None
    seed: int = 0
    """The seed that shows the difference."""
    bound: Bound = EXACT
    """The bound that the results were compared with."""
    inputs: Inputs = ()
    """The inputs that show the difference, from which `seed` draws."""
    is_own: bool = False
    """True if the results differ in the programs' own types alone."""

    @property
    def is_equal(self) -> bool:
        """True if both compute the same values."""
        return self.outcome.value.startswith("equal")


@dataclass
class Runs:
    """Runs programs, once for each combination of inputs, seed and types."""

    xla: XlaCpu
    given: GivenInputs = field(default_factory=dict)
    """The inputs of a user, for seed 0."""
    wide_first: bool = False
    """True if programs that f64 finds equal need not run in their own types."""
    _kept: dict[Hashable, list[AnyArray] | NotRun] = field(default_factory=dict)
    """Inputs and results, the most recently used at the end."""
    _failures: dict[tuple[int, bool, bool, bool], NotRun] = field(default_factory=dict)
    """The reason why a graph does not run in its own types, in f64, or as the judge."""
    _texts: dict[tuple[int, bool], str] = field(default_factory=dict)
    """The texts of recent graphs, the most recently used at the end."""
    _longest: float = 0.0
    """Seconds of the longest run to its end, with its compilation."""

    def inputs(self, inputs: Inputs, seed: int) -> list[AnyArray]:
        """Values for inputs.

        Raises:
            NotRun: they are too large.
        """
        size = sum(map(_bytes, inputs))
        if size > MAX_INPUT_BYTES:
            raise NotRun(f"its inputs are {size >> 20} MB, more than {MAX_INPUT_BYTES >> 20}")
        return self._once((inputs, seed), lambda: [self._input(input_, seed) for input_ in inputs])

    def given_for(self, input_: Input, seed: int) -> AnyArray | None:
        """The array of a user for an input, which keeps its shape; None for made-up values."""
        given = self.given.get(input_.leaf) if seed == 0 else None
        return given if given is not None and given.shape == input_.shape.dims else None

    def _input(self, input_: Input, seed: int) -> AnyArray:
        self.xla.limits.deadline.check()
        if input_.given:
            from numpy import array

            dims, dtype = input_.shape.dims, numpy_dtype(input_.shape.dtype)
            return array(input_.given, dtype).reshape(dims)
        if input_.wanted is not None:
            return hostile_value(input_, seed)
        if (given := self.given_for(input_, seed)) is not None:
            return given.astype(numpy_dtype(input_.shape.dtype))
        of_input, edges = (seed, input_.leaf, input_.device), EDGES <= seed < HOSTILE
        return value(input_.shape, of_input, limit=input_.limit, edges=edges)

    def results(
        self,
        program: Program,
        inputs: Inputs,
        seed: int,
        types: Mapping[str, str] = NATIVE,
        *,
        is_judge: bool = False,
    ) -> list[AnyArray]:
        """The results of a program, of the judge without XLA:CPU's rewrites.

        Raises:
            NotRun: XLA:CPU did not run it.
        """

        def run() -> list[AnyArray]:
            if program.endless:
                raise NotRun(program.endless[0][1])
            # A refusal, or too long a run, on other inputs too; ends of ranges may end no loop.
            key = program.graph.number, bool(types), seed >= EDGES, is_judge
            if failure := self._failures.get(key):
                raise failure
            arguments = in_types(self.inputs(inputs, seed), program, types)
            text = self._text(program, types)
            size = sum(array.nbytes for array in arguments)
            flags = JUDGE if is_judge else OPTIMIZED if size > MIN_OPTIMIZED_BYTES else {}
            begun = monotonic()
            try:
                limit = self._hang_limit if seed >= HOSTILE else inf
                results = self.xla.run(text, arguments, flags=flags, seconds=limit)
            except NotRun as error:
                if seed < HOSTILE or SECONDS not in f"{error}":  # other numbers may end its loops
                    self._failures[key] = error
                raise
            self._longest = max(self._longest, monotonic() - begun)
            return results

        return self._once((inputs, seed, program.graph.number, bool(types), is_judge), run)

    @property
    def _hang_limit(self) -> float:
        """The seconds after which a run on hostile inputs counts as endless."""
        return max(HANG_SECONDS, SLOWER * self._longest)

    def _text(self, program: Program, types: Mapping[str, str]) -> str:
        key = program.graph.number, bool(types)
        text = self._texts.pop(key, "") or emit_graph(program.graph, types)
        self._texts = dict([*self._texts.items(), (key, text)][-MAX_EXECUTABLES:])
        return text

    def _once(self, key: Hashable, make: Callable[[], list[AnyArray]]) -> list[AnyArray]:
        """The cached arrays of a key, or the cached reason for their failure."""
        result = self._kept.pop(key, None)
        if result is None:
            try:
                self.xla.limits.deadline.check()
                result = make()
            except (NotRun, NoTimeLeft) as error:
                result = NotRun(f"{error}")
        self._kept[key] = result
        excess = sum(map(_size, self._kept.values())) - MAX_KEPT_BYTES
        for candidate in list(self._kept)[:-1]:
            if excess > 0 and (size := _size(self._kept[candidate])):
                excess -= size
                del self._kept[candidate]
        if isinstance(result, NotRun):
            raise result
        return result

    def failure(self, program: Program, inputs: Inputs, seed: int) -> NotRun | None:
        """The reason why a program runs neither in its own types nor in f64; None if it runs."""
        reason = None
        for types in self._order(inputs):
            try:
                self.results(program, inputs, seed, types)
                return None
            except NotRun as error:
                reason = error
        return reason

    def _order(self, inputs: Inputs) -> tuple[Mapping[str, str], ...]:
        """The types in which a program runs, the deciding types first."""
        is_large = sum(map(_bytes, inputs)) > MAX_WIDE_BYTES
        return (WIDE, NATIVE) if self.wide_first and not is_large else (NATIVE, WIDE)

    def compare(
        self,
        before: Program,
        after: Program,
        inputs: Inputs,
        seeds: Sequence[int],
        rounds_freely: bool = False,
    ) -> Comparison:
        """The verdict on two programs.

        With `rounds_freely` a pass between them may drop a conversion to fewer bits and back.
        """
        if before.graph is after.graph:
            return Comparison(StepOutcome.SAME_GRAPH)
        reason = incomparable(before, after)
        if reason:
            return Comparison(StepOutcome.NOT_COMPARABLE, reason)
        verdicts = []
        for seed in _needed(seeds, inputs, before, after):
            verdict = self._compared(before, after, inputs, seed)
            if verdict.outcome is StepOutcome.CHANGED:
                return _unless_excused(verdict, before, after)
            if verdict.outcome is StepOutcome.NOT_RUN:
                return verdict
            verdicts.append(verdict)
        share = rounded_share(before, after, rounds_freely)
        if share and (rounded := self._rounded(before, after, inputs, share)):
            return rounded
        is_sparse = all(map(is_exact_on_sparse, (before, after))) and (
            any(verdict.outcome is StepOutcome.NOT_COMPARABLE for verdict in verdicts)
            or self._is_overflow(after, inputs, seeds[0])
            or any(node.opcode in HIDING for node in after.nodes)
        )
        for verdict in self._further(before, after, inputs, is_sparse, rounds_freely):
            if verdict.outcome is StepOutcome.CHANGED:
                return _unless_excused(verdict, before, after)
        return max(verdicts, key=lambda verdict: verdict.outcome is StepOutcome.WITHIN_BOUND)

    def _further(
        self, before: Program, after: Program, inputs: Inputs, is_sparse: bool, rounds_freely: bool
    ) -> Iterator[Comparison]:
        """The verdicts on inputs that are out to break two programs which are equal so far.

        With `is_sparse` few elements are not 0 in the first of them.
        """
        if is_sparse:
            yield self._compared(before, after, inputs, SPARSE)
        hostile, count = hostile_inputs(before, after, inputs), run_count(before, after, inputs)
        not_run = 0
        for seed in hostile_seeds(before, after, hostile, count):
            verdict = self._compared(before, after, hostile, seed)
            yield verdict
            if verdict.outcome is StepOutcome.NOT_RUN:
                yield from self._hang(before, hostile, verdict)
                not_run += 1
            if not_run == MAX_NOT_RUN:
                break
        opcodes = {node.opcode for node in before.nodes}
        opcodes |= {instruction.opcode for instruction in before.origins.values()}
        has_edges = EDGELESS.isdisjoint(opcodes)
        # A step may add products with 0 to a sum, which are NaNs for infinities.
        has_sums = not opcodes.isdisjoint(SUMS_OF_PRODUCTS)
        if has_edges and not (has_sums and count == MIN_RUNS):
            yield self._compared_at_edges(before, after, inputs, EDGES)
            for seed in () if has_sums else range(SPECIAL, SPECIAL + count // 8):
                verdict = self._compared_at_edges(before, after, hostile, seed)
                if verdict.outcome is StepOutcome.CHANGED and _has_finite(verdict.difference):
                    yield verdict
        gone, new = ranged_changes(before, after)
        # Where the step rewrites exponentials or quotients, infinities may come and go.
        is_steady = has_edges and not (gone or new)
        large_runs = 1 if count == MIN_RUNS else LARGE_RUNS
        for seed in range(LARGE, LARGE + large_runs) if is_steady else ():
            yield self._compared(before, after, hostile, seed)
        own_runs = EXACT_OWN_RUNS if all(map(rounds_nothing, (before, after))) else OWN_RUNS
        own_runs = MIN_OWN_RUNS if count == MIN_RUNS else own_runs
        for seed in range(OWN, OWN + own_runs) if may_hide(before, after, gone, new) else ():
            hidden = self._hidden(before, after, hostile, seed, rounds_freely)
            if hidden is not None:
                yield hidden

    def _hang(self, before: Program, inputs: Inputs, verdict: Comparison) -> Iterator[Comparison]:
        """A change where the program before the step ends on inputs, and the other does not."""
        limit = self._hang_limit
        if SECONDS not in verdict.reason or limit > self.xla.limits.seconds:
            return
        try:
            self.results(before, inputs, verdict.seed, self._order(inputs)[0])
        except NotRun:
            return
        reason = f"it ended before on inputs on which it now runs for over {limit:.0f} seconds"
        yield Comparison(StepOutcome.CHANGED, reason, seed=verdict.seed, inputs=inputs)

    def _compared_at_edges(
        self, before: Program, after: Program, inputs: Inputs, seed: int
    ) -> Comparison:
        """The verdict on inputs with ends of ranges.

        A finite difference must also appear without the largest numbers: by the order of a sum, a
        2 may be lost beside a large number or survive.
        """
        verdict = self._compared(before, after, inputs, seed)
        if seed == EDGES and verdict.difference and isfinite(verdict.difference.error):
            verdict = self._compared(before, after, inputs, SMALL_EDGES)
        is_other = verdict.difference is not None or verdict.reason == UNCONFIRMED
        for decides, reason in UNDECIDED if is_other else ():
            if decides(before, after):
                return Comparison(StepOutcome.NOT_COMPARABLE, reason, seed=seed)
        was_infinite = verdict.difference and not isfinite(abs(verdict.difference.before))
        if was_infinite and may_become_finite(before, after):
            reason = "a rewrite of exponentials may make infinite numbers finite"
            return Comparison(StepOutcome.NOT_COMPARABLE, reason, seed=seed)
        return verdict

    def _hidden(
        self, before: Program, after: Program, inputs: Inputs, seed: int, rounds_freely: bool
    ) -> Comparison | None:
        """A change in the programs' own types that f64 hides."""
        try:
            native, wide = (
                [self.results(side, inputs, seed, types) for side in (before, after)]
                for types in (NATIVE, WIDE)
            )
        except NotRun:
            return None
        difference = hidden_difference(before, after, native, wide, rounds_freely)
        if difference is None:
            return None
        bound = difference.bound
        return Comparison(StepOutcome.CHANGED, "", difference, seed, bound, inputs, is_own=True)

    def _rounded(
        self, before: Program, after: Program, inputs: Inputs, share: float
    ) -> Comparison | None:
        """A change where results have the rounding of a narrow type, which f64 hides."""
        ours, theirs, change = 0.0, 0.0, None
        bound = Bound(relative=share, of_largest=share)
        for seed in ROUNDED:
            try:
                sides = [self.results(side, inputs, seed) for side in (before, after)]
                truth = self.results(before, inputs, seed, WIDE)
            except NotRun:
                return None
            ours += largest_error(sides[0], truth)
            theirs += largest_error(sides[1], truth)
            difference = result_difference(sides[0], sides[1], bound)
            if change is None and difference is not None:
                change = Comparison(
                    StepOutcome.CHANGED, "", difference, seed, bound, inputs, is_own=True
                )
        return change if theirs > NARROWED_ROUNDINGS * ours else None

    def _is_overflow(self, program: Program, inputs: Inputs, seed: int) -> bool:
        """True if a result has no finite element, which hides all others."""
        import numpy

        try:
            results = self.results(program, inputs, seed, self._order(inputs)[0])
        except NotRun:
            return False
        return any(is_rounded(array) and not numpy.isfinite(array).any() for array in results)

    def _compared(self, before: Program, after: Program, inputs: Inputs, seed: int) -> Comparison:
        from numpy import errstate

        failures: list[NotRun] = []

        def both(types: Mapping[str, str]) -> list[list[AnyArray]]:
            try:
                return [self.results(side, inputs, seed, types) for side in (before, after)]
            except NotRun as error:
                failures.append(error)
                return []

        is_narrowed = bool(narrowed(after, True) - narrowed(before, False))
        if self._order(inputs)[0] is WIDE and not is_narrowed and (wide := both(WIDE)):
            if keep_bound(wide[0], wide[1]):
                return Comparison(StepOutcome.SAME_BITS, seed=seed)
            bound = wide_bound(before, after, (), wide[0])  # a run in other types only widens it
            if keep_bound(wide[0], wide[1], bound):
                return Comparison(StepOutcome.WITHIN_BOUND, seed=seed, bound=bound)
        native = both(NATIVE)
        if native and keep_bound(native[0], native[1]):
            return Comparison(StepOutcome.SAME_BITS, seed=seed)
        wide = both(WIDE)
        if wide:
            bound = wide_bound(before, after, native[:1], wide[0])
            theirs = where_finite(native, wide) if native else wide[1]
            divergence = result_difference(wide[0], theirs, bound)
        elif native:
            bound = fallback_bound(before, after)
            divergence = result_difference(native[0], native[1], bound)
        else:
            return Comparison(StepOutcome.NOT_RUN, str(failures[0]), seed=seed)
        if divergence is not None and not native and seed >= HOSTILE:
            # In their own types such numbers may overflow.
            return Comparison(StepOutcome.NOT_RUN, str(failures[0]), seed=seed)
        if divergence is not None and native and wide:
            # In a sort or selection with near ties, rounding before the step gives both results. A
            # new constant (`x / 3` to `x * 0.333`) changes the rounding of every iteration.
            output, has_new = divergence.output, bound is not WIDE_BOUND
            with errstate(over="ignore"):  # a number too large for the type becomes infinite
                errors = [
                    array_difference(own[output], exact[output].astype(own[output].dtype))
                    for own, exact in zip(native[: 1 + has_new], wide, strict=False)
                ]
            factor: float = CONSTANT_ROUNDINGS if has_new else ROUNDINGS
            if not has_new and is_smooth(before) and is_smooth(after):
                factor *= SMOOTH_SHARE
            if any(error and factor * error.error >= divergence.error for error in errors):
                reason = "rounding alone changes the results as much"
                return Comparison(StepOutcome.NOT_COMPARABLE, reason, seed=seed)
        if divergence is None and native and is_narrowed:
            divergence = result_difference(native[0], native[1])
            return Comparison(StepOutcome.CHANGED, "", divergence, seed, EXACT, inputs, is_own=True)
        if divergence is None:
            return Comparison(StepOutcome.WITHIN_BOUND, "", None, seed, bound, inputs)
        change = Comparison(StepOutcome.CHANGED, "", divergence, seed, bound, inputs)
        if not self._is_confirmed(before, after, change):
            return Comparison(StepOutcome.NOT_RUN, UNCONFIRMED, seed=seed)
        if wide and self._is_absorbed(before, after, change):
            reason = "a sum of large numbers loses as much"
            return Comparison(StepOutcome.NOT_COMPARABLE, reason, seed=seed)
        return change

    def _is_confirmed(self, before: Program, after: Program, change: Comparison) -> bool:
        """False if XLA:CPU without its rewrites sees no difference: the bug is then XLA:CPU's.

        A large program takes as long without fusions as everything before, and is not asked.
        """
        if max(len(side.nodes) for side in (before, after)) > MAX_NODES:
            return True
        try:
            ours, theirs = (
                self.results(side, change.inputs, change.seed, WIDE, is_judge=True)
                for side in (before, after)
            )
        except NotRun:
            return True
        return not keep_bound(ours, theirs, change.bound)

    def _is_absorbed(self, before: Program, after: Program, change: Comparison) -> bool:
        """True if results are equal without the inputs whose rounding in f64 is the difference.

        In `(a + b) - b` a small `a` is lost beside a large `b`, or survives.
        """
        import numpy as np

        difference = change.difference
        if change.seed < EDGES or difference is None or not 0 < difference.error < np.inf:
            return False
        if not any(node.opcode in ABSORBING for side in (before, after) for node in side.nodes):
            return False
        limit = difference.error / WIDE_BOUND.of_largest
        arrays = in_types(self.inputs(change.inputs, change.seed), before, WIDE)
        with np.errstate(invalid="ignore"):
            small = [
                np.where(np.isfinite(array) & (np.abs(array) > limit), 0, array)
                if is_rounded(array)
                else array
                for array in arrays
            ]
        if all(map(np.array_equal, small, arrays)):
            return False
        try:
            ours, theirs = (
                self.xla.run(self._text(side, WIDE), small, flags=JUDGE) for side in (before, after)
            )
        except NotRun:
            return False
        return keep_bound(ours, theirs, change.bound)


ABSORBING: Final = frozenset("add convolution dot reduce reduce-window scatter subtract".split())
"""Opcodes whose results lose a small operand beside a large one."""
HIDING: Final = frozenset("erf logistic reduce tanh".split())
"""Opcodes that hide a difference: their results are 1 for every large operand, or, for a sum, lose
a small addend."""
SUMS_OF_PRODUCTS: Final = frozenset({"convolution", "dot"})
EDGELESS: Final = frozenset({"bounded", "fft", "ragged-dot"})
"""Opcodes for which ends of ranges decide nothing: a size is never the largest integer, and a sum
of infinities with weights, some of them 0, is infinite or NaN depending on how it is written."""
UNDECIDED: Final = (
    (is_by_sign_of_nan, "the sign of a NaN, which no operation defines, may decide"),
    (is_masked_by_product, "0 times a NaN may be 0"),
)
"""Pairs of programs whose results are not defined on infinities and NaNs, and why."""
SIDED: Final = frozenset("clamp compare maximum minimum sort".split())
"""Opcodes whose results depend on the order or the signs of their operands."""


def _needed(seeds: Sequence[int], inputs: Inputs, before: Program, after: Program) -> Sequence[int]:
    """The given seeds, with further seeds for programs that compare, index or have few inputs.

    The third seed has negative numbers and last indices, as hostile inputs have: a large program
    runs on those alone. Inputs with few elements are drawn more often, as two draws may have the
    same bits where it counts.
    """
    is_small = sum(prod(input_.shape.dims) for input_ in inputs) <= MAX_SMALL
    is_sided = run_count(before, after, inputs) > MIN_RUNS and (
        any(prod(i.shape.dims) == 1 and i.limit is not None for i in inputs)
        or any(node.opcode in SIDED for side in (before, after) for node in side.nodes)
    )
    extra = range(2, 2 + max(is_sided, MORE_RUNS * is_small))
    return [*seeds, *(seed for seed in extra if seed not in seeds)]


def _has_finite(difference: LargestDifference | None) -> bool:
    """True if one side is finite: infinity plus or minus infinity depends on the order of a sum."""
    assert difference is not None
    return any(isfinite(abs(number)) for number in (difference.before, difference.after))


def _bytes(input_: Input) -> int:
    """The bytes of an input in its own type."""
    return prod(input_.shape.dims) * BITS.get(input_.shape.dtype, 8) // 8


def _size(result: list[AnyArray] | NotRun) -> int:
    """The bytes of arrays."""
    return 0 if isinstance(result, NotRun) else sum(array.nbytes for array in result)


def _unless_excused(verdict: Comparison, before: Program, after: Program) -> Comparison:
    """The verdict, or not comparable where undefined parts of the programs may cause the change."""
    reason = excuse(before, after)
    if not reason:
        return verdict
    return Comparison(StepOutcome.NOT_COMPARABLE, reason, seed=verdict.seed)


def in_types(
    inputs: Sequence[AnyArray], program: Program, types: Mapping[str, str]
) -> list[AnyArray]:
    """Inputs in the element types in which a program is run."""
    return [
        array.astype(numpy_dtype(types[shape.dtype])) if shape.dtype in types else array
        for array, shape in zip(inputs, program.graph.parameters, strict=True)
    ]
