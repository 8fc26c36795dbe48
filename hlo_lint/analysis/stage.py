"""The options that XLA's verifier would run with at a place in the pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from hlo_lint.dumps.pass_lists import (
    PassList,
    jax_release,
    known_pass,
    pass_lists,
    passes_and_pipelines,
)
from hlo_lint.dumps.phases import HOST_OFFLOADER, LAYOUT_ASSIGNMENT, LAYOUT_NORMALIZATION
from hlo_lint.text.errors import UsageError, nearest
from hlo_lint.text.phrases import short_repr
from hlo_lint.text.source import whole_number


class Stage(NamedTuple):
    """A place in the pipeline: the options of `HloVerifierOpts` there (`hlo_verifier.h`).

    Derived from dump names and the pass lists of the releases; for a single file, from its text.
    Unknown fields take their most permissive value, so that rules stay silent.
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
    `CpuGpuVerifierMetadata` demands, at every stage."""
    ordered_broadcasts: bool = False
    """True if broadcasts keep the order of dimensions: `verify_broadcast_dimensions_order`."""
    unique_names: bool = False
    """True if names are unique in the module, as XLA prints them."""
    deadlocks: bool | None = None
    """True if transfers must not wait for each other: `verify_no_collective_deadlocks`; None if
    that holds of scheduled modules alone."""
    thread_names: bool = False
    """True if computations run on the threads of their callers:
    `verify_call_nested_computation_thread_name`."""
    names_unchanged: bool = False
    """True if instructions keep their names from scheduling:
    `verify_instruction_name_unchanged`."""
    reshape_is_bitcast: bool = False
    """True if no reshape outside of fusions may move bytes, before any pass:
    `verify_reshape_is_bitcast`."""
    unbounded_dynamic_opcodes: frozenset[str] = frozenset()
    """The opcodes that may have unbounded dimensions: `supported_unbounded_dynamic_op`."""
    sharding_devices: bool = True
    """True if shardings name devices of the module: `verify_sharding_device_numbers`."""
    replica_groups: bool = True
    """True if replica groups are checked: `check_replica_groups`."""
    bitcast_sizes: bool = True
    """True if bitcasts keep the size in bytes: not `allow_bitcast_to_have_different_size`."""
    replica_count: int | None = None
    """The number of replicas, if it overrides the header."""
    num_partitions: int | None = None
    """The number of partitions, if it overrides the header."""
    next_pass: str = ""
    """The pass that runs next, if it is certain."""
    assumed: bool = False
    """True if the stage is a guess from names and text: no backend is known, nor is a dump after
    layout-assignment there."""

    def __repr__(self) -> str:
        return short_repr(self)

    def __str__(self) -> str:
        """The fields that differ from the most permissive stage, as `parse_stage` reads them."""
        return " ".join(
            f"{name}={_spelled(value)}"
            for name in _FIELDS
            if (value := getattr(self, name)) != getattr(ANY_STAGE, name)
        )

    @property
    def exact_layouts(self) -> bool:
        """True if `ShapesSame` compares tiles, element sizes, memory spaces and dynamic flags."""
        return self.layouts and not self.assumed

    @property
    def options(self) -> Stage:
        """The stage without the fields that XLA's verifier does not have."""
        return _options(self)


@lru_cache(maxsize=1 << 8)
def _options(stage: Stage) -> Stage:
    deadlocks = stage.deadlocks
    if stage.scheduled and deadlocks is None and stage.backend == "gpu":
        # XLA:GPU of jax 0.10 and 0.11 sets the option.
        deadlocks = jax_release(stage.release) >= (0, 10) or None
    return stage._replace(deadlocks=deadlocks, **_NOT_VERIFIED)


