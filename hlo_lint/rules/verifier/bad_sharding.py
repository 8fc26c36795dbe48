"""Shardings of instructions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod

from hlo_lint.analysis.verifier.checks import on_attribute
from hlo_lint.analysis.verifier.scope import Scope, Violation, device_list_error
from hlo_lint.hlo.attributes.devices import device_numbers
from hlo_lint.hlo.attributes.sharding import NamedSharding, TiledSharding, TupleSharding
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.shape import ArrayShape, BufferShape, leaves, shape_or_none
from hlo_lint.rules.base import Bad, Good
from hlo_lint.rules.verifier import VerifierRule
from hlo_lint.text.patterns import late
from hlo_lint.text.phrases import counted


class BadSharding(VerifierRule):
    """An instruction whose sharding does not match its shape or the devices of the module.

    ## Why
    Tiles split each dimension of the array, and each device of the module is named at most once
    (`xla/hlo/ir/hlo_sharding.cc`). The partitioner fails on other shardings, or assigns parts of
    the array to no device.
    """

    messages = (
        "While validating sharding",
        "does not match the tile assignment dimensions product",
        "is negative in tile assignment",
        "Invalid sharding for instruction",
    )
    table = """
        sharding: HloSharding::Validate
          a sharding matches its shape and the devices
            HloModule m, num_partitions=2
            p = f32[8,4] parameter(0), sharding={devices=[2]0,1}  // error
            ROOT n = f32[8,4] negate(p)
    """
    examples = (
        Bad.entry("""
            p = f32[8] parameter(0), sharding={{replicated}}  // error
            ROOT n = f32[8] negate(p)
        """),
        Good.entry("""
            HloModule m, num_partitions=2
            p = f32[8,4] parameter(0), sharding={devices=[2,1]<=[2]}
            ROOT n = f32[8,4] negate(p), sharding={replicated}
        """),
    )

    @on_attribute("sharding=", local=True)
    def sharding(self, scope: Scope, instruction: Instruction) -> Iterator[Violation]:
        """A sharding matches the shape and the devices."""
        text = instruction.attribute_text("sharding")
        if text is None or instruction.opcode == "outfeed":
            return  # an outfeed has the shardings of its operands
        devices = scope.header.partitions if scope.stage.sharding_devices else 1
        error = _error(text, instruction.type_text, devices, is_spmd=scope.header.is_spmd)
        if error:
            yield Violation("sharding", instruction, error)


_find_negative = late(r"(?:device=|[\],])(-\d+)").search


@lru_cache(maxsize=1 << 12)
def _error(text: str, spelled: str, devices: int, *, is_spmd: bool) -> str:
    if negative := _find_negative(text):
        return f"device {negative[1]} is negative"
    if error := device_list_error("sharding", text):
        return error
    from hlo_lint.hlo.attributes.reading import value_or_none  # few texts have shardings

    sharding = value_or_none("sharding", text)
    shape = shape_or_none(spelled)
    if shape is None:
        return ""
    parts = [leaf.element if isinstance(leaf, BufferShape) else leaf for _, leaf in leaves(shape)]
    if isinstance(sharding, TupleSharding):
        if isinstance(shape, ArrayShape):
            return f"a tuple sharding for the array {shape}"
        # XLA gives an empty tuple one sharding (`HloSharding::RequiredLeaves`).
        if len(sharding.elements) == 1 and not parts:
            return ""
        if len(sharding.elements) != len(parts):
            return f"{len(sharding.elements)} shardings for {len(parts)} arrays"
        pairs = zip(sharding.elements, parts, strict=True)
        errors = (_array_error(*pair, devices, is_spmd) for pair in pairs)
        return next(filter(None, errors), "")
    if isinstance(sharding, TiledSharding | NamedSharding):
        # The parser applies a single sharding to each array of a tuple.
        errors = (_array_error(sharding, part, devices, is_spmd) for part in parts)
        return next(filter(None, errors), "")
    return ""


def _array_error(
    sharding: TiledSharding | NamedSharding, shape: object, devices: int, is_spmd: bool
) -> str:
    """The error of an array's sharding (`HloSharding::ValidateNonTuple`); empty if it is valid.

    With the SPMD partitioner every sharding is over all partitions; else it may be over fewer.
    """
    if not isinstance(shape, ArrayShape):
        return ""
    if isinstance(sharding, NamedSharding):
        rank = len(sharding.dimensions)
        if rank and rank != shape.rank:
            dimensions = counted(rank, "dimension")
            return f"the sharding has {dimensions}, expected {shape.rank} for {shape}"
        count = prod(axis.size for axis in sharding.mesh.axes)
        # A module without num_partitions may be partitioned over any number of devices.
        if devices != 1 and (count > devices or (is_spmd and 1 < count != devices)):
            return f"the mesh has {count} devices, but the module has {devices}"
        return ""
    try:
        numbers = device_numbers(sharding.devices)
    except OverflowError:
        return ""
    if sharding.type == "tiled":
        rank = len(sharding.tiles) - len(sharding.subgroups)
        # XLA reads a single subgroup of all devices as that subgroup, without dimensions.
        is_whole = prod(sharding.tiles[:rank]) == 1 and len(set(sharding.subgroups)) == 1
        if rank != shape.rank and not is_whole:
            dimensions = counted(rank, "dimension")
            return f"the sharding tiles {dimensions}, expected {shape.rank} for {shape}"
        if len(numbers) != prod(sharding.tiles):
            return f"{prod(sharding.tiles)} tiles for {len(numbers)} devices"
    if len(set(numbers)) != len(numbers):
        return "the sharding names a device twice"
    if sharding.type == "tiled" and is_spmd and len(numbers) != devices != 1:
        return f"the sharding is over {len(numbers)} devices, but the module has {devices}"
    for number in numbers:
        if devices != 1 and not 0 <= number < devices:
            return f"device {number} is out of range: the module has {devices} devices"
    return ""
