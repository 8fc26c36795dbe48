"""Roofline: the least time that a device needs for some work.

Rates of GPUs come from the `GpuTargetConfigProto` that XLA leaves in a dump; rates of TPUs are
public, for a chip, which is a single device of jax.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hlo_lint.analysis.opcode_costs import Cost
from hlo_lint.hlo.dtypes import BITS
from hlo_lint.hlo.text_format import Message, read_text_proto

_NUMBERS: Final = {
    2: "s8",
    6: "u8",
    10: "f16",
    11: "f32",
    12: "f64",
    16: "bf16",
    19: "f8e5m2",
    20: "f8e4m3fn",
}
"""Element types by their numbers in `xla_data.proto`."""
_HALF_FLOPS_PER_CLOCK: Final = {
    "7.0": 1024,
    "7.5": 1024,
    "8.0": 2048,
    "8.6": 1024,
    "8.9": 1024,
    "9.0": 4096,
    "10.0": 8192,
}
"""Dense f16 flops per clock of a core's matrix units, by compute capability: from NVIDIA's
architecture whitepapers, for releases whose descriptions lack matrix units."""
_TPUS: Final = {
    "v4": (275e12, 275e12, 1228e9),
    "v5e": (197e12, 394e12, 819e9),
    "v5p": (459e12, 918e12, 2765e9),
    "v6e": (918e12, 1836e12, 1640e9),
}
"""bf16 flops, int8 operations and bytes of HBM per second, from Google's pages on TPUs."""
_TPU_VERSIONS: Final = {
    ("TPU_VERSION_PUFFERFISH", ""): "v4",
    ("TPU_VERSION_VIPERFISH", "lite"): "v5e",
    ("TPU_VERSION_VIPERFISH", ""): "v5p",
    ("TPU_VERSION_GHOSTLITE", ""): "v6e",
}
"""The chips as `*.target_arguments.txt` names them: version and variant."""


@dataclass(frozen=True, slots=True)
class Device:
    """The rates of a device."""

    name: str
    bytes_per_second: float
    vector_flops: float
    """Flops per second outside matrix units; 0 if unknown."""
    matrix_flops: Mapping[str, float]
    """Flops per second of the matrix units, by element type."""

    def seconds(self, cost: Cost) -> float:
        """The least seconds for the work of a kernel; memory and arithmetic overlap."""
        vector = cost.flops + cost.transcendentals - sum(cost.matrix_flops.values())
        matrix = 0.0
        for dtype, flops in cost.matrix_flops.items():
            if rate := self._matrix_rate(dtype):
                matrix += flops / rate
            else:
                vector += flops
        arithmetic = vector / self.vector_flops if self.vector_flops else 0.0
        return max(cost.bytes / self.bytes_per_second, matrix, arithmetic)

    def _matrix_rate(self, dtype: str) -> float:
        """The rate for a type; for an unlisted type, the rate of the next wider listed type."""
        if dtype in self.matrix_flops:
            return self.matrix_flops[dtype]
        bits = BITS.get(dtype, 64)
        rates = ((BITS[name], rate) for name, rate in self.matrix_flops.items())
        return min((wider for wider in rates if wider[0] >= bits), default=(0, 0.0))[1]


def tpu_device(generation: str) -> Device | None:
    """A TPU by its generation, as in `v5e`; None if its rates are unknown."""
    if generation not in _TPUS:
        return None
    bf16, int8, memory = _TPUS[generation]
    # The rate of the vector unit is not public, so it is not a bound. An f32 dot takes bf16 passes,
    # a single pass at the default precision.
    return Device(f"TPU {generation}", memory, 0.0, {"bf16": bf16, "f32": bf16, "s8": int8})


def tpu_of_dump(text: str) -> Device | None:
    """The TPU that a `*.target_arguments.txt` describes."""
    topology = read_text_proto(text)[0].message("tpu_topology_args")
    key = topology.text("version"), topology.text("variant")
    return tpu_device(_TPU_VERSIONS.get(key, ""))


def gpu_device(text: str) -> Device | None:
    """The GPU of a `GpuTargetConfigProto` in the text format; None if fields are missing."""
    config = read_text_proto(text)[0]
    info = config.message("gpu_device_info")
    cores, memory = info.number("core_count"), info.number("memory_bandwidth")
    clock = _decimal(info.text("clock_rate_ghz")) * 1e9
    if not cores or not memory or not clock:
        return None
    capability = info.message("cuda_compute_capability")
    version = f"{capability.number('major')}.{capability.number('minor')}"
    name = config.text("device_description_str") or info.text("name")
    vector = cores * clock * info.number("fpus_per_core") * 2
    matrix = {
        # A multiply-add is a single operation of a matrix unit.
        dtype: 2 * cores * rate
        for dtype, rate in _rates(info.message("matrix_unit_description")).items()
    }
    if not matrix and version in _HALF_FLOPS_PER_CLOCK:
        half = cores * clock * _HALF_FLOPS_PER_CLOCK[version]
        matrix = {"f16": half, "bf16": half}
    return Device(name or f"GPU sm_{version} of {cores} cores", memory, vector, matrix)


def _rates(units: Message) -> dict[str, float]:
    rates: dict[str, float] = {}
    for entry in units.messages("rate_infos"):
        value = entry.message("value")
        per_clock = value.number("units_per_core") * value.number("ops_per_clock")
        if (dtype := _NUMBERS.get(entry.number("key"))) is not None:
            rates[dtype] = per_clock * _decimal(value.text("clock_rate_ghz")) * 1e9
    return rates


def _decimal(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
