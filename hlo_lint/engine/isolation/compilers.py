"""Compilers of single kernels: XLA:CPU, a GPU of this machine, a chip that is absent."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from hlo_lint.engine.isolation.cut import KernelCut, emitter_of, kernels_of, with_calls
from hlo_lint.engine.reduce.draft import Draft, DraftComputation, DraftInstruction
from hlo_lint.engine.values.lowering.emit import NATIVE, emit_graph
from hlo_lint.engine.values.lowering.graph import Nodes, NotLowered
from hlo_lint.engine.values.lowering.lower import Lowering
from hlo_lint.hlo.dtypes import BITS
from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.opcodes import BINARY, CONTROL_FLOW, NO_KERNEL
from hlo_lint.hlo.parser.literals import AnyArray
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.hlo.shape import ArrayShape, TupleShape, arrays, shape_or_none
from hlo_lint.text.source import decode, encode
from hlo_lint.xla.child import ChildDied, ChildError
from hlo_lint.xla.compiler import Ending, XlaCompiler
from hlo_lint.xla.cpu import (
    NotRun,
    XlaCpu,
    devices_of,
    final_text,
    pack_arrays,
    run_code,
    run_text,
    unpack_arrays,
)

WITHOUT_PASSES: Final = "xla_disable_all_hlo_passes"
"""The flag with which XLA emits a module as it stands."""
_NO_FLAGS: Final = "Flag parsing failed"
_ROUND_TRIP: Final = "[hlo verifier]"
"""The words of a refusal of a module that StableHLO's folders changed."""


class _Source(NamedTuple):
    """The text of a kernel for a compiler that reads StableHLO."""

    text: str
    flags: dict[str, Any]
    leaves: Sequence[int] | None = None
    """The parameters that it takes; None for all."""


class RunningKernels:
    """Kernels that XLA:CPU or the GPU of this machine compiles and runs.

    They reach the compiler as StableHLO, which has neither the layouts and element sizes inside of
    a module nor the configuration of a fusion, and whose folders may change an operation. A kernel
    that StableHLO does not keep is compiled from its operations, with all passes, and counts only
    if they make the same kernel of it.
    """

    runs = True

    def __init__(self, xla: XlaCpu, flags: Mapping[str, Any], *, is_cpu: bool = True) -> None:
        self._xla, self._flags = xla, dict(flags)
        self._is_cpu = is_cpu
        self._sources: dict[KernelCut, _Source] = {}
        """The texts of the kernels that compiled."""

    def compile(self, cut: KernelCut) -> Ending:
        """Compile a kernel; `unknown` if it reaches no emitter as it is."""
        emitted: Module | Ending | None = None
        if self._is_cpu and _is_plain(cut):
            source = _Source(_for_stablehlo(cut.draft).text, self._flags | {WITHOUT_PASSES: True})
            emitted = self._compiled(source.text, source.flags)
            if isinstance(emitted, Module) and _opcodes(emitted) == _opcodes(cut.module):
                self._sources[cut] = source
                return Ending("ok", "")
        try:
            source = self._from_operations(cut)
            again = self._compiled(source.text, source.flags)
        except NotLowered as error:
            return Ending("unknown", f"{error}")
        if isinstance(again, Ending):
            return again
        made, wanted = _emitters(again), _emitters(cut.module)
        if made <= wanted:
            self._sources[cut] = source
            return Ending("ok", "")
        if isinstance(emitted, Ending) and _ROUND_TRIP not in emitted.message:
            return emitted
        return Ending("unknown", f"alone its operations become {', '.join(sorted(made - wanted))}")

    def whole(self, text: str, flags: str) -> Ending:
        """Compile a module with more flags; `unknown` without passes, as StableHLO changes it."""
        if WITHOUT_PASSES in flags:
            return Ending("unknown", "StableHLO does not have all of a final module")
        compiled = self._compiled(text, self._flags | as_overrides(flags))
        return compiled if isinstance(compiled, Ending) else Ending("ok", "")

    def run(self, cut: KernelCut, inputs: Sequence[AnyArray]) -> list[AnyArray]:
        """The results of the kernel; raises NotRun."""
        text, flags, leaves = self._sources[cut]
        taken = inputs if leaves is None else [inputs[leaf] for leaf in leaves]
        types, blocks = pack_arrays(taken)
        given: dict[str, Any] = {"types": types, "flags": flags, "plain": True}
        try:
            return unpack_arrays(*self._xla.call(run_text, encode(text), *blocks, **given))
        except (ChildDied, ChildError) as error:
            raise NotRun(f"{error}") from error

    def _from_operations(self, cut: KernelCut) -> _Source:
        if _has_default_layouts(cut):
            return _Source(with_calls(_for_stablehlo(cut.draft)).text, self._flags)
        # A bitcast to another layout is a transpose: the operations are those of the values.
        program = Lowering(cut.module, Nodes()).program()
        if program.cuts:
            raise NotLowered(f"{program.cuts[0].what} has no meaning in HLO")
        leaves = [given.leaf for given in program.inputs]
        return _Source(emit_graph(program.graph, NATIVE), self._flags, leaves)

    def _compiled(self, text: str, flags: dict[str, Any]) -> Module | Ending:
        """The module that XLA emits, or the end of the compilation."""
        try:
            _, (final,) = self._xla.call(final_text, encode(text), flags=flags)
        except ChildDied as death:
            return Ending.of(death)
        except ChildError as error:
            return Ending("error", f"{error}".partition("\n\nSuspected")[0].strip())
        return parse_file(decode(final)).modules[0]


