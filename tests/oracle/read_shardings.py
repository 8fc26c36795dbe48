"""Says which tiles each sharding stands for, by XLA's own conversion of named meshes.

python read_shardings.py < shardings.json       a JSON list of texts in, a JSON line for each out
"""

from __future__ import annotations

import json
import sys
from typing import Any

from jaxlib import _hlo  # type: ignore[attr-defined]


def tiles(sharding: Any) -> Any:
    """Dimensions, devices and subgroups, or what stands for all devices; of a tuple a list."""
    if sharding.tuple_elements():
        return [tiles(element) for element in sharding.tuple_elements()]
    if not sharding.is_tiled():
        return str(sharding.to_string())
    return {
        "dimensions": sharding.tile_assignment_dimensions(),
        "devices": sharding.tile_assignment_devices(),
        "subgroups": [str(kind) for kind in sharding.subgroup_types()],
        "replicates": sharding.replicate_on_last_tile_dim(),
    }


if __name__ == "__main__":
    for text in json.load(sys.stdin):
        read = _hlo.HloSharding.from_string(text)
        read = _hlo.HloSharding.v3_to_v2_sharding(read) if "mesh[" in text else read
        print(json.dumps(tiles(read)), flush=True)
