"""Hostile inputs: each grows along one axis.

`cost.py` measures the command line that reads one, `make hostile` writes the costs of all of them to
benchmarks/HOSTILE.md, and `test_growth.py` doubles small ones and counts calls.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

STRICT = ("check", "--strict")

Make = Callable[[int], "bytes | str | Mapping[str, bytes | str]"]


@dataclass(frozen=True)
class Hostile:
    """An input that is made by its size, and the command that reads it."""

    name: str
    make: Make
    size: int
    """That of the table."""
    small: int
    """That of the tests, which double it."""
    arguments: tuple[str, ...]
    """`@` in them stands for the path of the input, which else comes last."""
    file: str
    """The name of the file."""

    def command(self, path: Path) -> list[str]:
        """The arguments with the path; the server reads its standard input."""
        if any("@" in word for word in self.arguments):
            return [word.replace("@", str(path)) for word in self.arguments]
        return [*self.arguments, *([] if self.arguments == ("server",) else [str(path)])]

    def write(self, folder: Path, size: int) -> Path:
        """Write the input; return the path that the command gets."""
        made = self.make(size)
        if isinstance(made, bytes | str):
            path = folder / self.file
            path.write_bytes(_bytes(made))
            return path
        for name, content in made.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, str) and content.startswith("-> "):
                target.symlink_to(content[3:])
            else:
                target.write_bytes(_bytes(content))
        return folder


def _bytes(content: bytes | str) -> bytes:
    return content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content


INPUTS: list[Hostile] = []

Made = TypeVar("Made", bound=Make)


def _input(
    name: str, size: int, small: int = 64, *arguments: str, file: str = "input.hlo"
) -> Callable[[Made], Made]:
    def add(make: Made) -> Made:
        INPUTS.append(Hostile(name, make, size, small, arguments or STRICT, file))
        return make

    return add


def _table(
    around: Callable[[str], str | Mapping[str, bytes | str]],
    *rows: tuple[str, int, str],
    small: int = 64,
    arguments: tuple[str, ...] = (),
    file: str = "input.hlo",
) -> None:
    """Add inputs that are the same around a part of their own: their name, size and that part."""
    for name, size, part in rows:
        _input(name, size, small, *arguments, file=file)(partial(_around, around, part))


def _around(
    around: Callable[[str], str | Mapping[str, bytes | str]], part: str, size: int
) -> str | Mapping[str, bytes | str]:
    return around(_grown(part, size))


def _grown(part: str, size: int) -> str:
    """The part with the text in each `«text|between»` written N times, and the values of `10^N`, `$N`.

    `@` is the number of the text, from 0 on, `@+1` the next.
    """

    def many(found: re.Match[str]) -> str:
        text, _, between = found[1].partition("|")
        if "@" not in text:
            return between.join([text] * size)
        return between.join(
            text.replace("@+1", str(i + 1)).replace("@", str(i)) for i in range(size)
        )

    part = part.replace("10^N", str(10**size)) if "10^N" in part else part.replace("$N", str(size))
    return re.sub("«(.*?)»", many, part, flags=re.DOTALL)


def _module(body: str, header: str = "", before: str = "") -> str:
    return f"HloModule m{header}\n{before}\nENTRY %e (p: f32[8]) -> f32[8] {{\n{body}}}\n"


PARAMETER = "  %p = f32[8]{0} parameter(0)\n"
COPY = "  ROOT %r = f32[8]{0} copy(%p)\n"
_PARAMETER_ALONE = "  ROOT %p = f32[8]{0} parameter(0)\n"
_SCHEDULED = ", is_scheduled=true"
_GROUPS = "replica_groups={{0,1}}, to_apply=%add"
_ADDER = (
    "%add (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n"
    "  %b = f32[] parameter(1)\n  ROOT %s = f32[] add(%a, %b)\n}\n"
)


def _root(root: str) -> str:
    """A module of a parameter and a root."""
    return _module(f"{PARAMETER}  ROOT %{root}\n")


def _copied_with(attribute: str) -> str:
    return _root(f"r = f32[8]{{0}} copy(%p), {attribute}")


def _lines(lines: str, header: str = "") -> str:
    """A module of a parameter, lines, and a copy of the parameter as its root."""
    return _module(PARAMETER + lines + COPY, header)


# Graphs


_BEFORE = ("--before", "layout_normalization")


_input("fusions that hold reshapes, before layout_normalization", 1500, 16, "check", *_BEFORE)(
    lambda size: _grown(
        "HloModule m\n\n«%f.@ (q.@: f32[4000,600]) -> f32[600,4000] {\n"
        "  %q.@ = f32[4000,600]{0,1} parameter(0)\n"
        "  ROOT %r.@ = f32[600,4000]{0,1} reshape(%q.@)\n}\n\n»"
        "ENTRY %e (p: f32[4000,600]) -> («f32[600,4000]{0,1}|, ») {\n"
        "  %p = f32[4000,600]{0,1} parameter(0)\n"
        "«  %c.@ = f32[600,4000]{0,1} fusion(%p), kind=kLoop, calls=%f.@\n»"
        "  ROOT %t = («f32[600,4000]{0,1}|, ») tuple(«%c.@|, »)\n}\n",
        size,
    )
)


def _reshapes(size: int) -> str:
    lines = ["  %p = f32[4,6]{0,1} parameter(0)"]
    before = "p"
    for i in range(size):
        shape = "f32[6,4]{0,1}" if i % 2 == 0 else "f32[4,6]{0,1}"
        lines.append(f"  %r.{i} = {shape} reshape(%{before})")
        before = f"r.{i}"
    lines[-1] = lines[-1].replace("  %", "  ROOT %")
    body = "\n".join(lines)
    return f"HloModule m\n\nENTRY %e (p: f32[4,6]) -> {'f32[4,6]' if size % 2 == 0 else 'f32[6,4]'} {{\n{body}\n}}\n"


_input("reshapes that are findings", 3_000, 32)(_reshapes)
_input("reshapes that are findings, before layout_normalization", 4000, 32, "check", *_BEFORE)(
    _reshapes
)
_table(
    _root,
    ("an instruction that reads itself", 100_000, "a = f32[8]{0} tuple(«%a|, »)"),
    ("an operand read many times", 100_000, "t = («f32[8]{0}|, ») tuple(«%p|, »)"),
    ("control predecessors", 100_000, "a = f32[8]{0} negate(%p), control-predecessors={«%p|, »}"),
)


_START = "  %a.0 = f32[8]{0} negate(%p)\n"
_table(
    lambda lines: _lines(_START + lines),
    (
        "a chain of control predecessors",
        20_000,
        "«  %a.@+1 = f32[8]{0} negate(%p), control-predecessors={%a.@}\n»",
    ),
)


@_input("a long chain of instructions", 50_000)
def _chain(size: int) -> str:
    lines = "«  %a.@+1 = f32[8]{0} negate(%a.@)\n»  ROOT %r = f32[8]{0} copy(%a.$N)\n"
    return _module(_grown(PARAMETER + _START + lines, size))


@_input("a chain written backwards", 8_000)
def _backwards(size: int) -> str:
    head, _, lines = _chain(size).removesuffix("}\n").partition("{\n")
    return "".join((head, "{\n", *reversed(lines.splitlines(keepends=True)), "}\n"))


@_input("tuples in each other, by instructions", 2000, 16)
def _tuple_tower(size: int) -> str:
    # Each shape is as long as its depth: the text is quadratic, and what reads it is linear in it.
    lines = []
    before, shape = "p", "f32[8]{0}"
    for i in range(size):
        shape = f"({shape})"
        lines.append(f"  %t.{i} = {shape} tuple(%{before})\n")
        before = f"t.{i}"
    return _lines("".join(lines))


@_input("copies of a wide tuple", 400, 8)
def _wide_tuples(size: int) -> str:
    shape = _grown("(«f32[8]{0}|, »)", size)
    copies = f"«  %t.@+1 = {shape} copy(%t.@)\n»"
    return _lines(_grown(f"  %t.0 = {shape} tuple(«%p|, »)\n{copies}", size))


_PAIRS = "frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,@}}}"
_table(
    lambda lines: _lines(lines, _SCHEDULED),
    (
        "asynchronous operations, all in flight",
        10_000,
        "«  %s.@ = (f32[8]{0}, f32[8]{0}, u32[]) copy-start(%p)\n»"
        "«  %d.@ = f32[8]{0} copy-done(%s.@)\n»",
    ),
    (
        "send and recv of one channel",
        5000,
        "  %k = token[] after-all()\n"
        f"«  %s.@ = (f32[8]{{0}}, u32[], token[]) send(%p, %k), channel_id=@+1, {_PAIRS}\n"
        f"  %v.@ = (f32[8]{{0}}, u32[], token[]) recv(%k), channel_id=@+1, {_PAIRS}\n"
        "  %w.@ = token[] send-done(%s.@), channel_id=@+1\n"
        "  %x.@ = (f32[8]{0}, token[]) recv-done(%v.@), channel_id=@+1\n»",
    ),
    (
        "a cycle of instructions",
        8_000,
        "«  %a.@ = f32[8]{0} negate(%a.@+1)\n»  %a.$N = f32[8]{0} negate(%a.0)\n",
    ),
    small=32,
)


# Computations

_LEAF = " (q: f32[8]) -> f32[8] {\n  ROOT %q = f32[8]{0} parameter(0)\n}\n"


_input("computations that nothing calls", 20_000)(
    lambda size: _module(_PARAMETER_ALONE, before=_grown(f"«%f.@{_LEAF}»", size))
)


_BODY = " (q: f32[8]) -> f32[8] {\n  %q = f32[8]{0} parameter(0)\n"


def _calls_below(lines: str, size: int) -> str:
    """Computations of which each but the first has these lines; `@` is the computation before."""
    before = _grown(f"%f.0{_LEAF}«%f.@+1{_BODY}{lines}}}\n»", size)
    last = f"  ROOT %c = f32[8]{{0}} call(%p), to_apply=%f.{size}\n"
    return _module(PARAMETER + last, before=before)


_input("a chain of calls", 10_000)(
    partial(_calls_below, "  ROOT %c = f32[8]{0} call(%q), to_apply=%f.@\n")
)
_input("calls that double at each level", 5000, 32)(
    partial(
        _calls_below,
        "  %b = f32[8]{0} call(%q), to_apply=%f.@\n  ROOT %c = f32[8]{0} call(%b), to_apply=%f.@\n",
    )
)
_CONDITION = "\ncond { q = f32[8]{0} parameter(0) ROOT c = pred[] constant(false) }\n"
_WHILE = "  ROOT %w = f32[8]{0} while(%q), condition=%cond, body=%f.@\n"
_input("loops in each other", 3000, 16)(
    lambda size: _calls_below(_WHILE, size).replace("\n", _CONDITION, 1)
)
_CALL = "  ROOT %c = f32[8]{0} call(%q), to_apply=%f."
_table(
    lambda before: _module(f"{PARAMETER}{_CALL.replace('q', 'p')}0\n", before=before),
    ("a cycle of calls", 10_000, f"«%f.@{_BODY}{_CALL}@+1\n}}\n»%f.$N{_BODY}{_CALL}0\n}}\n"),
)
_table(
    lambda root: _module(f"{PARAMETER}  %i = s32[] constant(0)\n  {root}\n", before="%f" + _LEAF),
    (
        "branches of a conditional",
        50_000,
        "ROOT %c = f32[8]{0} conditional(%i, «%p|, »), branch_computations={«%f|, »}",
    ),
)
_table(
    str,
    (
        "many modules in one file",
        10_000,
        "«HloModule m@\n\nENTRY e {\n  ROOT p = f32[8]{0} parameter(0)\n}\n\n»",
    ),
    (
        "parameters",
        50_000,
        "HloModule m\n\nENTRY %e («p.@: f32[8]|, ») -> f32[8] {\n"
        "«  %p.@ = f32[8]{0} parameter(@)\n»  ROOT %r = f32[8]{0} copy(%p.0)\n}\n",
    ),
)
_table(
    _module,
    (
        "operands that are instructions, in each other",
        10_000,
        "  ROOT %r = f32[8]{0} «negate(f32[8]{0} »parameter(0)«)»\n",
    ),
    small=256,
)
_table(
    lambda body: f"HloModule m\n\nENTRY e {{\n  {body}\n}}\n",
    (
        "computations written in each other",
        2000,
        "«ROOT c = f32[8]{0} call(), to_apply={ »ROOT x = f32[8]{0} iota()« }»",
    ),
    small=16,
)


# Headers and tables

_table(
    lambda header: _module(_PARAMETER_ALONE, f", {header}"),
    ("aliases in a header", 100_000, "input_output_alias={ «{}: (0, {}, may-alias)|, » }"),
    (
        "distinct aliases in a header",
        100_000,
        "input_output_alias={ «{@}: (@, {}, may-alias)|, » }",
    ),
    ("donors in a header", 100_000, "buffer_donor={ «(@, {})|, » }"),
    (
        "parameters in an entry layout",
        50_000,
        "entry_computation_layout={(«f32[8]{0}|, »)->f32[8]{0}}",
    ),
    ("a header of unknown attributes", 50_000, "«a@=1|, »"),
)


@_input("stack frames in a chain", 20_000)
def _frames(size: int) -> str:
    frames = "".join(
        f"{i} {{file_location_id=1 parent_frame_id={i - 1 or 1}}}\n" for i in range(1, size + 1)
    )
    tables = (
        'FileNames\n1 "a.py"\n\nFunctionNames\n1 "f"\n\n'
        "FileLocations\n1 {file_name_id=1 function_name_id=1 line=1 end_line=1 column=1 "
        f"end_column=2}}\n\nStackFrames\n{frames}\n"
    )
    line = f'  %a.@ = f32[8]{{0}} reshape(%p), metadata={{op_name="x" stack_frame_id={size}}}\n'
    return _module(PARAMETER + _grown(f"«{line}»", size) + COPY, before="\n" + tables)


_input("stack frames in a cycle", 20_000)(
    lambda size: _frames(size).replace("parent_frame_id=1}", f"parent_frame_id={size}}}", 1)
)


# One line

_table(
    lambda line: f"HloModule m ENTRY %e {{ {line} }}\n",
    (
        "findings on one line",
        6_000,
        "%p = f32[4,6]{0,1} parameter(0) «%r.@ = f32[6,4]{0,1} reshape(%p) »"
        "ROOT %z = f32[4,6]{0,1} copy(%p)",
    ),
    ("problems on one line", 6000, "«%r.@ = f32[8]{0} add(%p.@) »ROOT %z = f32[8]{0} copy(%p)"),
    small=32,
)
_table(
    lambda lines: _module(PARAMETER + lines),
    ("lines that cannot be read", 10_000, "«  %a = = (\n  good = f32[8]{0} negate(%p)\n»"),
    ("lines that open a comment and never end it", 50_000, "«  /* %a = f32[8]{0} copy(%p)\n»"),
    (
        "strings that open and never end",
        10_000,
        '«  %a = f32[8]{0} copy(%p), metadata={op_name="x\n»',
    ),
    ("a name", 1_000_000, "  %«a» = f32[8]{0} negate(%p)\n  ROOT %r = f32[8]{0} copy(%«a»)\n"),
    ("lines that open a bracket and never close it", 10_000, "«  %a = f32[8]{0} copy(%p), x={\n»"),
)
_table(
    _lines,
    ("errors of the verifier", 5_000, "«  %a.@ = f32[9]{0} add(%p, %p)\n»"),
    ("instructions of one name", 5_000, "«  %a = f32[8]{0} negate(%p)\n»"),
    ("empty lines", 1_000_000, "«\n»"),
    ("marks of direction in names", 20_000, "«  %a\u202e@ = f32[8]{0} negate(%p)\n»"),
    (
        "comments that allow",
        5_000,
        "«  // hlo-lint: allow reshape-moves-data -- @\n  %a.@ = f32[8]{0} negate(%p)\n»",
    ),
    ("rules that a comment allows", 50_000, "  // hlo-lint: allow «no-such-rule-@|, »\n"),
)
_table(
    _root,
    ("an opcode", 1_000_000, "r = f32[8]{0} «a»(%p)"),
    ("a comment", 10_000_000, "r = f32[8]{0} /*«x»*/ copy(%p)"),
    ("comments that open and never end", 100_000, "r = f32[8]{0} copy(%p)« /* x»"),
    ("white space", 10_000_000, "r = f32[8]{0} « »copy(%p)"),
    ("braces in a constant", 100_000, "c = f32[8]{0} constant(«{»«}»)"),
    (
        "MLIR in a backend_config, nested",
        100_000,
        'r = f32[8]{0} custom-call(%p), custom_call_target="x", '
        "api_version=API_VERSION_TYPED_FFI, backend_config=«{a = »1«}»",
    ),
)
_table(
    _root, ("parentheses in an operand list", 100_000, "r = f32[8]{0} copy(«(»%p«)»)"), small=128
)
_input("a line of a constant", 2_000_000)(
    lambda size: _root(_grown(f"c = f32[{size}]{{0}} constant({{«1|, »}})", size))
)
_table(
    _module,
    (
        "digits of a number",
        1_000_000,
        "  %p = f32[«9»]{«9»} parameter(«9»)\n  %c = f32[] constant(«9»)\n"
        "  %i = s64[] constant(«9»)\n  ROOT %r = f32[8]{0} slice(%p), "
        "slice={[«9»:«9»:«9»]}, channel_id=«9»\n",
    ),
)
_input("text of no language", 5_000_000)(
    lambda size: (b"\x00\xff(){}[]\"'/*%=,ROOT \n" * (size // 20))[:size]
)
_input("NUL bytes", 20_000_000)(lambda size: b"\0" * size)
_input("UTF-16", 1_000_000)(lambda size: _chain(size // 80).encode("utf-16"))


# Shapes and attributes


def _of_rank(dim: str, rest: str, size: int) -> str:
    """A module whose shapes, `@`, have many dimensions, all of them `dim`; `~` is their order."""
    order = ",".join(map(str, reversed(range(size))))
    shape = f"f32[{','.join([dim] * size)}]{{{order}}}"
    return _module(f"  %p = @ parameter(0)\n{rest}".replace("@", shape).replace("~", order))


_input("a shape of many dimensions", 100_000)(
    partial(_of_rank, "1", "  %q = @ negate(%p)\n  ROOT %r = f32[] reshape(%q)\n")
)
_input("a transpose of many dimensions", 20_000)(
    partial(
        _of_rank,
        "1",
        "  %q = @ transpose(%p), dimensions={~}\n  %b = @ bitcast(%q)\n"
        "  %s = @ reshape(%q)\n  ROOT %r = f32[] reshape(%s)\n",
    )
)
_input("dimensions of 2^62", 5000, 32)(
    partial(_of_rank, f"{1 << 62}", "  %q = @ negate(%p)\n  ROOT %r = f32[8]{0} reshape(%q)\n")
)


@_input("a window of many dimensions", 20_000)
def _window(size: int) -> str:
    window = f"{{size={'x'.join(['1'] * size)}}}, to_apply=%add"
    rest = f"  %z = f32[] constant(0)\n  ROOT %r = @ reduce-window(%p, %z), window={window}\n"
    return _of_rank("1", rest, size).replace("\n\n", f"\n{_ADDER}\n", 1)


_table(
    lambda shape: _module(f"  ROOT %p = {shape} parameter(0)\n"),
    ("a tuple in a tuple", 100_000, "«(»f32[8]{0}«)»"),
    ("elements of a tuple", 100_000, "(«f32[8]{0}|, »)"),
    ("tiles of a layout", 50_000, "f32[8]{0:T«(8)»}"),
)
_table(
    _copied_with,
    ("braces in an attribute", 100_000, "x=«{»«}»"),
    ("braces in a frontend attribute", 100_000, "frontend_attributes={x=«{»«}»}"),
    ("frontend attributes", 50_000, 'frontend_attributes={«x@="@"|, »}'),
    ("attributes of an instruction", 4_000, "«a@=@|, »"),
    ("braces in metadata", 100_000, "metadata=«{»«}»"),
    ("braces in a sharding", 100_000, "sharding=«{»«}»"),
    ("braces in an origin", 100_000, "origin=«{»«}»"),
    ("elements of a sharding", 20_000, "sharding={«{devices=[2]<=[2]}|, »}"),
    ("axes of a mesh", 20_000, "sharding={mesh[«'x@'=2|,»], [{«'x@'|,»}]}"),
    ("JSON in a backend_config, nested", 100_000, 'backend_config=«{"a":»1«}»'),
    ("JSON arrays in a backend_config, nested", 100_000, 'backend_config={"a":«[»«]»}'),
    ("quotes in a backend_config", 500_000, 'backend_config="«\\"»"'),
)
_table(
    _copied_with,
    ("a sharding over 10^N devices", 30, "sharding={devices=[10^N]<=[10^N]}"),
    ("a sharding over 10^N devices on a mesh", 18, "sharding={mesh['x'=10^N], [{'x'}]}"),
    small=4,
)


def _all_reduce(groups: str, header: str = "") -> str:
    reduced = f"all-reduce(%p), replica_groups={groups}, to_apply=%add, channel_id=1"
    return _module(
        f"{PARAMETER}  ROOT %r = f32[8]{{0}} {reduced}, use_global_device_ids=true\n",
        header,
        _ADDER,
    )


_table(
    lambda text: _all_reduce(*text.split("; ")),
    ("replica groups of 10^N devices", 18, "[1,10^N]<=[10^N]; , num_partitions=10^N"),
    ("replica groups on a mesh of 10^N devices", 18, "mesh['x'=10^N] {'x'}; , num_partitions=10^N"),
    ("10^N replicas", 18, "{}; , replica_count=10^N, num_partitions=10^N"),
    small=4,
)


@_input("replica groups", 100_000)
def _groups(size: int) -> str:
    groups = ",".join(f"{{{2 * i},{2 * i + 1}}}" for i in range(size))
    return _all_reduce(f"{{{groups}}}", f", replica_count={2 * size}")


@_input("collectives over 10^N devices that do not meet", 9, 3)
def _ranks(size: int) -> str:
    n = 10**size
    text = _all_reduce(f"[{n // 2},2]<=[{n}]", f", num_partitions={n}")
    again = f"  %r = f32[8]{{0}} all-reduce(%p), replica_groups=[2,{n // 2}]<=[{n}], to_apply=%add, channel_id=2, use_global_device_ids=true\n"
    return text.replace("  ROOT %r", again + "  ROOT %t")


@_input("pairs of a collective-permute", 50_000)
def _pairs(size: int) -> str:
    permute = "collective-permute(%p), source_target_pairs={«{@,@+1}|,»}"
    return _root(_grown(f"r = f32[8]{{0}} {permute}", size)).replace(
        "\n", f", num_partitions={size + 1}\n", 1
    )


# Custom calls


def _custom_call(target: str, config: str) -> str:
    return _root(
        f'r = f32[8]{{0}} custom-call(%p), custom_call_target="{target}", backend_config="{config}"'
    )


def _zlib_bomb(target: str, size: int) -> str:
    compressor = zlib.compressobj(9)
    block = b"\0" * (1 << 20)
    data = b"".join(compressor.compress(block) for _ in range(max(1, size >> 20)))
    return _custom_call(target, "".join(f"\\{byte:03o}" for byte in data + compressor.flush()))


_input("a zlib stream that inflates to N bytes", 1 << 30, 1 << 16)(
    partial(_zlib_bomb, "__gpu$xla.gpu.triton")
)
_input("a zlib stream of the old Triton call that inflates to N bytes", 1 << 30, 1 << 16)(
    partial(_zlib_bomb, "triton_kernel_call")
)


@_input("MLIR bytecode that promises 2^62 bytes", 100_000)
def _bytecode(size: int) -> str:
    import base64

    data = b"ML\xefR\x0d" + b"\xff" * 9 + b"\0" * size
    config = '{\\"custom_call_config\\": {\\"body\\": \\"' + base64.b64encode(data).decode()
    return _custom_call("tpu_custom_call", config + '\\"}}')


def _gzipped(size: int) -> bytes:
    """Zeros, packed block by block: the memory of this process would count as the input's."""
    held = io.BytesIO()
    with gzip.GzipFile(fileobj=held, mode="wb") as packed:
        for _ in range(size >> 16):
            packed.write(b"\0" * (1 << 16))
    return held.getvalue()


