"""The configuration of a compilation: `*.config.pbtxt`, the text of `HloModuleConfigProto`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hlo_lint.dumps.artefacts.records import Artefact
from hlo_lint.dumps.artefacts.text_proto import Message, read_text_proto


@dataclass(frozen=True, kw_only=True)
class ModuleConfig(Artefact):
    """The configuration, field by field; a few by name."""

    message: Message

    @property
    def replica_count(self) -> int:
        """Number of replicas: runs of the program, each on data of its own."""
        return self.message.number("replica_count", 1)

    @property
    def num_partitions(self) -> int:
        """Number of devices over which one run is partitioned."""
        return self.message.number("num_partitions", 1)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The shapes of the entry computation's parameters, as HLO spells them."""
        layout = self.message.message("entry_computation_layout")
        return tuple(map(shape_text, layout.messages("parameters")))

    @cached_property
    def result(self) -> str:
        """The shape of the result, or an empty text where none is given."""
        layout = self.message.message("entry_computation_layout")
        return shape_text(layout.message("result")) if "result" in layout else ""

    @cached_property
    def debug_options(self) -> dict[str, tuple[str, ...]]:
        """Every flag with its values, as text; a message is spelled on one line."""
        options: dict[str, tuple[str, ...]] = {}
        for field in self.message.message("debug_options").fields:
            options[field.name] = (*options.get(field.name, ()), str(field.value))
        return options


def read_config(text: str, path: Path | None = None) -> ModuleConfig:
    """Reads the file; what cannot be read is a trouble."""
    message, problems = read_text_proto(text)
    return ModuleConfig(path=path, text=text, problems=problems, message=message)


def shape_text(shape: Message) -> str:
    """A `ShapeProto` as HLO spells it.

    >>> shape_text(read_text_proto("element_type: BF16 dimensions: [8, 3] "
    ...     "layout { minor_to_major: [0, 1] }")[0])
    'bf16[8,3]{0,1}'
    """
    element_type = shape.text("element_type").lower()
    if element_type == "tuple":
        return f"({', '.join(map(shape_text, shape.messages('tuple_shapes')))})"
    if element_type in ("token", "opaque_type", "opaque"):
        return f"{element_type.removesuffix('_type')}[]"
    dynamic = shape.texts("is_dynamic_dimension")
    sizes = [
        f"<={size}" if number < len(dynamic) and dynamic[number] == "true" else str(size)
        for number, size in enumerate(shape.numbers("dimensions"))
    ]
    layout = ""
    if "layout" in shape and sizes:
        layout = f"{{{_layout_text(shape.message('layout'))}}}"
    return f"{element_type}[{','.join(sizes)}]{layout}"


def _layout_text(layout: Message) -> str:
    order = ",".join(map(str, layout.numbers("minor_to_major")))
    tiles = "".join(
        f"({','.join(map(str, tile.numbers('dimensions')))})" for tile in layout.messages("tiles")
    )
    bits, space = layout.number("element_size_in_bits"), layout.number("memory_space")
    parts = (f"T{tiles}" if tiles else "") + (f"E({bits})" if bits else "")
    parts += f"S({space})" if space else ""
    return f"{order}:{parts}" if parts else order
