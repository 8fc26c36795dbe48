"""Source-target pairs of collective permutes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hlo_lint.analysis.device_groups import Mode, mode_of, transfer_pairs
from hlo_lint.analysis.verifier.checks import on
from hlo_lint.analysis.verifier.scope import Scope, Violation
from hlo_lint.hlo.ir import Instruction
from hlo_lint.rules.base import Good
from hlo_lint.rules.verifier import VerifierRule


class BadSourceTargetPairs(VerifierRule):
    """A collective-permute with repeated or missing devices in its source-target pairs.

    ## Why
    Each device of the module sends at most once and receives at most once
    (`CheckSourceTargetPairs` in `xla/service/hlo_verifier.cc`).
    """

    messages = (
        "appears more than once in instruction's source-target pairs",
        "times in instruction's source-target pairs",
    )
    table = """
        source-target-range: CheckDuplicatedSourceOrTarget
          sources and targets are devices of the module
            HloModule m, num_partitions=2
            ROOT g = f32[8] collective-permute(f32[8] p), channel_id=1,  // error
                source_target_pairs={{0,1},{1,2}}
        source-target-repeated: CheckDuplicatedSourceOrTarget
          per slice, a device is at most once a source and at most once a target
            ROOT g = f32[8] collective-permute(f32[8] p),  // error
                source_target_pairs={{0,1},{0,2}}
    """
    examples = (
        Good.entry("""
            HloModule m, num_partitions=2
            p = f32[8] parameter(0)
            ROOT g = f32[8] collective-permute(p), channel_id=1, source_target_pairs={{0,1},{1,0}}
        """),
    )

    @on("collective-permute", "collective-permute-start", local=True)
    def pairs(self, scope: Scope, permute: Instruction) -> Iterator[Violation]:
        """Each device of the module sends at most once and receives at most once."""
        header, of_replicas = scope.header, mode_of(permute) is Mode.REPLICAS
        limit = header.replicas if of_replicas else header.partitions
        noun = "replicas" if of_replicas else "partitions"
        slices = permute.attribute_or_none("slice_sizes")
        most = len(slices) if isinstance(slices, tuple) and len(permute.operand_names) == 4 else 1
        for place, name in enumerate(("source", "target")):
            seen: Counter[int] = Counter()
            for pair in transfer_pairs(permute):
                number = pair[place]
                if number < 0 or (limit != 1 and number >= limit):
                    message = f"{name} {number} is out of range: there are {limit} {noun}"
                    yield Violation("source-target-range", permute, message)
                    return
                seen[number] += 1
                if seen[number] > most:
                    message = f"{name} {number} occurs {seen[number]} times in source_target_pairs"
                    yield Violation("source-target-repeated", permute, message)
                    return