for _gzip_name, _ending in (("a gzip of N bytes", "hlo.pb"), ("a gzipped text of N bytes", "txt")):
    _gzip_file = f"module_0001.jit_f.before_optimizations.{_ending}.gz"
    _input(_gzip_name, 1 << 30, 1 << 16, file=_gzip_file)(_gzipped)


# Files of a dump


def _kernel(body: str) -> str:
    return (
        ".version 8.0\n.target sm_90\n.address_size 64\n\n.visible .entry f()\n{\n"
        "\t.reg .b64 %rd<9>;\n\t.reg .pred %p<2>;\n" + body + "\tret;\n}\n"
    )


_table(_kernel, ("PTX, braces", 100_000, "«{»«}»"), file="kernel.ptx")


@_input("PTX, registers in a chain", 20_000, file="kernel.ptx")
def _ptx(size: int) -> str:
    chain = "«\tadd.u64 %rd@+1, %rd@, 1;\n»\tcp.async.cg.shared.global "
    return _kernel(_grown(f"{chain}[%rd{size}], [%rd{size}], 16;\n", size))


def _ptx_copies(lines: Callable[[int, int], tuple[str, str]], size: int) -> str:
    """Copies, each between two lines."""
    copies = []
    for number in range(size):
        before, after = lines(number, size)
        copy = f"\tcp.async.cg.shared.global [%rd{number % 7}], [%rd0], 16;\n"
        copies.append(f"{before}{copy}\t{after};\n")
    return _kernel("".join(copies))


