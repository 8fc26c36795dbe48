"""The options that XLA's verifier would run with at a place in the pipeline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Stage:
    """A place in the pipeline: the options of `HloVerifierOpts` there (`hlo_verifier.h`).

    Derived from dump names and the pass lists of the releases; of a loose file, from its text.
    Fields that are not known take their most permissive value, so that a rule stays silent.
    """

    backend: str | None = None
    """`gpu`, `cpu` (both have `CpuGpuVerifierMetadata`), `tpu` (its own); None if unknown."""
    release: str | None = None
    """The pass list of the release, `gpu-jax0.10.0`; None if unknown."""
    layouts: bool = False
    """True if layout-assignment has run: `layout_sensitive` and `instruction_can_change_layout`."""
    normalized: bool | None = None
    """True if the last layout_normalization has run: layouts are descending, reshapes are bitcasts
    (`verify_reshape_is_bitcast`) and broadcasts keep the order of dimensions
    (`verify_broadcast_dimensions_order`). None if unknown, or if the pipeline has no such pass."""
    scheduled: bool = False
    """True if the text's order is the order of execution: XLA verifies the schedule too, with
    `verify_no_collective_deadlocks`."""
    mixed_precision: bool = True
    """True if an operation may mix floating-point types: `allow_mixed_precision`."""
    host_memory: bool = True
    """True if results may be in host memory, S(5), as from host-offloader on: not
    `verify_no_host_memory_space`."""
    scan: bool = True
    """True if a scan need not be associative, as before the layout-sensitive verifier."""
    final: bool = False
    """True if this is the compiler's final module."""
    packed: bool = True
    """True if only types of less than 8 bits may have an element size, E(n), as
    `CpuGpuVerifierMetadata` demands after sub-byte-size-setter."""
    ordered_broadcasts: bool = False
    """True if broadcasts keep the order of dimensions: `verify_broadcast_dimensions_order`."""
    unique_names: bool = False
    """True if names are unique in the module, as XLA prints them."""
    deadlocks: bool | None = None
    """True if transfers must not wait for each other: `verify_no_collective_deadlocks`; None if
    that holds of scheduled modules alone."""
    thread_names: bool = False
    """True if computations are on the threads of their callers:
    `verify_call_nested_computation_thread_name`."""
    names_unchanged: bool = False
    """True if instructions keep the names that they were scheduled with:
    `verify_instruction_name_unchanged`."""
    unbounded_dynamic_opcodes: frozenset[str] = frozenset()
    """The opcodes that may have unbounded dimensions: `supported_unbounded_dynamic_op`."""
    replica_count: int | None = None
    """The number of replicas, if the header is not to be believed."""
    num_partitions: int | None = None
    """The number of partitions, if the header is not to be believed."""
    next_pass: str = ""
    """The pass that runs next, if that is known for certain."""
    assumed: bool = False
    """True if no backend is known, so that the stage is a guess from names and text."""

    @property
    def options(self) -> Stage:
        """The stage without the fields that XLA's verifier does not have."""
        return _options(self)


@lru_cache(maxsize=1 << 8)
def _options(stage: Stage) -> Stage:
    return replace(
        stage,
        backend=None,
        release=None,
        normalized=None,
        scheduled=False,
        final=False,
        next_pass="",
    )