def as_overrides(flags: str) -> dict[str, bool | int | str]:
    """The flags of a run as options of a single compilation."""
    result: dict[str, bool | int | str] = {}
    for word in flags.split():
        name, _, text = word.removeprefix("--").partition("=")
        truth = {"true": True, "false": False}
        result[name] = truth.get(text, int(text) if text.isdecimal() else text)
    return result


def _is_plain(cut: KernelCut) -> bool:
    """True if StableHLO has all that the emitter reads of a kernel."""
    # A loop needs its copies in their order, which StableHLO loses: copy insertion has to run.
    return (
        "kind=kCustom" not in cut.text
        and CONTROL_FLOW.isdisjoint(row.opcode for _, row in cut.draft.places())
        and _has_default_layouts(cut)
        and all(BITS.get(array.dtype, 8) >= 8 for array in _arrays(cut))
    )


def _has_default_layouts(cut: KernelCut) -> bool:
    return all(array.layout is None or array.layout.is_descending for array in _arrays(cut))


def _arrays(cut: KernelCut) -> Iterator[ArrayShape]:
    """The arrays that a kernel holds."""
    for _, row in cut.draft.places():
        yield from arrays(shape_or_none(row.type_text))


def _for_stablehlo(draft: Draft) -> Draft:
    """A module in which StableHLO folds nothing, and of whose bitcasts it needs no layouts.

    A copy hides from folders that the operands of `xor(a, a)` are one value; emitters read past it.
    """

    def changed(body: DraftComputation) -> DraftComputation:
        rows: list[DraftInstruction] = []
        for row in body.rows:
            if row.opcode == "bitcast" and row.reads:
                dtype, _, _ = body.row(row.reads[0]).type_text.partition("[")
                is_same = row.type_text.startswith(f"{dtype}[")
                opcode = "reshape" if is_same else "bitcast-convert"
                row = row._replace(opcode=opcode, attributes_text="")
            is_pair = row.opcode in BINARY and len(row.references) == 2
            if is_pair and len(set(row.references)) == 1 and not body.is_entry:
                (name, _), hidden = row.references, f"{row.name}.hidden"
                shape = body.row(row.reads[0]).type_text
                rows.append(DraftInstruction.of(hidden, shape, "copy", [name]))
                row = row.with_operands([name, hidden])
            rows.append(row)
        return body.changed(rows)

    return draft.with_bodies({body.name: changed(body) for body in draft.bodies})


def _emitters(module: Module) -> set[str]:
    return {emitter_of(kernel) for kernel in kernels_of(module)} - {"copy"}


def _opcodes(module: Module) -> Counter[str]:
    """The number of instructions of each opcode that computes."""
    return Counter(
        row.opcode
        for row in module.instructions()
        if row.opcode not in (*NO_KERNEL, "copy", "reshape")
    )


class AbsentKernels:
    """Kernels that XLA compiles for a chip that is absent, as plain HLO."""

    runs = False

    def __init__(
        self, compiler: XlaCompiler, target: str, flags: str = "", *, is_tpu: bool = False
    ) -> None:
        self._compiler, self._target, self._is_tpu = compiler, target, is_tpu
        self._flags = flags

    def compile(self, cut: KernelCut) -> Ending:
        """Compile a kernel; `unknown` if a program for a TPU cannot hand it its operands."""
        # Flags and descriptors of asynchronous collectives, and arrays of the host: v5e_2x2_train.
        types = " ".join(row.type_text for row in cut.draft.entry.rows)
        special = self._is_tpu and _find_special(types)
        if special:
            return Ending("unknown", f"no copy moves an argument to the memory {special[0]}")
        text = _with_plain_interface(cut.draft).text if self._is_tpu else cut.text
        return self.whole(text, f"--{WITHOUT_PASSES}=true")

    def whole(self, text: str, flags: str) -> Ending:
        """Compile a module with more flags."""
        everything = f"{self._flags} {flags}".strip()
        ending = self._compiler.compile(text, self._target, everything, devices_of(text))
        if _NO_FLAGS in ending.message and self._flags:
            self._flags = ""  # the value of a flag has spaces
            return self.whole(text, flags)
        return ending

    def run(self, cut: KernelCut, inputs: Sequence[AnyArray]) -> list[AnyArray]:
        """Raise NotRun."""
        raise NotRun("the chip is absent")