_input("PTX, copies", 20_000, file="kernel.ptx")(
    partial(_ptx_copies, lambda number, size: ("", "cp.async.commit_group"))
)
_input("PTX, labels", 20_000, file="kernel.ptx")(
    partial(
        _ptx_copies, lambda number, size: (f"$L{number}:\n", f"@%p0 bra $L{(number * 7) % size}")
    )
)
_input("PTX, one line", 5_000_000, file="kernel.ptx")(
    lambda size: _kernel("/*" + "a" * size + "*/ " + "\t;" * (size // 10))
)


FINAL = "module_0001.jit_f.sm_9.0_gpu_after_optimizations.txt"


def _final(size: int) -> str:
    return _lines(_grown("«  %a.@ = f32[8]{0} negate(%p)\n»", size), _SCHEDULED)


def _beside(ending: str, text: str, size: int = 2) -> dict[str, bytes | str]:
    return {FINAL: _final(size), FINAL.removesuffix(".txt") + ending: text}


@_input("a buffer assignment with values that overlap", 1_000, 32)
def _buffers(size: int) -> dict[str, bytes | str]:
    values = "".join(
        f" value: <{i} a.{i} @0> (size={10**18 + i},offset={i}): f32[8]{{0}}\n" for i in range(size)
    )
    head = "BufferAssignment:\nallocation 0: size 8, preallocated-temp:\n"
    return _beside("-buffer-assignment.txt", head + values, size)


@_input("a buffer assignment of many allocations", 4_000)
def _allocations(size: int) -> dict[str, bytes | str]:
    text = "".join(
        f"allocation {i}: size {-i}, maybe-live-out:\n value: <{i} a.{i} @0> (size={i},offset=0): f32[8]{{0}}\n"
        for i in range(size)
    )
    return _beside("-buffer-assignment.txt", f"BufferAssignment:\n{text}", size)


_table(
    lambda text: f"version: 3\n{text}",
    ("an autotuning log, nested", 100_000, "logs { results { «a { »«} »} }\n"),
    (
        "results of an autotuning log",
        20_000,
        '«results { device: "x" hlo: "h@" result '
        f"{{ gemm {{ algorithm: {10**30} }} run_time {{ nanos: {10**30} }} }} }}\n»",
    ),
    file="autotune.textproto",
)
_table(
    lambda text: {FINAL: _final(2), "module_0001.metadata.textproto": text},
    ("metadata of a module, nested", 100_000, "«pass_metadata { »«} »"),
)
_table(
    lambda text: {FINAL: _final(2), "module_0001.jit_f.debug_options": text},
    ("debug options of a dump", 50_000, "«xla_a: true\n»"),
)
_table(
    lambda text: _beside("-buffer-assignment-values.txt", text),
    (
        "buffer values in each other",
        100_000,
        "HloDataflowAnalysis, module m\n  Instruction value sets:\n    a.1 «{»«}»:\n",
    ),
)
_input("a log of tensor descriptors", 1_500, 32, file="log.txt")(
    lambda size: (
        (
            "TMA Desc Addr:   0x7ffd\nformat         0\ndim            2\ngmem_address   0x7f\n"
            "globalDim      (4096,4096,1,1,1)\nglobalStrides  (2,8192,0,0,0)\n"
            "boxDim         (64,128,1,1,1)\nelementStrides (1,1,1,1,1)\ninterleave     0\n"
            "swizzle        3\nl2Promotion    2\noobFill        0\n"
        )
        * size
    )
)


# Folders


def _passes(size: int, body: Callable[[int], str]) -> dict[str, bytes | str]:
    return {
        f"module_0001.jit_f.{i:04d}.pipeline.after_pass{i}.before_pass{i + 1}.txt": body(i)
        for i in range(size)
    }


_ONE = _module(_PARAMETER_ALONE)


_input("files in a folder", 100_000, 32)(lambda size: {f"notes{i}": "" for i in range(size)})
_input("HLO files in a folder", 1_000, 32)(
    lambda size: {f"f{i}.hlo": f"{_ONE}// {i}\n" for i in range(size)}
)
_input("dumps of one module", 1_000, 32)(
    lambda size: _passes(size, lambda i: _root(f"r.{i} = f32[8]{{0}} negate(%p)"))
)
_input("dumps of many modules", 1_000, 32)(
    lambda size: {f"module_{i:04d}.jit_f{i}.before_optimizations.txt": _ONE for i in range(size)}
)
_input("folders in each other", 400, 8)(lambda size: {"/".join(["d"] * size) + "/f.hlo": _ONE})


@_input("links to /dev/zero, to themselves and to each other", 100, 4)
def _links(size: int) -> dict[str, bytes | str]:
    links: dict[str, bytes | str] = {}
    for i in range(size):
        links[f"zero{i}.hlo"] = "-> /dev/zero"
        links[f"self{i}.hlo"] = f"-> self{i}.hlo"
        links[f"up{i}"] = "-> .."
    return links


_input("names of 255 bytes", 500, 32)(
    lambda size: {f"{i:04d}{'n' * 247}.hlo": _ONE for i in range(size)}
)


# Settings

_table(
    lambda settings: {"hlo_lint.toml": settings, "f.hlo": ""},
    ("digits of a setting", 100_000, "jobs = -«9»\n"),
    ("arrays in a setting, nested", 100_000, "select = «[»«]»\n"),
    ("keys of a settings file", 50_000, "«a@ = 1\n»"),
)
_table(
    lambda settings: {"hlo_lint.toml": settings, "f.hlo": ""},
    ("dotted keys of a settings file", 5000, "«a|.» = 1\n"),
    small=32,
)
_table(
    lambda settings: {"hlo_lint.toml": settings, f"{'a' * 200}.hlo": _module(PARAMETER)},
    ("patterns in a setting", 5000, 'exclude = [«"**/*a*@*"|, »]\n'),
    small=32,
)


# Other commands

_input("fix: reshapes", 500, 16, "fix", "--diff", *_BEFORE)(_reshapes)
_input("match: a long chain", 20_000, 32, "match", "negate(negate(any()))")(_chain)


# Archives


def _tarred(members: Iterable[tuple[str, bytes, bytes]], mode: str = "w") -> bytes:
    """An archive of members: a name, a type and a content."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode=mode, format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
        for name, kind, content in members:
            member = tarfile.TarInfo(name)
            member.type, member.size = kind, len(content)
            member.linkname = "../../../../etc/passwd" if kind != tarfile.REGTYPE else ""
            archive.addfile(member, io.BytesIO(content))
    return held.getvalue()


_input("files in an archive", 2_000, 32, file="dump.tar")(
    lambda size: _tarred((f"f{i}.hlo", tarfile.REGTYPE, _ONE.encode()) for i in range(size))
)


@_input("names, links and devices in an archive that lead out of it", 2_000, 32, file="dump.tar")
def _tar_links(size: int) -> bytes:
    kinds = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE
    links = [(f"f{i}.hlo", kinds[i % 4], b"") for i in range(size)]
    return _tarred(
        [*links, ("../up.hlo", tarfile.REGTYPE, b"x"), ("/top.hlo", tarfile.REGTYPE, b"x")]
    )


_input("names of N bytes in an archive", 500_000, file="dump.tar")(
    lambda size: _tarred([("d/" * (size // 2) + "f.hlo", tarfile.REGTYPE, b"")])
)


def _zeros_in_tar(size: int, compressor: Any) -> bytes:
    member = tarfile.TarInfo("f.hlo")
    member.size = size
    block = b"\0" * (1 << 16)
    parts = [compressor.compress(member.tobuf())]
    parts += [compressor.compress(block) for _ in range(size >> 16)]
    return b"".join((*parts, compressor.flush()))


_input("a gzipped archive of a file of N bytes", 1 << 28, 1 << 16, file="dump.tar.gz")(
    lambda size: _zeros_in_tar(size, zlib.compressobj(9, zlib.DEFLATED, 31))
)
_input("an archive in xz of a file of N bytes", 1 << 28, 1 << 16, file="dump.tar.xz")(
    lambda size: _zeros_in_tar(size, lzma.LZMACompressor(preset=1))
)


@_input("an archive in zstd of a file of N bytes", 1 << 28, 1 << 16, file="dump.tar.zst")
def _tar_zst(size: int) -> bytes:
    import zstandard

    return _zeros_in_tar(size, zstandard.ZstdCompressor(3).compressobj())


def _zipped(members: Mapping[str, bytes | str]) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return held.getvalue()


_input("files in a zip", 100, 8, file="dump.zip")(
    lambda size: _zipped({f"f{i}.hlo": _module(PARAMETER) for i in range(size)})
)


# Protocol buffers


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


@_input("messages in each other", 20_000, file="module.hlo.pb")
def _proto_nested(size: int) -> bytes:
    lengths = [0]
    for _ in range(size):
        lengths.append(lengths[-1] + 1 + len(_varint(lengths[-1])))
    return b"".join(b"\x0a" + _varint(length) for length in reversed(lengths[:-1]))


_input("groups in each other", 1_000_000, file="module.hlo.pb")(
    lambda size: b"\x0b" * size + b"\x0c" * size
)
_input("bytes of one number of a message", 1_000_000, file="module.hlo.pb")(
    lambda size: b"\x08" + b"\xff" * size + b"\x01"
)
_input("fields that promise 2^62 bytes", 200_000, file="module.hlo.pb")(
    lambda size: _field(1, (b"\x7a" + _varint(1 << 62)) * size)
)


@_input("instructions of a message that name no operand", 10_000, file="module.hlo.pb")
def _proto_instructions(size: int) -> bytes:
    one = _field(1, b"a") + _field(2, b"add") + b"\xa8\x02" + _varint(7) + b"\xa0\x02\xff\x7f"
    computation = _field(1, b"e") + _field(2, one) * size
    return _field(1, _field(1, b"m") + _field(2, b"e") + _field(3, computation))


# Baselines, reports and messages


_BASELINE = ("--baseline", "@/b.json", "@/f.hlo")


@_input("entries of a baseline", 50_000, 64, *STRICT, *_BASELINE)
def _baseline(size: int) -> dict[str, bytes | str]:
    entry = {"rule": "unreadable-text", "module": "m", "message": "x", "fingerprint": "0"}
    return {"b.json": json.dumps({"version": 2, "findings": [entry] * size}), "f.hlo": _ONE}


_input("a baseline, nested", 100_000, 64, "check", *_BASELINE)(
    lambda size: {"b.json": "[" * size + "]" * size, "f.hlo": _module(PARAMETER)}
)


def _message(size: int, part: str) -> str:
    text = _grown(part, size)
    return f"Content-Length: {len(text)}\r\n\r\n{text}"


_input("server: messages that are JSON, nested", 100_000, 64, "server")(
    lambda size: _message(size, "«[»«]»") + _message(size, '«{"a":»1«}»')
)
_table(
    str,
    (
        "server: a message of 2^62 bytes that does not come",
        1_000,
        f"Content-Length: {1 << 62}\r\n\r\n«{{»",
    ),
    (
        "server: lengths that are not those of the messages",
        5_000,
        '«Content-Length: 7\r\n\r\n{"jsonrpc": "2.0", "method": "x"}\r\n»',
    ),
    ("server: digits of a length", 100_000, "Content-Length: «9»\r\n\r\n{}"),
    ("server: a header that does not end", 1_000_000, "X: «a»"),
    ("server: messages without a method", 5_000, "«Content-Length: 2\r\n\r\n{}»"),
    arguments=("server",),
)


_RUN = ("run", "--inputs", "@/v.npz", "@/f.hlo")


@_input("run: a file of values that promises 2^62 of them", 1, 1, *_RUN)
def _npz(size: int) -> dict[str, bytes | str]:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({1 << 62},), }}".ljust(117)
    data = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + header.encode() + b"\n"
    return {"v.npz": _zipped({"p.npy": data}), "f.hlo": _ONE}


_DIFF = ("diff", "@/a.hlo", "@/b.hlo")


_input("diff: long chains", 20_000, 32, *_DIFF)(
    lambda size: {
        "a.hlo": _chain(size),
        "b.hlo": _chain(size).replace("negate(%a.7)", "exponential(%a.7)"),
    }
)
_input("diff: nothing alike", 10_000, 32, *_DIFF)(
    lambda size: {"a.hlo": _chain(size), "b.hlo": _chain(size).replace("negate", "exponential")}
)


@_input("diff: instructions that are all alike", 10_000, 32, *_DIFF)
def _diff_alike(size: int) -> dict[str, bytes | str]:
    alike = _grown("«  %a.@ = f32[8]{0} negate(%p)\n»", size)
    return {"a.hlo": _lines(alike), "b.hlo": _lines(f"{alike}  %b = f32[8]{{0}} negate(%p)\n")}


def _short_chains(size: int) -> dict[str, bytes | str]:
    return _passes(size, lambda i: _chain(i % 3))


_input("blame: reshapes", 1_000, 16, "check", "--blame")(
    lambda size: _passes(3, lambda i: _reshapes(size) if i else _chain(size))
)
_input("blame: many dumps", 500, 16, "check", "--blame")(
    lambda size: _passes(size, lambda i: _reshapes(4).replace("%r.0", f"%r.{i}x"))
)
_input("passes: long chains", 10_000, 32, "passes")(
    lambda size: _passes(
        3, lambda i: _chain(size).replace(f"negate(%a.{i})", f"exponential(%a.{i})")
    )
)
_input("passes: many dumps", 1_000, 16, "passes")(_short_chains)
_input("validate: a long chain", 3_000, 32, "validate")(
    lambda size: _passes(2, lambda i: _chain(size))
)


@_input("ranks: collectives of two processes", 2_000, 16, "ranks", "@/r0", "@/r1")
def _rank_files(size: int) -> dict[str, bytes | str]:
    reduced = f"all-reduce(%p), {_GROUPS}, channel_id="
    calls = _grown(f"«  %c.@ = f32[8]{{0}} {reduced}@+1\n»", size)
    text = _module(PARAMETER + calls + COPY, f"{_SCHEDULED}, num_partitions=2", _ADDER)
    apart = text.replace(f"{reduced}2\n", "copy(%p)\n")
    return {f"r0/{FINAL}": text, f"r1/{FINAL}": apart}


_input("run: a long chain", 10_000, 32, "run")(_chain)
_table(
    lambda shape: f"HloModule m\n\nENTRY e {{\n  ROOT i = {shape} iota(), iota_dimension=0\n}}\n",
    ("run: an array of 10^N elements", 15, "f32[10^N]{0}"),
    small=3,
    arguments=("run",),
)
_input("reduce: reshapes", 300, 8, "reduce", "-j", "2", "--finding", "reshape-moves-data")(
    _reshapes
)
_input("report: reshapes", 1_000, 16, "report", "-o", "/dev/null")(_reshapes)
_input("report: many dumps", 500, 16, "report", "-o", "/dev/null")(_short_chains)


@_input("bisect: many dumps", 200, 8, "bisect", "@/a", "@/b")
def _bisect(size: int) -> dict[str, bytes | str]:
    a = _passes(size, lambda i: _chain(50))
    b = _passes(size, lambda i: _chain(50 + (i > size // 2)))
    return {f"{name}/{file}": text for name, d in (("a", a), ("b", b)) for file, text in d.items()}


_LOOP = (
    "%c (v: f32[8]) -> pred[] {\n  %v = f32[8]{0} parameter(0)\n"
    '  ROOT %q = pred[] custom-call(%v), custom_call_target="q"\n}\n\n'
    "%l (x: f32[8]) -> f32[8] {\n  %x = f32[8]{0} parameter(0)\n"
    "  ROOT %n = f32[8]{0} negate(%x)\n}\n"
)
_KEPT = 'metadata={op_name="jit(f)/@"}, frontend_attributes={a="@"}'
STEPS = {
    "all-reduces with new names": (
        f"%r.@ = f32[8]{{0}} all-reduce(%p), channel_id=@, {_GROUPS}, {_KEPT}",
        f"%s.@ = f32[8]{{0}} all-reduce(%p), channel_id=9@, {_GROUPS}",
    ),
    "all-reduces that start": (
        f"%r.@ = f32[8]{{0}} all-reduce(%p), channel_id=@, {_GROUPS}, {_KEPT}",
        f"%s.@ = f32[8]{{0}} all-reduce-start(%p), channel_id=@, {_GROUPS}\n"
        "  %d.@ = f32[8]{0} all-reduce-done(%s.@)",
    ),
    "sends with new names": (
        "%t.@ = token[] after-all()\n"
        f"  %r.@ = (f32[8], u32[], token[]) send(%p, %t.@), channel_id=@, {_KEPT}",
        "%u.@ = token[] after-all()\n"
        "  %s.@ = (f32[8], u32[], token[]) send(%p, %u.@), channel_id=9@",
    ),
    "calls with effects that move": (
        '%r.@ = f32[8]{0} custom-call(%p), custom_call_target="t", '
        f"custom_call_has_side_effect=true, {_KEPT}",
        '%s.@ = f32[8]{0} custom-call(%b), custom_call_target="t", '
        "custom_call_has_side_effect=true",
    ),
    "loops with new names": (
        f"%r.@ = f32[8]{{0}} while(%p), condition=%c, body=%l, {_KEPT}",
        "%s.@ = f32[8]{0} while(%p), condition=%c, body=%l",
    ),
    "operands that change": (
        f"%r.@ = f32[8]{{0}} add(%p, %b), {_KEPT}",
        f"%r.@ = f32[8]{{0}} add(%b, %p), {_KEPT}",
    ),
    "instructions merged into two": (
        f"%r.@ = f32[8]{{0}} negate(%p), {_KEPT}\n  %m.@ = f32[8]{{0}} add(%r.@, %b)",
        "%m.@ = f32[8]{0} add(%b, %b)",
    ),
    "control predecessors that go": (
        f"%r.@ = f32[8]{{0}} all-reduce(%p), channel_id=@, {_GROUPS}, control-predecessors={{%b}}",
        f"%r.@ = f32[8]{{0}} all-reduce(%p), channel_id=@, {_GROUPS}",
    ),
}
"""The lines of an instruction before and after a pass, by what happens to it; `@` is its number."""


def _step(lines: tuple[str, str], size: int) -> dict[str, bytes | str]:
    begin = PARAMETER + "  %b = f32[8]{0} negate(%p)\n"
    bodies = [
        "".join(f"  {line.replace('@', str(number))}\n" for number in range(1, size + 1))
        for line in lines
    ]
    end = "  ROOT %e = f32[8]{0} copy(%p)\n"
    texts = [_module(begin + body + end, "", _ADDER + _LOOP) for body in bodies]
    return _passes(2, lambda i: texts[i])


def _of_command(command: str, lines: tuple[str, str], size: int) -> dict[str, bytes | str]:
    texts = list(_step(lines, size).values())
    if command == "compare":
        return {f"{name}/{FINAL}": text for name, text in zip("ab", texts, strict=True)}
    return {"a.hlo": texts[0], "b.hlo": texts[1]} if command == "diff" else _step(lines, size)


for _happening, _step_lines in STEPS.items():
    for _words in (
        ("check",),
        ("check", "--blame"),
        ("passes",),
        ("validate",),
        ("report", "-o", "/dev/null"),
        ("compare", "@/a", "@/b"),
        _DIFF,
    ):
        _input(f"{_words[0]}: {_happening}", 2_000, 32, *_words)(
            partial(_of_command, _words[0], _step_lines)
        )


@_input("compare: a chain without metadata", 4_000, 32, "compare", "@/a", "@/b")
def _compare_chain(size: int) -> dict[str, bytes | str]:
    text = _chain(size)
    return {f"a/{FINAL}": text, f"b/{FINAL}": text.replace("negate(%a.7)", "sine(%a.7)")}
