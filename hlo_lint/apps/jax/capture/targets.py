"""Descriptions of chips: XLA compiles for them where they are not present."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hlo_lint.text.errors import DumpError, UsageError, nearest, os_errors_as

if TYPE_CHECKING:
    from hlo_lint.xla.compiler import XlaCompiler

FOLDER = Path(__file__).parent / "targets"
TPUS: Final = {
    "v4": "v4:2x2x1",
    "v5e": "v5e:2x2",
    "v5p": "v5p:2x2x1",
    "v6e": "v6e:2x2",
    "tpu7x": "tpu7x:2x2x1",
}
"""The TPU generations, each with the smallest topology of libtpu: the chips of a host."""

HEALTHY = "HloModule m\nENTRY e {\n  ROOT p = f32[1]{0} parameter(0)\n}\n"
"""A module that every compiler compiles."""

_topology = re.compile(rf"({'|'.join(TPUS)}):\d+x\d+(?:x\d+)?")
_UNKNOWN_FIELD = re.compile(
    r"Error parsing text-format \S+: (\d+):(\d+): "
    r"(?:Message type .* has no field named|Unknown enumeration value of .* for field) \"(\w+)\""
)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]|[^\s{}\[\]"]+')


@dataclass(frozen=True, slots=True)
class Chip:
    """A chip to compile for."""

    name: str
    """The name or the file name that the caller gave."""
    is_tpu: bool
    description: str
    """The name of a TPU topology, or a `GpuTargetConfigProto` in text format."""

    def topology(self) -> Mapping[str, str]:
        """The arguments of `jax.experimental.topologies.get_topology_desc`."""
        if self.is_tpu:
            return {"platform": "tpu", "topology_name": self.description}
        return {"platform": "cuda", "target_config": self.description, "topology": "1x1x1"}


def target_names() -> tuple[str, ...]:
    """The GPUs that come with the package."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.pbtxt")))


def target_of(name: str) -> Chip:
    """Find a chip by the name of a GPU or a TPU, or by the path of a target config in a dump.

    Raises:
        UsageError: for an unknown chip.
        DumpError: for a file that cannot be read.
    """
    lower, names = name.lower(), (*target_names(), *TPUS)
    if lower in TPUS or _topology.fullmatch(lower):
        return Chip(name, True, TPUS.get(lower, lower))
    if lower == "cpu":
        raise UsageError(
            "the CPU needs no description: dump the program with "
            "XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_pass_re=.*', and check DIR"
        )
    if "/" in name or "." in name:
        path = Path(name)
    elif lower in target_names():
        path = FOLDER / f"{lower}.pbtxt"
    else:
        # The cutoff is strict, as chips of different generations have similar names: h100, b300.
        hint = nearest(name, names, cutoff=0.75)
        # Without a near name, the hint itself lists all.
        listed = "" if hint.startswith("there are") else f" There are {', '.join(names)}"
        raise UsageError(
            f"no target is named {name}; {hint}{listed}, "
            "a topology of TPUs (v5e:4x4), and any gpu_target_config.pbtxt of a dump, by its path"
        )
    with os_errors_as(f"{path}", DumpError, UnicodeDecodeError):
        return Chip(Path(name).name, False, path.read_text("utf-8"))


def gpu_description(name: str, compiler: XlaCompiler) -> str:
    """The description of a GPU, as this release of XLA reads it.

    Raises:
        UsageError: the target is a TPU.
    """
    target = target_of(name)
    if target.is_tpu:
        raise UsageError(f"{name} is a TPU; modules are compiled for a GPU")
    return readable_description(target.description, compiler)


def readable_description(text: str, compiler: XlaCompiler) -> str:
    """A description of a GPU without the fields that this release of XLA does not know."""
    while part := readable_part(text, compiler.compile(HEALTHY, text).log):
        text = part
    return text


def readable_part(description: str, log: str) -> str | None:
    """A description without the field that XLA's log calls unknown; None if it names no field."""
    unknown = _UNKNOWN_FIELD.search(log)
    return unknown and without_field(description, unknown[3], int(unknown[1]), int(unknown[2]))


def without_field(text: str, name: str, line: int, column: int) -> str | None:
    """A protobuf text without the last field of a name before a position; None without the field.

    Lines and columns begin at 1; protobuf's parser reports the place after the name.

    >>> without_field('a { b: 1 new { c: "}" } d: 2 }', "new", 1, 15)
    'a { b: 1 d: 2 }'
    """
    lines = text.splitlines(keepends=True)
    place = sum(map(len, lines[: line - 1])) + column
    heads = re.finditer(rf"\b{name}\s*(?::|(?=[{{\[]))", text)
    head = max((match for match in heads if match.start() < place), key=re.Match.end, default=None)
    if head is None:
        return None
    depth = 0
    for token in _TOKEN.finditer(text, head.end()):
        depth += (token[0] in "{[") - (token[0] in "}]")
        if not depth:
            return text[: head.start()] + text[token.end() :].lstrip(" ")
    return None
