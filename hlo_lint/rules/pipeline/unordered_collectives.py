"""Collectives of different device groups that are in flight at the same time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Final

from hlo_lint.analysis.async_chains import has_async, is_done, is_start, starts
from hlo_lint.analysis.device_groups import device_groups
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.opcodes import COMMUNICATES, without_sugar
from hlo_lint.rules.base import Bad, FinalModule, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import WrittenByXla
from hlo_lint.text.phrases import listed

_SCHEDULER: Final = "latency-hiding-scheduler"
_MAX_COLLECTIVES: Final = 400
"""The largest number of collectives of a computation that are compared with each other."""
_STEP = """
HloModule m, num_partitions=4, is_scheduled=true{tiles}
add {{ ROOT c = f32[] add(f32[] a, f32[] b) }}
  r = f32[8] all-reduce-start(f32[8] p), channel_id=1, use_global_device_ids=true, \
to_apply=add, replica_groups={groups}
- rd = f32[8] all-reduce-done(r)
  s = f32[8] all-reduce-start(f32[8] q), channel_id=2, use_global_device_ids=true, \
to_apply=add, replica_groups={{{{0,1}},{{2,3}}}}  // error
+ rd = f32[8] all-reduce-done(r)
  sd = f32[8] all-reduce-done(s)
  ROOT t = (f32[8], f32[8]) tuple(rd, sd)
"""
_TILED = ", entry_computation_layout={(f32[8]{0:T(128)},f32[8]{0})->(f32[8]{0},f32[8]{0})}"


class UnorderedCollectives(Rule):
    """Two collectives of different groups with common devices, in flight at the same time.

    ## Why
    A collective ends when all devices of its group have reached it. If a device works on the first
    collective while another device works on the second, each waits for the other: a deadlock that
    shows on many hosts, but not on the developer's. NCCL does not guarantee that two communicators
    over the same devices make progress concurrently. The order is certain if the schedule ends the
    first collective before it starts the second; a control dependency between the done and the
    start ensures that.

    The rule skips unscheduled modules, and groups with a single common device, as along two axes of
    a mesh. Collectives of the same groups run in order as long as they are on the same stream: they
    are reported where XLA:GPU's latency-hiding scheduler overlapped them, which does not overlap
    collectives that share two devices (`GpuScheduleCrossesOverlapLimit`). Nothing is reported on a
    TPU, whose scheduler starts permutes of different pairs while a permute is in flight. `hlo-lint
    ranks` compares the orders of several processes.
    """

    severity = Severity.WARNING
    mentions = ("-start",)
    evidence = (
        WrittenByXla(
            "causes/collectives_overlap.hlo",
            "--xla_gpu_experimental_parallel_collective_overlap_limit=4",
            "0.10.0",
        ),
    )
    reports = "openxla/xla#20025"
    examples = (
        Bad.step(_STEP.format(tiles="", groups="{{0,1,2,3}}")),
        Bad.step(_STEP.format(tiles="", groups="{{0,1},{2,3}}"), by=_SCHEDULER),
        Good.step(_STEP.format(tiles="", groups="{{0,1},{2,3}}")),
        Good.step("""
            HloModule m, num_partitions=4, is_scheduled=true
            add { ROOT c = f32[] add(f32[] a, f32[] b) }
              r = f32[8] all-reduce-start(f32[8] p), channel_id=1, use_global_device_ids=true,
                  to_apply=add, replica_groups={{0,1,2,3}}
            + rd = f32[8] all-reduce-done(r)
              s = f32[8] all-reduce-start(f32[8] q), channel_id=2, use_global_device_ids=true,
                  to_apply=add, replica_groups={{0,1},{2,3}}
            - rd = f32[8] all-reduce-done(r)
              sd = f32[8] all-reduce-done(s)
              ROOT t = (f32[8], f32[8]) tuple(rd, sd)
        """),
        Good.step(_STEP.format(tiles=_TILED, groups="{{0,1,2,3}}")),
        Good.step(_STEP.format(tiles="", groups="{{0,2},{1,3}}")),
    )

    def check(self, final: FinalModule) -> Findings:
        """Collectives that start while another collective is in flight on the same devices."""
        yield from _overlaps(final.module, are_same=False)

    def check_scheduled(self, pair: PassPair) -> Findings:
        """Collectives of the same groups that the scheduler overlapped."""
        if pair.pass_name == _SCHEDULER:
            yield from _overlaps(pair.after, are_same=True)


def _overlaps(module: Module, *, are_same: bool) -> Findings:
    """Starts while another collective, of the same groups or of others, is in flight."""
    if module.is_scheduled and not module.has_tiles and has_async(module):
        for computation in module.nonfusion_computations:
            collectives = [start for start in starts(computation) if _communicates(start)]
            if not 1 < len(collectives) <= _MAX_COLLECTIVES:
                continue
            groups = {start.name: tuple(_cliques(start, module)) for start in collectives}
            reported: set[str] = set()
            for first, second in _in_flight(computation):
                ours, theirs = (groups.get(start.name, ()) for start in (first, second))
                is_same = set(ours) == set(theirs)
                attributes = first.attributes_text + second.attributes_text
                if is_same is not are_same or (is_same and "source_target_pairs=" in attributes):
                    continue  # permutes are point to point
                shared = _shared(ours, theirs, are_same=are_same)
                if shared and second.name not in reported:
                    reported.add(second.name)
                    yield Finding(
                        second,
                        f"this {second.opcode} starts while %{first.name} is in flight, and "
                        f"devices {listed(shared, 4)} take part in both",
                    )


def _communicates(start: Instruction) -> bool:
    """True for a collective, also if its start is printed with the wrapped opcode."""
    return start.opcode in COMMUNICATES or without_sugar(start.opcode) in COMMUNICATES


def _cliques(collective: Instruction, module: Module) -> Iterable[frozenset[int]]:
    groups = map(frozenset, device_groups(collective, module))
    if "source_target_pairs" not in collective.attributes:
        return groups
    # A permute has a communicator for each set of devices that its pairs connect.
    joined: list[frozenset[int]] = []
    for pair in groups:
        touching = [clique for clique in joined if clique & pair]
        joined = [clique for clique in joined if not clique & pair]
        joined.append(pair.union(*touching))
    return joined


def _shared(
    ours: Iterable[frozenset[int]], theirs: Iterable[frozenset[int]], *, are_same: bool
) -> Sequence[int]:
    """The common devices of two groups, if there are at least two; else empty."""
    for our_group, their_group in product(ours, theirs):
        common = our_group & their_group
        # Groups along two axes of a mesh share one device: the two cannot wait for each other.
        if (are_same or our_group != their_group) and len(common) > 1:
            return sorted(common)
    return ()


def _in_flight(computation: Computation) -> Iterator[tuple[Instruction, Instruction]]:
    """Pairs of starts in a schedule of which the second comes before the done of the first."""
    flying: list[Instruction] = []
    for instruction in computation.instructions:
        if is_done(instruction):
            flying = [start for start in flying if start.name not in instruction.operand_names]
        elif is_start(instruction) and _communicates(instruction):
            yield from ((first, instruction) for first in flying)
            if instruction.opcode not in ("send", "recv"):
                flying.append(instruction)