class DeviceKernels:
    """Kernels that XLA compiles as plain HLO for the GPU of this machine, which runs them."""

    runs = True

    def __init__(
        self, compiler: XlaCompiler, target: str, flags: str, xla: XlaCpu, again: RunningKernels
    ) -> None:
        """`again` runs the kernels whose code does not load."""
        self._compiler, self._target, self._xla, self._again = compiler, target, xla, again
        self._flags = f"{flags} --{WITHOUT_PASSES}=true".strip()
        self._code: dict[KernelCut, bytes] = {}
        self._endings: dict[KernelCut, Ending] = {}
        """The ending of the second compilation of each kernel whose code does not load."""

    def compile(self, cut: KernelCut) -> Ending:
        """Compile a kernel."""
        text = _with_plain_interface(cut.draft, fuses=True).text
        ending = self._compiler.compile(text, self._target, self._flags, keeps_code=True)
        self._code[cut] = ending.code
        return ending

    def run(self, cut: KernelCut, inputs: Sequence[AnyArray]) -> list[AnyArray]:
        """The results of the kernel; raises NotRun."""
        types, blocks = pack_arrays(inputs)
        results = [(leaf.dtype, leaf.dims) for leaf in arrays(cut.instruction.shape)]
        given: dict[str, Any] = {"types": types, "results": results}
        try:
            return unpack_arrays(*self._xla.call(run_code, self._code[cut], *blocks, **given))
        except (ChildDied, ChildError) as error:
            if cut not in self._endings:
                self._endings[cut] = self._again.compile(cut)
            if self._endings[cut].status != "ok":
                raise NotRun(f"{error}") from error
        return self._again.run(cut, inputs)


def _with_plain_interface(draft: Draft, *, fuses: bool = False) -> Draft:
    """A module whose parameters and results have default layouts: a runtime gives no others.

    XLA:GPU changes a layout only in a fusion.
    """
    entry, rows, bodies = draft.entry, list[DraftInstruction](), list[DraftComputation]()
    root = entry.row(entry.root)

    def copy(name: str, text: str, source: str, before: str) -> None:
        if not fuses:
            rows.append(DraftInstruction.of(name, text, "copy", [source]))
            return
        body = f"{name}.copied"
        given = DraftInstruction("given", before, "parameter", "0")
        moved = DraftInstruction.of("moved", text, "copy", ["given"])
        bodies.append(DraftComputation(body, (given, moved), "moved"))
        tail = f", kind=kLoop, calls=%{body}"
        rows.append(DraftInstruction.of(name, text, "fusion", [source], tail))

    for row in entry.rows:
        plain = _plain(row.type_text)
        if row.opcode == "parameter" and plain != row.type_text:
            rows.append(row._replace(name=f"{row.name}.plain", type_text=plain))
            copy(row.name, row.type_text, f"{row.name}.plain", plain)
        else:
            rows.append(row)

    def copied(name: str, text: str) -> str:
        shape, plain = shape_or_none(text), _plain(text)
        if plain == text:
            return name
        if not isinstance(shape, TupleShape):
            copy(f"{name}.plain", plain, name, text)
            return f"{name}.plain"
        parts = []
        for number, element in enumerate(shape.elements):
            part, tail = f"{name}.part{number}", f", index={number}"
            rows.append(DraftInstruction.of(part, f"{element}", "get-tuple-element", [name], tail))
            parts.append(copied(part, f"{element}"))
        rows.append(DraftInstruction.of(f"{name}.plain", plain, "tuple", parts))
        return f"{name}.plain"

    last = copied(root.name, root.type_text)
    changed = draft.with_bodies({entry.name: entry.changed(rows, last)})
    return replace(changed, bodies=(*bodies, *changed.bodies))


def _plain(text: str) -> str:
    """A shape with descending layouts, without tiles and memory spaces."""

    def descending(layout: re.Match[str]) -> str:
        size = re.search(r"E\(\d+\)", layout["rest"])
        rank = len(layout["order"].split(",")) if layout["order"] else 0
        order = ",".join(map(str, reversed(range(rank))))
        text = f"{order}{f':{size[0]}' if size else ''}"
        return text and f"{{{text}}}"

    return _layouts(descending, text)


_find_special = re.compile(r"\bS\((?!1\))\d+\)").search
_layouts = re.compile(r"(?<=\])\{(?P<order>[\d,]*)(?P<rest>[^}]*)\}").sub