def _spelled(value: object) -> str:
    if isinstance(value, frozenset):
        return "+".join(sorted(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


ANY_STAGE = Stage()
"""The most permissive stage: all fields are unknown."""
_FIELDS = tuple(name for name in Stage._fields if name != "assumed")
_NOT_VERIFIED: Mapping[str, Any] = {
    name: Stage._field_defaults[name]
    for name in ("backend", "release", "normalized", "scheduled", "final", "next_pass")
}
"""The fields that XLA's verifier does not have, with their defaults."""

BACKENDS = ("gpu", "cpu", "tpu")

_WORDS: Mapping[str, Mapping[str, Any]] = {
    "pre-layout": {"layouts": False},
    "post-layout": {"layouts": True},
    "normalized": {"layouts": True, "normalized": True},
    "scheduled": {"layouts": True, "scheduled": True},
    "final": {"layouts": True, "final": True},
}

_VERIFIER_OPTIONS = {
    "layout_sensitive": "layouts",
    "allow_mixed_precision": "mixed_precision",
    "verify_broadcast_dimensions_order": "ordered_broadcasts",
    "verify_no_collective_deadlocks": "deadlocks",
    "verify_reshape_is_bitcast": "reshape_is_bitcast",
    "verify_call_nested_computation_thread_name": "thread_names",
    "verify_instruction_name_unchanged": "names_unchanged",
    "supported_unbounded_dynamic_op": "unbounded_dynamic_opcodes",
    "verify_sharding_device_numbers": "sharding_devices",
    "check_replica_groups": "replica_groups",
    "before": "next_pass",
}
"""Fields by their names in `HloVerifierOpts`, where these differ, and by the option `--before`."""

_NEGATED_OPTIONS = {
    "verify_no_host_memory_space": "host_memory",
    "allow_bitcast_to_have_different_size": "bitcast_sizes",
}
"""Options of `HloVerifierOpts` that are true where the field is false."""


def stage_at(backend: str | None, **fields: Any) -> Stage:
    """The stage of an XLA pipeline with some known fields.

    XLA:GPU and XLA:CPU verify with `allow_mixed_precision` off, XLA:TPU allows it between passes.
    """
    stage = Stage(backend=backend, **fields)
    is_strict = backend not in (None, "tpu")
    return stage._replace(
        mixed_precision=not is_strict,
        scan=not (is_strict and stage.layouts),
        packed=backend != "tpu",
        ordered_broadcasts=backend == "gpu" and stage.normalized is True,
    )


def stage_pattern() -> str:
    """A regular expression for the texts that `parse_stage` reads, with any names and values."""
    return r"^[\s,]*(([\w.-]+|[a-z_]+=[^\s,]*)([\s,]+|$))*$"


@lru_cache(maxsize=1 << 8)
def parse_stage(text: str) -> Stage:
    """The stage that words describe: a backend, places in the pipeline, fields with their values.

    A pass or a pipeline of a release is a place, too: after it has run.

    >>> stage = parse_stage("gpu post-layout allow_mixed_precision=true replica_count=4")
    >>> stage.backend, stage.layouts, stage.mixed_precision, stage.replica_count
    ('gpu', True, True, 4)
    >>> stage = parse_stage("cublas-gemm-rewriter")
    >>> stage.backend, stage.layouts, stage.normalized
    ('gpu', True, False)

    Raises:
        UsageError: for an unknown word, or a value that does not fit.
    """
    backend: str | None = None
    fields: dict[str, Any] = {}
    options: dict[str, Any] = {}
    places: list[tuple[str, int]] = []
    for word in text.replace(",", " ").split():
        name, has_value, value = word.partition("=")
        if has_value:
            field, is_negated = _field_of(name)
            given = _value_of(name, field, value)
            options[field] = not given if is_negated else given
            if field == "next_pass":
                places.append((value, -1))
        elif word in BACKENDS:
            backend = word
        elif word in _WORDS:
            fields.update(_WORDS[word])
        elif word in passes_and_pipelines():
            places.append((word, 0))
        else:
            words = (*BACKENDS, *_WORDS)
            others = f"{', '.join(words)}, a pass or a pipeline of a release, FIELD=VALUE"
            near = nearest(word, passes_and_pipelines().union(words), others)
            raise UsageError(f"unknown stage {word!r}: {near}")
    for name, offset in places:
        runs = _runs(name, backend)
        if backend is None and len(backends := {release.backend for release, _ in runs}) == 1:
            (backend,) = backends
        fields = {**_facts(runs, offset), **fields}
    return stage_at(backend, **fields)._replace(**options)


def _runs(name: str, backend: str | None) -> list[tuple[PassList, list[int]]]:
    runs = [
        (release, [place for place, run in enumerate(release.passes) if name in run])
        for release in pass_lists(backend)
    ]
    return [(release, places) for release, places in runs if places]


def _facts(runs: Sequence[tuple[PassList, list[int]]], offset: int) -> dict[str, Any]:
    """The fields that hold at an offset from all given places, in all releases."""

    def is_behind(name: str) -> bool | None:
        answers = set[bool | None]()
        for release, places in runs:
            last = release.layouts_from if name == LAYOUT_ASSIGNMENT else release.last_place(name)
            if last is None:
                return None
            is_over, is_to_come = places[0] + offset >= last, places[-1] + offset < last
            answers.add(True if is_over else False if is_to_come else None)
        return answers.pop() if len(answers) == 1 else None

    return {
        "layouts": is_behind(LAYOUT_ASSIGNMENT) is True,
        "normalized": is_behind(LAYOUT_NORMALIZATION),
        "host_memory": is_behind(HOST_OFFLOADER) is not False,
    }


def _field_of(name: str) -> tuple[str, bool]:
    if name in _NEGATED_OPTIONS:
        return _NEGATED_OPTIONS[name], True
    field = _VERIFIER_OPTIONS.get(name, name)
    if field not in _FIELDS:
        names = (*_FIELDS, *_VERIFIER_OPTIONS, *_NEGATED_OPTIONS)
        raise UsageError(f"unknown field of a stage: {name}: {nearest(name, names)}")
    return field, False


def _value_of(name: str, field: str, text: str) -> Any:
    hint = get_type_hints(Stage)[field]
    types = hint, *get_args(hint)
    if bool in types:
        if text not in ("true", "false"):
            raise UsageError(f"{name} takes true or false, not {text!r}")
        return text == "true"
    if int in types:
        number = whole_number(text)
        if number is None or number < 0:
            raise UsageError(f"{name} takes a whole number, not {text!r}")
        return number
    if field == "next_pass":
        return known_pass(text)
    return frozenset(text.split("+")) if get_origin(hint) is frozenset else text
