"""Hostile inputs: each grows along one axis.

`cost.py` measures the command line that reads one, `make hostile` writes the costs of all of them to
benchmarks/HOSTILE.md, and `test_growth.py` doubles small ones and counts calls.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

STRICT = ("check", "--strict")

Make = Callable[[int], "bytes | str | dict[str, bytes | str]"]


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
        if not isinstance(made, dict):
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


def _module(body: str, header: str = "", before: str = "") -> str:
    return f"HloModule m{header}\n{before}\nENTRY %e (p: f32[8]) -> f32[8] {{\n{body}}}\n"


PARAMETER = "  %p = f32[8]{0} parameter(0)\n"


# Graphs


@_input(
    "fusions that hold reshapes, before layout_normalization",
    1500,
    16,
    "check",
    "--before",
    "layout_normalization",
)
def _fusions(size: int) -> str:
    bodies = "".join(
        f"%f.{i} (q.{i}: f32[4000,600]) -> f32[600,4000] {{\n"
        f"  %q.{i} = f32[4000,600]{{0,1}} parameter(0)\n"
        f"  ROOT %r.{i} = f32[600,4000]{{0,1}} reshape(%q.{i})\n}}\n\n"
        for i in range(size)
    )
    calls = "".join(
        f"  %c.{i} = f32[600,4000]{{0,1}} fusion(%p), kind=kLoop, calls=%f.{i}\n"
        for i in range(size)
    )
    names = ", ".join(f"%c.{i}" for i in range(size))
    shapes = ", ".join(["f32[600,4000]{0,1}"] * size)
    return (
        f"HloModule m\n\n{bodies}ENTRY %e (p: f32[4000,600]) -> ({shapes}) {{\n"
        f"  %p = f32[4000,600]{{0,1}} parameter(0)\n{calls}  ROOT %t = ({shapes}) tuple({names})\n}}\n"
    )


@_input("reshapes that are findings", 3_000, 32)
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


@_input(
    "reshapes that are findings, before layout_normalization",
    4000,
    32,
    "check",
    "--before",
    "layout_normalization",
)
def _reshapes_before(size: int) -> str:
    return _reshapes(size)


@_input("an instruction that reads itself", 100_000)
def _reads_itself(size: int) -> str:
    return _module(PARAMETER + f"  ROOT %a = f32[8]{{0}} tuple({', '.join(['%a'] * size)})\n")


@_input("an operand read many times", 100_000)
def _reads_often(size: int) -> str:
    shapes = ", ".join(["f32[8]{0}"] * size)
    return _module(PARAMETER + f"  ROOT %t = ({shapes}) tuple({', '.join(['%p'] * size)})\n")


@_input("control predecessors", 100_000)
def _control(size: int) -> str:
    names = ", ".join(["%p"] * size)
    return _module(
        PARAMETER + f"  ROOT %a = f32[8]{{0}} negate(%p), control-predecessors={{{names}}}\n"
    )


@_input("a chain of control predecessors", 20_000)
def _control_chain(size: int) -> str:
    lines = [PARAMETER]
    for i in range(size):
        after = f", control-predecessors={{%a.{i - 1}}}" if i else ""
        lines.append(f"  %a.{i} = f32[8]{{0}} negate(%p){after}\n")
    return _module("".join(lines) + "  ROOT %r = f32[8]{0} copy(%p)\n")


@_input("a long chain of instructions", 50_000)
def _chain(size: int) -> str:
    lines = [PARAMETER]
    before = "p"
    for i in range(size):
        lines.append(f"  %a.{i} = f32[8]{{0}} negate(%{before})\n")
        before = f"a.{i}"
    return _module("".join(lines) + f"  ROOT %r = f32[8]{{0}} copy(%{before})\n")


@_input("a chain written backwards", 8_000)
def _backwards(size: int) -> str:
    lines = [f"  ROOT %r = f32[8]{{0}} copy(%a.{size - 1})\n"]
    for i in reversed(range(size)):
        lines.append(f"  %a.{i} = f32[8]{{0}} negate(%{f'a.{i - 1}' if i else 'p'})\n")
    return _module("".join(lines) + PARAMETER)


@_input("a cycle of instructions", 8_000)
def _cycle(size: int) -> str:
    lines = [PARAMETER]
    for i in range(size):
        lines.append(f"  %a.{i} = f32[8]{{0}} negate(%a.{(i + 1) % size})\n")
    return _module("".join(lines) + "  ROOT %r = f32[8]{0} copy(%p)\n", ", is_scheduled=true")


@_input("tuples in each other, by instructions", 2000, 16)
def _tuple_tower(size: int) -> str:
    # Each shape is as long as its depth: the text is quadratic, and what reads it is linear in it.
    lines = [PARAMETER]
    before, shape = "p", "f32[8]{0}"
    for i in range(size):
        shape = f"({shape})"
        lines.append(f"  %t.{i} = {shape} tuple(%{before})\n")
        before = f"t.{i}"
    return _module("".join(lines) + "  ROOT %r = f32[8]{0} copy(%p)\n")


@_input("copies of a wide tuple", 400, 8)
def _wide_tuples(size: int) -> str:
    shape = f"({', '.join(['f32[8]{0}'] * size)})"
    lines = [PARAMETER, f"  %t.0 = {shape} tuple({', '.join(['%p'] * size)})\n"]
    for i in range(size):
        lines.append(f"  %t.{i + 1} = {shape} copy(%t.{i})\n")
    return _module("".join(lines) + "  ROOT %r = f32[8]{0} copy(%p)\n")


@_input("asynchronous operations, all in flight", 10_000, 32)
def _in_flight(size: int) -> str:
    lines = [PARAMETER]
    for i in range(size):
        lines.append(f"  %s.{i} = (f32[8]{{0}}, f32[8]{{0}}, u32[]) copy-start(%p)\n")
    for i in range(size):
        lines.append(f"  %d.{i} = f32[8]{{0}} copy-done(%s.{i})\n")
    return _module("".join(lines) + "  ROOT %r = f32[8]{0} copy(%p)\n", ", is_scheduled=true")


@_input("send and recv of one channel", 5000, 32)
def _send_recv(size: int) -> str:
    lines = [PARAMETER, "  %k = token[] after-all()\n"]
    for i in range(size):
        pairs = f"frontend_attributes={{_xla_send_recv_source_target_pairs={{{{0,1}},{{1,{i}}}}}}}"
        lines.append(
            f"  %s.{i} = (f32[8]{{0}}, u32[], token[]) send(%p, %k), channel_id={i + 1}, {pairs}\n"
            f"  %v.{i} = (f32[8]{{0}}, u32[], token[]) recv(%k), channel_id={i + 1}, {pairs}\n"
            f"  %w.{i} = token[] send-done(%s.{i}), channel_id={i + 1}\n"
            f"  %x.{i} = (f32[8]{{0}}, token[]) recv-done(%v.{i}), channel_id={i + 1}\n"
        )
    return _module("".join(lines) + "  ROOT %r = f32[8]{0} copy(%p)\n", ", is_scheduled=true")


# Computations


@_input("computations that nothing calls", 20_000)
def _computations(size: int) -> str:
    body = "".join(
        f"%f.{i} (q: f32[8]) -> f32[8] {{\n  ROOT %q = f32[8]{{0}} parameter(0)\n}}\n"
        for i in range(size)
    )
    return _module("  ROOT %p = f32[8]{0} parameter(0)\n", before=body)


@_input("a chain of calls", 10_000)
def _calls(size: int) -> str:
    bodies = ["%f.0 (q: f32[8]) -> f32[8] {\n  ROOT %q = f32[8]{0} parameter(0)\n}\n"]
    for i in range(1, size):
        bodies.append(
            f"%f.{i} (q: f32[8]) -> f32[8] {{\n  %q = f32[8]{{0}} parameter(0)\n"
            f"  ROOT %c = f32[8]{{0}} call(%q), to_apply=%f.{i - 1}\n}}\n"
        )
    return _module(
        PARAMETER + f"  ROOT %c = f32[8]{{0}} call(%p), to_apply=%f.{size - 1}\n",
        before="".join(bodies),
    )


@_input("calls that double at each level", 5000, 32)
def _doubling(size: int) -> str:
    bodies = ["%f.0 (q: f32[8]) -> f32[8] {\n  ROOT %q = f32[8]{0} parameter(0)\n}\n"]
    for i in range(1, size):
        bodies.append(
            f"%f.{i} (q: f32[8]) -> f32[8] {{\n  %q = f32[8]{{0}} parameter(0)\n"
            f"  %b = f32[8]{{0}} call(%q), to_apply=%f.{i - 1}\n"
            f"  ROOT %c = f32[8]{{0}} call(%b), to_apply=%f.{i - 1}\n}}\n"
        )
    return _module(
        PARAMETER + f"  ROOT %c = f32[8]{{0}} call(%p), to_apply=%f.{size - 1}\n",
        before="".join(bodies),
    )


@_input("a cycle of calls", 10_000)
def _call_cycle(size: int) -> str:
    bodies = [
        f"%f.{i} (q: f32[8]) -> f32[8] {{\n  %q = f32[8]{{0}} parameter(0)\n"
        f"  ROOT %c = f32[8]{{0}} call(%q), to_apply=%f.{(i + 1) % size}\n}}\n"
        for i in range(size)
    ]
    return _module(
        PARAMETER + "  ROOT %c = f32[8]{0} call(%p), to_apply=%f.0\n", before="".join(bodies)
    )


@_input("loops in each other", 3000, 16)
def _loops(size: int) -> str:
    parts = [
        "%cond (q: f32[8]) -> pred[] {\n  %q = f32[8]{0} parameter(0)\n"
        "  ROOT %c = pred[] constant(false)\n}\n"
        "%b.0 (q: f32[8]) -> f32[8] {\n  ROOT %q = f32[8]{0} parameter(0)\n}\n"
    ]
    for i in range(1, size):
        parts.append(
            f"%b.{i} (q: f32[8]) -> f32[8] {{\n  %q = f32[8]{{0}} parameter(0)\n"
            f"  ROOT %w = f32[8]{{0}} while(%q), condition=%cond, body=%b.{i - 1}\n}}\n"
        )
    last = f"  ROOT %w = f32[8]{{0}} while(%p), condition=%cond, body=%b.{size - 1}\n"
    return _module(PARAMETER + last, before="".join(parts))


@_input("branches of a conditional", 50_000)
def _branches(size: int) -> str:
    names = ", ".join(["%f"] * size)
    operands = ", ".join(["%p"] * size)
    return _module(
        PARAMETER
        + "  %i = s32[] constant(0)\n"
        + f"  ROOT %c = f32[8]{{0}} conditional(%i, {operands}), branch_computations={{{names}}}\n",
        before="%f (q: f32[8]) -> f32[8] {\n  ROOT %q = f32[8]{0} parameter(0)\n}\n",
    )


@_input("many modules in one file", 10_000)
def _modules(size: int) -> str:
    return "".join(
        f"HloModule m{i}\n\nENTRY e {{\n  ROOT p = f32[8]{{0}} parameter(0)\n}}\n\n"
        for i in range(size)
    )


@_input("operands that are instructions, in each other", 10_000, 256)
def _nested_operands(size: int) -> str:
    return _module(
        f"  ROOT %r = f32[8]{{0}} {'negate(f32[8]{0} ' * size}parameter(0){')' * size}\n"
    )


@_input("computations written in each other", 2000, 16)
def _inline(size: int) -> str:
    begin = "ROOT c = f32[8]{0} call(), to_apply={ " * size
    return f"HloModule m\n\nENTRY e {{\n  {begin}ROOT x = f32[8]{{0}} iota(){' }' * size}\n}}\n"


# Headers and tables


@_input("aliases in a header", 100_000)
def _aliases(size: int) -> str:
    listed = ", ".join("{}: (0, {}, may-alias)" for i in range(size))
    return _module("  ROOT %p = f32[8]{0} parameter(0)\n", f", input_output_alias={{ {listed} }}")


@_input("distinct aliases in a header", 100_000)
def _aliases_apart(size: int) -> str:
    listed = ", ".join(f"{{{i}}}: ({i}, {{}}, may-alias)" for i in range(size))
    return _module("  ROOT %p = f32[8]{0} parameter(0)\n", f", input_output_alias={{ {listed} }}")


@_input("donors in a header", 100_000)
def _donors(size: int) -> str:
    listed = ", ".join(f"({i}, {{}})" for i in range(size))
    return _module("  ROOT %p = f32[8]{0} parameter(0)\n", f", buffer_donor={{ {listed} }}")


@_input("parameters in an entry layout", 50_000)
def _entry_layout(size: int) -> str:
    listed = ", ".join(["f32[8]{0}"] * size)
    header = f", entry_computation_layout={{({listed})->f32[8]{{0}}}}"
    return _module("  ROOT %p = f32[8]{0} parameter(0)\n", header)


@_input("parameters", 50_000)
def _parameters(size: int) -> str:
    signature = ", ".join(f"p.{i}: f32[8]" for i in range(size))
    lines = "".join(f"  %p.{i} = f32[8]{{0}} parameter({i})\n" for i in range(size))
    return (
        f"HloModule m\n\nENTRY %e ({signature}) -> f32[8] {{\n{lines}"
        "  ROOT %r = f32[8]{0} copy(%p.0)\n}\n"
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
    body = "".join(
        f'  %a.{i} = f32[8]{{0}} reshape(%p), metadata={{op_name="x" stack_frame_id={size}}}\n'
        for i in range(size)
    )
    return _module(PARAMETER + body + "  ROOT %r = f32[8]{0} copy(%p)\n", before="\n" + tables)


@_input("stack frames in a cycle", 20_000)
def _frame_cycle(size: int) -> str:
    return _frames(size).replace("parent_frame_id=1}", f"parent_frame_id={size}}}", 1)


@_input("rows of an origin table", 50_000)
def _origins(size: int) -> str:
    rows = "".join(f'  {{}} : {{"a.{i}"}}\n' for i in range(size))
    header = f", origin_recovery_table={{\n{rows}}}"
    return _module("  ROOT %p = f32[8]{0} parameter(0)\n", header)


@_input("a header of unknown attributes", 50_000)
def _header(size: int) -> str:
    return _module(
        "  ROOT %p = f32[8]{0} parameter(0)\n", "".join(f", a{i}=1" for i in range(size))
    )


# One line


@_input("findings on one line", 6_000, 32)
def _one_line(size: int) -> str:
    parts = ["%p = f32[4,6]{0,1} parameter(0)"]
    parts += [f"%r.{i} = f32[6,4]{{0,1}} reshape(%p)" for i in range(size)]
    parts.append("ROOT %z = f32[4,6]{0,1} copy(%p)")
    return "HloModule m ENTRY %e { " + " ".join(parts) + " }\n"


@_input("problems on one line", 6000, 32)
def _problems_on_a_line(size: int) -> str:
    parts = [f"%r.{i} = f32[8]{{0}} add(%p.{i})" for i in range(size)]
    return "HloModule m ENTRY %e { " + " ".join(parts) + " ROOT %z = f32[8]{0} copy(%p) }\n"


@_input("lines that cannot be read", 10_000)
def _unreadable(size: int) -> str:
    return _module(PARAMETER + "  %a = = (\n  good = f32[8]{0} negate(%p)\n" * size)


@_input("errors of the verifier", 5_000)
def _errors(size: int) -> str:
    lines = "".join(f"  %a.{i} = f32[9]{{0}} add(%p, %p)\n" for i in range(size))
    return _module(PARAMETER + lines + "  ROOT %r = f32[8]{0} copy(%p)\n")


@_input("instructions of one name", 5_000)
def _one_name(size: int) -> str:
    lines = "  %a = f32[8]{0} negate(%p)\n" * size
    return _module(PARAMETER + lines + "  ROOT %r = f32[8]{0} copy(%p)\n")


@_input("a name", 1_000_000)
def _name(size: int) -> str:
    name = "a" * size
    return _module(
        PARAMETER + f"  %{name} = f32[8]{{0}} negate(%p)\n  ROOT %r = f32[8]{{0}} copy(%{name})\n"
    )


@_input("an opcode", 1_000_000)
def _opcode(size: int) -> str:
    return _module(PARAMETER + f"  ROOT %r = f32[8]{{0}} {'a' * size}(%p)\n")


@_input("a comment", 10_000_000)
def _comment(size: int) -> str:
    return _module(PARAMETER + f"  ROOT %r = f32[8]{{0}} /*{'x' * size}*/ copy(%p)\n")


@_input("comments that open and never end", 100_000)
def _open_comments(size: int) -> str:
    return _module(PARAMETER + "  ROOT %r = f32[8]{0} copy(%p)" + " /* x" * size + "\n")


@_input("lines that open a comment and never end it", 50_000)
def _open_comment_lines(size: int) -> str:
    return _module(PARAMETER + "  /* %a = f32[8]{0} copy(%p)\n" * size)


@_input("strings that open and never end", 10_000)
def _open_strings(size: int) -> str:
    line = '  %a = f32[8]{0} copy(%p), metadata={op_name="x\n'
    return _module(PARAMETER + line * size)


@_input("lines that open a bracket and never close it", 10_000)
def _open_brackets(size: int) -> str:
    return _module(PARAMETER + "  %a = f32[8]{0} copy(%p), x={\n" * size)


@_input("white space", 10_000_000)
def _white(size: int) -> str:
    return _module(PARAMETER + f"  ROOT %r = f32[8]{{0}} {' ' * size}copy(%p)\n")


@_input("empty lines", 1_000_000)
def _empty_lines(size: int) -> str:
    return _module(PARAMETER + "\n" * size + "  ROOT %r = f32[8]{0} copy(%p)\n")


@_input("a line of a constant", 2_000_000)
def _constant(size: int) -> str:
    return _module(
        PARAMETER + f"  ROOT %c = f32[{size}]{{0}} constant({{{', '.join(['1'] * size)}}})\n"
    )


@_input("braces in a constant", 100_000)
def _constant_braces(size: int) -> str:
    return _module(PARAMETER + f"  ROOT %c = f32[8]{{0}} constant({'{' * size}{'}' * size})\n")


@_input("digits of a number", 1_000_000)
def _digits(size: int) -> str:
    nines = "9" * size
    return _module(
        f"  %p = f32[{nines}]{{{nines}}} parameter({nines})\n"
        f"  %c = f32[] constant({nines})\n  %i = s64[] constant({nines})\n"
        f"  ROOT %r = f32[8]{{0}} slice(%p), slice={{[{nines}:{nines}:{nines}]}}, channel_id={nines}\n"
    )


@_input("text of no language", 5_000_000)
def _garbage(size: int) -> bytes:
    return (b"\x00\xff(){}[]\"'/*%=,ROOT \n" * (size // 20))[:size]


@_input("NUL bytes", 20_000_000)
def _nul(size: int) -> bytes:
    return b"\0" * size


@_input("UTF-16", 1_000_000)
def _utf16(size: int) -> bytes:
    return _chain(size // 80).encode("utf-16")


@_input("marks of direction in names", 20_000)
def _rtl(size: int) -> str:
    lines = "".join(f"  %a\u202e{i} = f32[8]{{0}} negate(%p)\n" for i in range(size))
    return _module(PARAMETER + lines + "  ROOT %r = f32[8]{0} copy(%p)\n")


# Shapes and attributes


@_input("a shape of many dimensions", 100_000)
def _rank(size: int) -> str:
    ones = ",".join(["1"] * size)
    order = ",".join(map(str, reversed(range(size))))
    return _module(
        f"  %p = f32[{ones}]{{{order}}} parameter(0)\n"
        f"  %q = f32[{ones}]{{{order}}} negate(%p)\n  ROOT %r = f32[] reshape(%q)\n"
    )


@_input("a transpose of many dimensions", 20_000)
def _transpose(size: int) -> str:
    ones = ",".join(["1"] * size)
    order = ",".join(map(str, reversed(range(size))))
    return _module(
        f"  %p = f32[{ones}]{{{order}}} parameter(0)\n"
        f"  %q = f32[{ones}]{{{order}}} transpose(%p), dimensions={{{order}}}\n"
        f"  %b = f32[{ones}]{{{order}}} bitcast(%q)\n"
        f"  %s = f32[{ones}]{{{order}}} reshape(%q)\n"
        "  ROOT %r = f32[] reshape(%s)\n"
    )


@_input("dimensions of 2^62", 5000, 32)
def _huge_dims(size: int) -> str:
    dims = ",".join(["4611686018427387904"] * size)
    order = ",".join(map(str, reversed(range(size))))
    return _module(
        f"  %p = f32[{dims}]{{{order}}} parameter(0)\n"
        f"  %q = f32[{dims}]{{{order}}} negate(%p)\n  ROOT %r = f32[8]{{0}} reshape(%q)\n"
    )


@_input("a tuple in a tuple", 100_000)
def _deep_tuple(size: int) -> str:
    shape = f"{'(' * size}f32[8]{{0}}{')' * size}"
    return _module(f"  ROOT %p = {shape} parameter(0)\n")


@_input("elements of a tuple", 100_000)
def _wide_tuple(size: int) -> str:
    return _module(f"  ROOT %p = ({', '.join(['f32[8]{0}'] * size)}) parameter(0)\n")


@_input("tiles of a layout", 50_000)
def _tiles(size: int) -> str:
    return _module(f"  ROOT %p = f32[8]{{0:T{'(8)' * size}}} parameter(0)\n")


@_input("braces in an attribute", 100_000)
def _braces(size: int) -> str:
    return _module(PARAMETER + f"  ROOT %r = f32[8]{{0}} copy(%p), x={'{' * size}{'}' * size}\n")


@_input("braces in a frontend attribute", 100_000)
def _frontend_braces(size: int) -> str:
    value = "{" * size + "}" * size
    return _module(
        PARAMETER + f"  ROOT %r = f32[8]{{0}} copy(%p), frontend_attributes={{x={value}}}\n"
    )


@_input("frontend attributes", 50_000)
def _frontend(size: int) -> str:
    listed = ", ".join(f'x{i}="{i}"' for i in range(size))
    return _module(
        PARAMETER + f"  ROOT %r = f32[8]{{0}} copy(%p), frontend_attributes={{{listed}}}\n"
    )


@_input("attributes of an instruction", 4_000)
def _attributes(size: int) -> str:
    listed = ", ".join(f"a{i}={i}" for i in range(size))
    return _module(PARAMETER + f"  ROOT %r = f32[8]{{0}} copy(%p), {listed}\n")


@_input("braces in metadata", 100_000)
def _metadata_braces(size: int) -> str:
    value = "{" * size + "}" * size
    return _module(PARAMETER + f"  ROOT %r = f32[8]{{0}} copy(%p), metadata={value}\n")


@_input("braces in a sharding", 100_000)
def _sharding_braces(size: int) -> str:
    value = "{" * size + "}" * size
    return _module(PARAMETER + f"  ROOT %r = f32[8]{{0}} copy(%p), sharding={value}\n")


@_input("braces in an origin", 100_000)
def _origin_braces(size: int) -> str:
    value = "{" * size + "}" * size
    return _module(PARAMETER + f"  ROOT %r = f32[8]{{0}} copy(%p), origin={value}\n")


@_input("elements of a sharding", 20_000)
def _shardings(size: int) -> str:
    value = ", ".join(["{devices=[2]<=[2]}"] * size)
    return _module(PARAMETER + f"  ROOT %r = f32[8]{{0}} copy(%p), sharding={{{value}}}\n")


@_input("a sharding over 10^N devices", 30, 4)
def _devices(size: int) -> str:
    n = 10**size
    return _module(
        PARAMETER + f"  ROOT %r = f32[8]{{0}} copy(%p), sharding={{devices=[{n}]<=[{n}]}}\n"
    )


@_input("a sharding over 10^N devices on a mesh", 18, 4)
def _mesh(size: int) -> str:
    n = 10**size
    return _module(
        PARAMETER + f"  ROOT %r = f32[8]{{0}} copy(%p), sharding={{mesh['x'={n}], [{{'x'}}]}}\n"
    )


@_input("axes of a mesh", 20_000)
def _axes(size: int) -> str:
    axes = ",".join(f"'x{i}'=2" for i in range(size))
    used = ",".join(f"'x{i}'" for i in range(size))
    return _module(
        PARAMETER + f"  ROOT %r = f32[8]{{0}} copy(%p), sharding={{mesh[{axes}], [{{{used}}}]}}\n"
    )


def _all_reduce(groups: str, header: str = "") -> str:
    return _module(
        PARAMETER
        + f"  ROOT %r = f32[8]{{0}} all-reduce(%p), replica_groups={groups}, to_apply=%add, channel_id=1, use_global_device_ids=true\n",
        header,
        "%add (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n"
        "  %b = f32[] parameter(1)\n  ROOT %s = f32[] add(%a, %b)\n}\n",
    )


@_input("replica groups", 100_000)
def _groups(size: int) -> str:
    groups = ",".join(f"{{{2 * i},{2 * i + 1}}}" for i in range(size))
    return _all_reduce(f"{{{groups}}}", f", replica_count={2 * size}")


@_input("replica groups of 10^N devices", 18, 4)
def _iota(size: int) -> str:
    n = 10**size
    return _all_reduce(f"[1,{n}]<=[{n}]", f", num_partitions={n}")


@_input("replica groups on a mesh of 10^N devices", 18, 4)
def _mesh_groups(size: int) -> str:
    n = 10**size
    return _all_reduce(f"mesh['x'={n}] {{'x'}}", f", num_partitions={n}")


@_input("10^N replicas", 18, 4)
def _replicas(size: int) -> str:
    n = 10**size
    return _all_reduce("{}", f", replica_count={n}, num_partitions={n}")


@_input("collectives over 10^N devices that do not meet", 9, 3)
def _ranks(size: int) -> str:
    n = 10**size
    text = _all_reduce(f"[{n // 2},2]<=[{n}]", f", num_partitions={n}")
    again = f"  %r = f32[8]{{0}} all-reduce(%p), replica_groups=[2,{n // 2}]<=[{n}], to_apply=%add, channel_id=2, use_global_device_ids=true\n"
    return text.replace("  ROOT %r", again + "  ROOT %t")


@_input("pairs of a collective-permute", 50_000)
def _pairs(size: int) -> str:
    pairs = ",".join(f"{{{i},{i + 1}}}" for i in range(size))
    return _module(
        PARAMETER
        + f"  ROOT %r = f32[8]{{0}} collective-permute(%p), source_target_pairs={{{pairs}}}\n",
        f", num_partitions={size + 1}",
    )


@_input("JSON in a backend_config, nested", 100_000)
def _json(size: int) -> str:
    value = '{"a":' * size + "1" + "}" * size
    return _module(PARAMETER + f"  ROOT %r = f32[8]{{0}} copy(%p), backend_config={value}\n")


@_input("JSON arrays in a backend_config, nested", 100_000)
def _json_arrays(size: int) -> str:
    value = '{"a":' + "[" * size + "]" * size + "}"
    return _module(PARAMETER + f"  ROOT %r = f32[8]{{0}} copy(%p), backend_config={value}\n")


@_input("MLIR in a backend_config, nested", 100_000)
def _mlir(size: int) -> str:
    value = "{a = " * size + "1" + "}" * size
    return _module(
        PARAMETER
        + '  ROOT %r = f32[8]{0} custom-call(%p), custom_call_target="x", '
        + f"api_version=API_VERSION_TYPED_FFI, backend_config={value}\n"
    )


@_input("a window of many dimensions", 20_000)
def _window(size: int) -> str:
    sizes = "x".join(["1"] * size)
    ones = ",".join(["1"] * size)
    order = ",".join(map(str, reversed(range(size))))
    return _module(
        f"  %p = f32[{ones}]{{{order}}} parameter(0)\n  %z = f32[] constant(0)\n"
        f"  ROOT %r = f32[{ones}]{{{order}}} reduce-window(%p, %z), window={{size={sizes}}}, to_apply=%add\n",
        before="%add (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n"
        "  %b = f32[] parameter(1)\n  ROOT %s = f32[] add(%a, %b)\n}\n",
    )


@_input("quotes in a backend_config", 500_000)
def _quotes(size: int) -> str:
    escaped = '\\"' * size
    return _module(PARAMETER + f'  ROOT %r = f32[8]{{0}} copy(%p), backend_config="{escaped}"\n')


@_input("parentheses in an operand list", 100_000, 128)
def _parentheses(size: int) -> str:
    return _module(PARAMETER + f"  ROOT %r = f32[8]{{0}} copy({'(' * size}%p{')' * size})\n")


# Comments to us


@_input("comments that allow", 5_000)
def _allowances(size: int) -> str:
    lines = "".join(
        f"  // hlo-lint: allow reshape-moves-data -- {i}\n  %a.{i} = f32[8]{{0}} negate(%p)\n"
        for i in range(size)
    )
    return _module(PARAMETER + lines + "  ROOT %r = f32[8]{0} copy(%p)\n")


@_input("rules that a comment allows", 50_000)
def _allowed_rules(size: int) -> str:
    names = ", ".join(f"no-such-rule-{i}" for i in range(size))
    return _module(PARAMETER + f"  // hlo-lint: allow {names}\n  ROOT %r = f32[8]{{0}} copy(%p)\n")


# Custom calls


def _custom_call(target: str, config: str) -> str:
    return _module(
        PARAMETER
        + f'  ROOT %r = f32[8]{{0}} custom-call(%p), custom_call_target="{target}", '
        + f'backend_config="{config}"\n'
    )


def _spelled(data: bytes) -> str:
    return "".join(f"\\{byte:03o}" for byte in data)


@_input("a zlib stream that inflates to N bytes", 1 << 30, 1 << 16)
def _zlib_bomb(size: int) -> str:
    compressor = zlib.compressobj(9)
    block = b"\0" * (1 << 20)
    data = b"".join(compressor.compress(block) for _ in range(max(1, size >> 20)))
    return _custom_call("__gpu$xla.gpu.triton", _spelled(data + compressor.flush()))


@_input("a zlib stream of the old Triton call that inflates to N bytes", 1 << 30, 1 << 16)
def _zlib_old(size: int) -> str:
    compressor = zlib.compressobj(9)
    block = b"\0" * (1 << 20)
    data = b"".join(compressor.compress(block) for _ in range(max(1, size >> 20)))
    return _custom_call("triton_kernel_call", _spelled(data + compressor.flush()))


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


@_input(
    "a gzip of N bytes", 1 << 30, 1 << 16, file="module_0001.jit_f.before_optimizations.hlo.pb.gz"
)
def _gzip(size: int) -> bytes:
    return _gzipped(size)


@_input(
    "a gzipped text of N bytes",
    1 << 30,
    1 << 16,
    file="module_0001.jit_f.before_optimizations.txt.gz",
)
def _gzip_text(size: int) -> bytes:
    return _gzipped(size)


# Files of a dump


@_input("PTX, registers in a chain", 20_000, file="kernel.ptx")
def _ptx(size: int) -> str:
    body = "".join(f"\tadd.u64 %rd{i + 1}, %rd{i}, 1;\n" for i in range(size))
    return _kernel(body + f"\tcp.async.cg.shared.global [%rd{size}], [%rd{size}], 16;\n")


@_input("PTX, copies", 20_000, file="kernel.ptx")
def _ptx_copies(size: int) -> str:
    body = "".join(
        f"\tcp.async.cg.shared.global [%rd{i % 7}], [%rd0], 16;\n\tcp.async.commit_group;\n"
        for i in range(size)
    )
    return _kernel(body)


@_input("PTX, labels", 20_000, file="kernel.ptx")
def _ptx_labels(size: int) -> str:
    body = "".join(
        f"$L{i}:\n\tcp.async.cg.shared.global [%rd{i % 7}], [%rd0], 16;\n\t@%p0 bra $L{(i * 7) % size};\n"
        for i in range(size)
    )
    return _kernel(body)


@_input("PTX, braces", 100_000, file="kernel.ptx")
def _ptx_braces(size: int) -> str:
    return _kernel("{" * size + "}" * size)


def _kernel(body: str) -> str:
    return (
        ".version 8.0\n.target sm_90\n.address_size 64\n\n.visible .entry f()\n{\n"
        "\t.reg .b64 %rd<9>;\n\t.reg .pred %p<2>;\n" + body + "\tret;\n}\n"
    )


FINAL = "module_0001.jit_f.sm_9.0_gpu_after_optimizations.txt"
ASSIGNMENT = "module_0001.jit_f.sm_9.0_gpu_after_optimizations-buffer-assignment.txt"


def _final(size: int) -> str:
    lines = [PARAMETER]
    lines += [f"  %a.{i} = f32[8]{{0}} negate(%p)\n" for i in range(size)]
    return _module("".join(lines) + "  ROOT %r = f32[8]{0} copy(%p)\n", ", is_scheduled=true")


@_input("a buffer assignment with values that overlap", 1_000, 32)
def _buffers(size: int) -> dict[str, bytes | str]:
    values = "".join(
        f" value: <{i} a.{i} @0> (size={10**18 + i},offset={i}): f32[8]{{0}}\n" for i in range(size)
    )
    head = "BufferAssignment:\nallocation 0: size 8, preallocated-temp:\n"
    return {FINAL: _final(size), ASSIGNMENT: head + values}


@_input("a buffer assignment of many allocations", 4_000)
def _allocations(size: int) -> dict[str, bytes | str]:
    text = "".join(
        f"allocation {i}: size {-i}, maybe-live-out:\n value: <{i} a.{i} @0> (size={i},offset=0): f32[8]{{0}}\n"
        for i in range(size)
    )
    return {FINAL: _final(size), ASSIGNMENT: f"BufferAssignment:\n{text}"}


@_input("an autotuning log, nested", 100_000, file="autotune.textproto")
def _autotuning(size: int) -> str:
    return "version: 3\nlogs { results { " + "a { " * size + "} " * size + "} }\n"


@_input("results of an autotuning log", 20_000, file="autotune.textproto")
def _autotuning_results(size: int) -> str:
    entries = "".join(
        f'results {{ device: "x" hlo: "h{i}" result {{ gemm {{ algorithm: {10**30} }} run_time {{ nanos: {10**30} }} }} }}\n'
        for i in range(size)
    )
    return f"version: 3\n{entries}"


@_input("a log of tensor descriptors", 1_500, 32, file="log.txt")
def _tma(size: int) -> str:
    return (
        "TMA Desc Addr:   0x7ffd\nformat         0\ndim            2\ngmem_address   0x7f\n"
        "globalDim      (4096,4096,1,1,1)\nglobalStrides  (2,8192,0,0,0)\n"
        "boxDim         (64,128,1,1,1)\nelementStrides (1,1,1,1,1)\ninterleave     0\n"
        "swizzle        3\nl2Promotion    2\noobFill        0\n"
    ) * size


# Folders


@_input("files in a folder", 100_000, 32)
def _files(size: int) -> dict[str, bytes | str]:
    return {f"notes{i}": "" for i in range(size)}


@_input("HLO files in a folder", 1_000, 32)
def _hlo_files(size: int) -> dict[str, bytes | str]:
    return {
        f"f{i}.hlo": _module("  ROOT %p = f32[8]{0} parameter(0)\n") + f"// {i}\n"
        for i in range(size)
    }


@_input("dumps of one module", 1_000, 32)
def _dumps(size: int) -> dict[str, bytes | str]:
    return {
        f"module_0001.jit_f.{i:04d}.pipeline.after_pass{i}.before_pass{i + 1}.txt": _module(
            f"  %p = f32[8]{{0}} parameter(0)\n  ROOT %r.{i} = f32[8]{{0}} negate(%p)\n"
        )
        for i in range(size)
    }


@_input("dumps of many modules", 1_000, 32)
def _pipelines(size: int) -> dict[str, bytes | str]:
    return {
        f"module_{i:04d}.jit_f{i}.before_optimizations.txt": _module(
            "  ROOT %p = f32[8]{0} parameter(0)\n"
        )
        for i in range(size)
    }


@_input("folders in each other", 400, 8)
def _folders(size: int) -> dict[str, bytes | str]:
    return {"/".join(["d"] * size) + "/f.hlo": _module("  ROOT %p = f32[8]{0} parameter(0)\n")}


@_input("links to /dev/zero, to themselves and to each other", 100, 4)
def _links(size: int) -> dict[str, bytes | str]:
    links: dict[str, bytes | str] = {}
    for i in range(size):
        links[f"zero{i}.hlo"] = "-> /dev/zero"
        links[f"self{i}.hlo"] = f"-> self{i}.hlo"
        links[f"up{i}"] = "-> .."
    return links


@_input("names of 255 bytes", 500, 32)
def _long_names(size: int) -> dict[str, bytes | str]:
    return {
        f"{i:04d}{'n' * 247}.hlo": _module("  ROOT %p = f32[8]{0} parameter(0)\n")
        for i in range(size)
    }


# Settings


@_input("digits of a setting", 100_000)
def _setting_digits(size: int) -> dict[str, bytes | str]:
    return {"hlo_lint.toml": f"jobs = -{'9' * size}\n", "f.hlo": ""}


@_input("arrays in a setting, nested", 100_000)
def _setting_arrays(size: int) -> dict[str, bytes | str]:
    return {"hlo_lint.toml": f"select = {'[' * size}{']' * size}\n", "f.hlo": ""}


@_input("keys of a settings file", 50_000)
def _setting_keys(size: int) -> dict[str, bytes | str]:
    keys = "".join(f"a{i} = 1\n" for i in range(size))
    return {"hlo_lint.toml": keys, "f.hlo": ""}


@_input("dotted keys of a settings file", 5000, 32)
def _setting_dots(size: int) -> dict[str, bytes | str]:
    return {"hlo_lint.toml": ".".join(["a"] * size) + " = 1\n", "f.hlo": ""}


@_input("patterns in a setting", 5000, 32)
def _setting_patterns(size: int) -> dict[str, bytes | str]:
    listed = ", ".join(f'"**/*a*{i}*"' for i in range(size))
    return {"hlo_lint.toml": f"exclude = [{listed}]\n", f"{'a' * 200}.hlo": _module(PARAMETER)}


# Other commands


@_input("fix: reshapes", 500, 16, "fix", "--diff", "--before", "layout_normalization")
def _fix(size: int) -> str:
    return _reshapes(size)


@_input("match: a long chain", 20_000, 32, "match", "negate(negate(any()))")
def _match(size: int) -> str:
    return _chain(size)


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


@_input("files in an archive", 2_000, 32, file="dump.tar")
def _tar_files(size: int) -> bytes:
    text = _module("  ROOT %p = f32[8]{0} parameter(0)\n").encode()
    return _tarred((f"f{i}.hlo", tarfile.REGTYPE, text) for i in range(size))


@_input("names, links and devices in an archive that lead out of it", 2_000, 32, file="dump.tar")
def _tar_links(size: int) -> bytes:
    kinds = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE
    links = [(f"f{i}.hlo", kinds[i % 4], b"") for i in range(size)]
    return _tarred(
        [*links, ("../up.hlo", tarfile.REGTYPE, b"x"), ("/top.hlo", tarfile.REGTYPE, b"x")]
    )


@_input("names of N bytes in an archive", 500_000, file="dump.tar")
def _tar_name(size: int) -> bytes:
    return _tarred([("d/" * (size // 2) + "f.hlo", tarfile.REGTYPE, b"")])


def _zeros_in_tar(size: int, compressor: Any) -> bytes:
    member = tarfile.TarInfo("f.hlo")
    member.size = size
    block = b"\0" * (1 << 16)
    parts = [compressor.compress(member.tobuf())]
    parts += [compressor.compress(block) for _ in range(size >> 16)]
    return b"".join((*parts, compressor.flush()))


@_input("a gzipped archive of a file of N bytes", 1 << 28, 1 << 16, file="dump.tar.gz")
def _tar_gz(size: int) -> bytes:
    return _zeros_in_tar(size, zlib.compressobj(9, zlib.DEFLATED, 31))


@_input("an archive in xz of a file of N bytes", 1 << 28, 1 << 16, file="dump.tar.xz")
def _tar_xz(size: int) -> bytes:
    return _zeros_in_tar(size, lzma.LZMACompressor(preset=1))


@_input("an archive in zstd of a file of N bytes", 1 << 28, 1 << 16, file="dump.tar.zst")
def _tar_zst(size: int) -> bytes:
    import zstandard

    return _zeros_in_tar(size, zstandard.ZstdCompressor(3).compressobj())


@_input("files in a zip", 100, 8, file="dump.zip")
def _zip(size: int) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for i in range(size):
            archive.writestr(f"f{i}.hlo", _module(PARAMETER))
    return held.getvalue()


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


@_input("groups in each other", 1_000_000, file="module.hlo.pb")
def _proto_groups(size: int) -> bytes:
    return b"\x0b" * size + b"\x0c" * size


@_input("bytes of one number of a message", 1_000_000, file="module.hlo.pb")
def _proto_digits(size: int) -> bytes:
    return b"\x08" + b"\xff" * size + b"\x01"


@_input("fields that promise 2^62 bytes", 200_000, file="module.hlo.pb")
def _proto_promise(size: int) -> bytes:
    return _field(1, (b"\x7a" + _varint(1 << 62)) * size)


@_input("instructions of a message that name no operand", 10_000, file="module.hlo.pb")
def _proto_instructions(size: int) -> bytes:
    one = _field(1, b"a") + _field(2, b"add") + b"\xa8\x02" + _varint(7) + b"\xa0\x02\xff\x7f"
    computation = _field(1, b"e") + _field(2, one) * size
    return _field(1, _field(1, b"m") + _field(2, b"e") + _field(3, computation))


@_input("a text of a message, nested", 100_000, file="module.hlo.pbtxt")
def _pbtxt(size: int) -> str:
    return "hlo_module { computations { " + "a { " * size + "} " * size + "} }\n"


# Files beside a dump


def _beside(ending: str, text: str) -> dict[str, bytes | str]:
    return {FINAL: _final(2), FINAL.removesuffix(".txt") + ending: text}


@_input("buffer values in each other", 100_000)
def _values(size: int) -> dict[str, bytes | str]:
    return _beside(
        "-buffer-assignment-values.txt",
        f"HloDataflowAnalysis, module m\n  Instruction value sets:\n    a.1 {'{' * size}{'}' * size}:\n",
    )


@_input("debug options of a dump", 50_000)
def _debug_options(size: int) -> dict[str, bytes | str]:
    return {FINAL: _final(2), "module_0001.jit_f.debug_options": "xla_a: true\n" * size}


@_input("metadata of a module, nested", 100_000)
def _metadata(size: int) -> dict[str, bytes | str]:
    text = "pass_metadata { " * size + "} " * size
    return {FINAL: _final(2), "module_0001.metadata.textproto": text}


@_input("PTX, one line", 5_000_000, file="kernel.ptx")
def _ptx_line(size: int) -> str:
    return _kernel("/*" + "a" * size + "*/ " + "\t;" * (size // 10))


# Baselines, reports and messages


@_input(
    "entries of a baseline", 50_000, 64, "check", "--strict", "--baseline", "@/b.json", "@/f.hlo"
)
def _baseline(size: int) -> dict[str, bytes | str]:
    entry = {"rule": "unreadable-text", "module": "m", "message": "x", "fingerprint": "0"}
    return {
        "b.json": json.dumps({"version": 2, "findings": [entry] * size}),
        "f.hlo": _module("  ROOT %p = f32[8]{0} parameter(0)\n"),
    }


@_input("a baseline, nested", 100_000, 64, "check", "--baseline", "@/b.json", "@/f.hlo")
def _baseline_nested(size: int) -> dict[str, bytes | str]:
    return {"b.json": "[" * size + "]" * size, "f.hlo": _module(PARAMETER)}


@_input("server: a message of 2^62 bytes that does not come", 1_000, 64, "server")
def _message_length(size: int) -> str:
    return f"Content-Length: {1 << 62}\r\n\r\n" + "{" * size


@_input("server: messages that are JSON, nested", 100_000, 64, "server")
def _message_nested(size: int) -> str:
    return _message("[" * size + "]" * size) + _message('{"a":' * size + "1" + "}" * size)


@_input("server: lengths that are not those of the messages", 5_000, 64, "server")
def _message_wrong(size: int) -> str:
    return 'Content-Length: 7\r\n\r\n{"jsonrpc": "2.0", "method": "x"}\r\n' * size


@_input("server: digits of a length", 100_000, 64, "server")
def _message_digits(size: int) -> str:
    return f"Content-Length: {'9' * size}\r\n\r\n{{}}"


@_input("server: a header that does not end", 1_000_000, 64, "server")
def _message_header(size: int) -> str:
    return "X: " + "a" * size


@_input("server: messages without a method", 5_000, 64, "server")
def _message_empty(size: int) -> str:
    return _message("{}") * size


def _message(text: str) -> str:
    return f"Content-Length: {len(text)}\r\n\r\n{text}"


@_input(
    "run: a file of values that promises 2^62 of them",
    1,
    1,
    "run",
    "--inputs",
    "@/v.npz",
    "@/f.hlo",
)
def _npz(size: int) -> dict[str, bytes | str]:
    header = (
        f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({1 << 62},), }}".ljust(117) + "\n"
    )
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr(
            "p.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
        )
    return {"v.npz": held.getvalue(), "f.hlo": _module("  ROOT %p = f32[8]{0} parameter(0)\n")}


@_input("diff: long chains", 20_000, 32, "diff", "@/a.hlo", "@/b.hlo")
def _diff(size: int) -> dict[str, bytes | str]:
    return {
        "a.hlo": _chain(size),
        "b.hlo": _chain(size).replace("negate(%a.7)", "exponential(%a.7)"),
    }


@_input("diff: nothing alike", 10_000, 32, "diff", "@/a.hlo", "@/b.hlo")
def _diff_apart(size: int) -> dict[str, bytes | str]:
    return {"a.hlo": _chain(size), "b.hlo": _chain(size).replace("negate", "exponential")}


@_input("diff: instructions that are all alike", 10_000, 32, "diff", "@/a.hlo", "@/b.hlo")
def _diff_alike(size: int) -> dict[str, bytes | str]:
    alike = "".join(f"  %a.{i} = f32[8]{{0}} negate(%p)\n" for i in range(size))
    return {
        name: _module(PARAMETER + alike * 1 + end + "  ROOT %r = f32[8]{0} copy(%p)\n")
        for name, end in (("a.hlo", ""), ("b.hlo", "  %b = f32[8]{0} negate(%p)\n"))
    }


def _passes(size: int, body: Callable[[int], str]) -> dict[str, bytes | str]:
    return {
        f"module_0001.jit_f.{i:04d}.pipeline.after_pass{i}.before_pass{i + 1}.txt": body(i)
        for i in range(size)
    }


def _two_passes(size: int) -> dict[str, bytes | str]:
    return _passes(3, lambda i: _reshapes(size) if i else _chain(size))


@_input("blame: reshapes", 1_000, 16, "check", "--blame")
def _blame(size: int) -> dict[str, bytes | str]:
    return _two_passes(size)


@_input("blame: many dumps", 500, 16, "check", "--blame")
def _blame_dumps(size: int) -> dict[str, bytes | str]:
    return _passes(size, lambda i: _reshapes(4).replace("%r.0", f"%r.{i}x"))


@_input("passes: long chains", 10_000, 32, "passes")
def _passes_chain(size: int) -> dict[str, bytes | str]:
    return _passes(3, lambda i: _chain(size).replace(f"negate(%a.{i})", f"exponential(%a.{i})"))


@_input("passes: many dumps", 1_000, 16, "passes")
def _passes_many(size: int) -> dict[str, bytes | str]:
    return _passes(size, lambda i: _chain(i % 3))


@_input("validate: a long chain", 3_000, 32, "validate")
def _validate(size: int) -> dict[str, bytes | str]:
    return _passes(2, lambda i: _chain(size))


@_input("ranks: collectives of two processes", 2_000, 16, "ranks", "@/r0", "@/r1")
def _rank_files(size: int) -> dict[str, bytes | str]:
    calls = "".join(
        f"  %c.{i} = f32[8]{{0}} all-reduce(%p), replica_groups={{{{0,1}}}}, to_apply=%add, channel_id={i + 1}\n"
        for i in range(size)
    )
    text = _module(
        PARAMETER + calls + "  ROOT %r = f32[8]{0} copy(%p)\n",
        ", is_scheduled=true, num_partitions=2",
        _ADDER,
    )
    apart = text.replace(
        "all-reduce(%p), replica_groups={{0,1}}, to_apply=%add, channel_id=2\n", "copy(%p)\n"
    )
    return {f"r0/{FINAL}": text, f"r1/{FINAL}": apart}


@_input("run: a long chain", 10_000, 32, "run")
def _run(size: int) -> str:
    return _chain(size)


@_input("run: an array of 10^N elements", 15, 3, "run")
def _run_large(size: int) -> str:
    return f"HloModule m\n\nENTRY %e () -> f32[{10**size}] {{\n  ROOT %i = f32[{10**size}]{{0}} iota(), iota_dimension=0\n}}\n"


@_input("reduce: reshapes", 300, 8, "reduce", "-j", "2", "--finding", "reshape-moves-data")
def _reduce(size: int) -> str:
    return _reshapes(size)


@_input("report: reshapes", 1_000, 16, "report", "-o", "/dev/null")
def _report(size: int) -> str:
    return _reshapes(size)


@_input("report: many dumps", 500, 16, "report", "-o", "/dev/null")
def _report_dumps(size: int) -> dict[str, bytes | str]:
    return _passes(size, lambda i: _chain(i % 3))


@_input("bisect: many dumps", 200, 8, "bisect", "@/a", "@/b")
def _bisect(size: int) -> dict[str, bytes | str]:
    a, b = (
        _passes(size, lambda i: _chain(50)),
        _passes(size, lambda i: _chain(50 + (i > size // 2))),
    )
    return {f"{name}/{file}": text for name, d in (("a", a), ("b", b)) for file, text in d.items()}


_ADDER = (
    "%add (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n"
    "  %b = f32[] parameter(1)\n  ROOT %s = f32[] add(%a, %b)\n}\n"
)
_LOOP = (
    "%c (v: f32[8]) -> pred[] {\n  %v = f32[8]{0} parameter(0)\n"
    '  ROOT %q = pred[] custom-call(%v), custom_call_target="q"\n}\n\n'
    "%l (x: f32[8]) -> f32[8] {\n  %x = f32[8]{0} parameter(0)\n"
    "  ROOT %n = f32[8]{0} negate(%x)\n}\n"
)
_GROUPS = "replica_groups={{0,1}}, to_apply=%add"
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
        ("diff", "@/a.hlo", "@/b.hlo"),
    ):
        _input(f"{_words[0]}: {_happening}", 2_000, 32, *_words)(
            partial(_of_command, _words[0], _step_lines)
        )


@_input("compare: a chain without metadata", 4_000, 32, "compare", "@/a", "@/b")
def _compare_chain(size: int) -> dict[str, bytes | str]:
    text = _chain(size)
    return {f"a/{FINAL}": text, f"b/{FINAL}": text.replace("negate(%a.7)", "sine(%a.7)")}
