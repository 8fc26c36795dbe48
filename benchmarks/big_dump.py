"""A dump directory of any size, from a seed: the passes of one large made-up training step.

    python -m benchmarks.big_dump --out FOLDER --gigabytes 1

It looks like what XLA:GPU of jax 0.11 writes: a header with entry layout and aliases, four tables,
reducers, fusions, loops over tuples, GEMM calls with a configuration, long metadata, tuple elements
mostly as `%x#1`. As in real dumps most of it repeats: of 55 files four in ten equal an earlier one,
and a pass that changes something changes some computations, and in those some of the lines. The
shares are printed at the end. Every text is complete and legal: XLA's parser reads it.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

PIPELINE = Path(__file__).parent.parent / "hlo_lint/dumps/pipelines/gpu-jax0.11.2.txt"
DUMPS = 55
FUSION_AT = 9
"""The dump in which clusters have become fusions; GEMMs have become calls one change earlier."""
UNCHANGED = 0.45
"""Share of passes that change nothing."""
CHANGED_BYTES = 0.35
"""Share of the module's text that stands in computations a pass changes."""
CHANGED_LINES = 0.15
"""Share of the lines that it edits in such a computation."""
BYTES_A_BLOCK = 110_000
"""The size of one block of the step, in bytes: measured."""

WIDE: Final = "bf16[8,512,1024]{2,1,0}"
SQUARE: Final = "bf16[1024,1024]{1,0}"
SCALAR: Final = "f32[]"
WORKSPACE: Final = "s8[4194304]{0}"
_NATIVE = (
    ', backend_config={"device_type":"DEVICE_TYPE_INVALID","force_earliest_schedule":false,'
    '"native_emitter_backend_config":{"type":"NATIVE_EMITTER_TYPE_INVALID","unroll_factor":%d},'
    '"operation_queue_id":"%d","reification_cost":[]}'
)
_GEMM = (
    ', backend_config={"operation_queue_id":"0","gemm_backend_config":{"selected_algorithm":"%d",'
    '"alpha_real":1,"beta":0,"dot_dimension_numbers":{"lhs_contracting_dimensions":["2"],'
    '"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]},'
    '"alpha_imag":0,"precision_config":{"operand_precision":["DEFAULT","DEFAULT"],"algorithm":'
    '"ALG_UNSET"},"epilogue":"DEFAULT","lhs_stride":"4194304","rhs_stride":"1048576",'
    '"grad_x":false,"grad_y":false,"damax_output":false},"force_earliest_schedule":false,'
    '"reification_cost":[]}'
)
_UNARY = ("negate", "tanh", "exponential", "logistic", "abs", "sine", "rsqrt", "sqrt")
_BINARY = ("add", "multiply", "subtract", "maximum", "divide", "minimum")
_SCOPES = (
    "attention/softmax",
    "attention/qkv",
    "mlp/gelu",
    "mlp/up",
    "norm",
    "residual",
    "dropout",
)


@dataclass(slots=True)
class Op:
    """One instruction."""

    name: str
    type: str
    opcode: str
    operands: list[str]
    tail: str = ""
    literal: str = ""
    """The text in the parentheses of a constant or parameter."""
    root: bool = False

    def __str__(self) -> str:
        inside = self.literal or _numbered([f"%{name}" for name in self.operands])
        root = "ROOT " if self.root else ""
        return f"  {root}%{self.name} = {self.type} {self.opcode}({inside}){self.tail}"


@dataclass(slots=True)
class Cluster:
    """Instructions that a fusion will hold: the last ones are what others read."""

    ops: list[Op]
    results: int


@dataclass(slots=True)
class Body:
    """A computation, with its text while nothing has changed."""

    head: str
    items: list[Op | Cluster]
    text: str = ""

    @property
    def ops(self) -> list[Op]:
        found: list[Op] = []
        for item in self.items:
            found += item.ops if isinstance(item, Cluster) else [item]
        return found

    def spelled(self) -> str:
        if not self.text:
            self.text = "\n".join([self.head + " {", *map(str, self.ops), "}"])
        return self.text


def _numbered(elements: Sequence[str]) -> str:
    """Separated by commas, with XLA's comment before every fifth."""
    return ", ".join(
        f"/*index={n}*/{element}" if n and n % 5 == 0 else element
        for n, element in enumerate(elements)
    )


def _plain(shape: str) -> str:
    return shape.partition("{")[0]


class Step:
    """The whole module: random instructions, always legal, in the order in which they are made."""

    def __init__(self, blocks: int, random: random.Random) -> None:
        self.random = random
        self.count = 0
        self.frames = 40 + 12 * blocks
        self.reducers = [self._reducer("add"), self._reducer("maximum")]
        self.loops: list[Body] = []
        self.fused: list[Body] = []
        self.parameters: list[str] = []
        self.is_scheduled = False
        entry: list[Op | Cluster] = []
        in_loops = blocks // 2
        value, weights = self._parameter(entry, WIDE), []
        for number in range(blocks - in_loops):
            weights = [self._parameter(entry, SQUARE) for _ in range(2)]
            value = self._block(entry, value, weights, number)
            if number % 8 == 7 and in_loops:
                size = min(8, in_loops)
                in_loops -= size
                value = self._loop(entry, value, weights, size)
        while in_loops:
            size = min(8, in_loops)
            in_loops -= size
            value = self._loop(entry, value, weights, size)
        results = [value, *self._weights_out(entry)]
        types = [WIDE] + [SQUARE] * (len(results) - 1)
        entry.append(Op(self.new("tuple"), f"({_numbered(types)})", "tuple", results, root=True))
        self.outputs = types
        arguments = ", ".join(f"p{n}.1: {_plain(shape)}" for n, shape in enumerate(self.parameters))
        result = _numbered(list(map(_plain, types)))
        self.entry = Body(f"ENTRY %main.{self.count} ({arguments}) -> ({result})", entry)

    def new(self, stem: str) -> str:
        self.count += 1
        return f"{stem}.{self.count}"

    def metadata(self, scope: str, primitive: str) -> str:
        path = f"jit(train_step)/transpose(jvp(Transformer))/{scope}/{primitive}"
        frame = self.random.randrange(1, self.frames)
        return f', metadata={{op_name="{path}" stack_frame_id={frame}}}'

    def _parameter(self, into: list[Op | Cluster], shape: str) -> str:
        number = len(self.parameters)
        self.parameters.append(shape)
        name = f"p{number}.1"
        sharding = ", sharding={replicated}" if number % 3 else ""
        about = f", metadata={{op_name=\"params['layers_{number // 2}']['kernel']\"}}"
        into.append(Op(name, shape, "parameter", [], sharding + about, literal=str(number)))
        return name

    def _weights_out(self, entry: list[Op | Cluster]) -> list[str]:
        """An optimizer's update of every fourth weight: a cluster with one result each."""
        found = []
        for n, shape in list(enumerate(self.parameters))[1::4]:
            assert shape == SQUARE
            found.append(self._chain(entry, [f"p{n}.1"], SQUARE, f"adam/layers_{n // 2}", 6))
        return found

    def _reducer(self, opcode: str) -> Body:
        name = self.new("region")
        a, b = self.new("lhs"), self.new("rhs")
        ops: list[Op | Cluster] = [
            Op(a, SCALAR, "parameter", [], literal="0"),
            Op(b, SCALAR, "parameter", [], literal="1"),
            Op(self.new(opcode), SCALAR, opcode, [a, b], root=True),
        ]
        return Body(f"%{name} ({a}: {SCALAR}, {b}: {SCALAR}) -> {SCALAR}", ops)

    # ---- what a block is made of

    def _block(
        self, into: list[Op | Cluster], value: str, weights: Sequence[str], number: int
    ) -> str:
        scope = f"layers_{number}"
        for part in range(14):
            where = f"{scope}/{self.random.choice(_SCOPES)}"
            if part % 5 == 2:
                value = self._gemm(into, value, self.random.choice(weights), where)
            if part % 3 == 1:
                value = self._normalized(into, value, where)
            other = self._chain(into, [value], WIDE, where, self.random.randrange(6, 16))
            value = self._chain(into, [value, other], WIDE, where, self.random.randrange(8, 24))
        return value

    def _chain(
        self, into: list[Op | Cluster], inputs: Sequence[str], shape: str, scope: str, length: int
    ) -> str:
        """An elementwise cluster: every instruction reads the one before it, and any other."""
        values = list(inputs)
        ops: list[Op] = []

        def add(opcode: str, operands: list[str], kind: str, tail: str = "", said: str = "") -> str:
            name = self.new(opcode)
            ops.append(Op(name, kind, opcode, operands, tail, said))
            return name

        for _ in range(length):
            last, choice = values[-1], self.random.random()
            opcode = self.random.choice(_UNARY if choice < 0.3 else _BINARY)
            about = self.metadata(scope, opcode[:3])
            if choice < 0.3:
                values.append(add(opcode, [last], shape, about))
            elif choice < 0.8:
                values.append(add(opcode, [last, self.random.choice(values)], shape, about))
            elif choice < 0.9:
                number = f"{self.random.uniform(-2, 2):.4g}"
                constant = add("constant", [], "bf16[]", said=number)
                wide = add("broadcast", [constant], shape, ", dimensions={}" + about)
                values.append(add(opcode, [last, wide], shape, about))
            else:
                bits = shape.replace("bf16", "pred")
                order = self.random.choice(("LT", "GE", "EQ"))
                where = add("compare", [last, values[0]], bits, f", direction={order}" + about)
                values.append(
                    add("select", [where, last, self.random.choice(values)], shape, about)
                )
        into.append(Cluster(ops, 1))
        return ops[-1].name

    def _normalized(self, into: list[Op | Cluster], value: str, scope: str) -> str:
        """Reduce, and broadcast back: two clusters."""
        thin = "f32[8,512]{1,0}"
        wide = WIDE.replace("bf16", "f32")
        reducer = self.random.choice(self.reducers).head.split()[0]
        about = self.metadata(scope, "reduce_sum")
        up, zero, total = self.new("convert"), self.new("constant"), self.new("reduce")
        into.append(
            Cluster(
                [
                    Op(up, wide, "convert", [value], self.metadata(scope, "convert_element_type")),
                    Op(zero, SCALAR, "constant", [], literal="0"),
                    Op(
                        total,
                        thin,
                        "reduce",
                        [up, zero],
                        f", dimensions={{2}}, to_apply={reducer}" + about,
                    ),
                ],
                1,
            )
        )
        back, down, out = self.new("broadcast"), self.new("convert"), self.new("divide")
        into.append(
            Cluster(
                [
                    Op(back, wide, "broadcast", [total], ", dimensions={0,1}" + about),
                    Op(down, WIDE, "convert", [back], self.metadata(scope, "convert_element_type")),
                    Op(out, WIDE, "divide", [value, down], self.metadata(scope, "div")),
                ],
                1,
            )
        )
        return out

    def _gemm(self, into: list[Op | Cluster], value: str, weight: str, scope: str) -> str:
        name = self.new("dot_general")
        dims = ", lhs_contracting_dims={2}, rhs_contracting_dims={0}"
        into.append(
            Op(name, WIDE, "dot", [value, weight], dims + self.metadata(scope, "dot_general"))
        )
        return name

    def _loop(
        self, into: list[Op | Cluster], value: str, weights: Sequence[str], blocks: int
    ) -> str:
        """A scan over a tuple of counter, value and weights."""
        types = ["s32[]", WIDE, *[SQUARE] * len(weights)]
        shape = f"({_numbered(types)})"
        plain = f"({', '.join(map(_plain, types))})"
        argument, body = self.new("arg_tuple"), self.new("region")
        items: list[Op | Cluster] = [Op(argument, shape, "parameter", [], literal="0")]
        one, counter = self.new("constant"), self.new("add")
        items.append(Op(one, "s32[]", "constant", [], literal="1"))
        items.append(
            Op(counter, "s32[]", "add", [f"{argument}#0", one], self.metadata("while/body", "add"))
        )
        inner = f"{argument}#1"
        own = [f"{argument}#{n + 2}" for n in range(len(weights))]
        for number in range(blocks):
            inner = self._block(items, inner, own, number)
        items.append(Op(self.new("tuple"), shape, "tuple", [counter, inner, *own], root=True))
        self.loops.append(Body(f"%{body} ({argument}: {plain}) -> {plain}", items))

        seen, condition, limit = self.new("arg_tuple"), self.new("region"), self.new("constant")
        check: list[Op | Cluster] = [
            Op(seen, shape, "parameter", [], literal="0"),
            Op(limit, "s32[]", "constant", [], literal=str(blocks)),
            Op(
                self.new("lt"),
                "pred[]",
                "compare",
                [f"{seen}#0", limit],
                ", direction=LT",
                root=True,
            ),
        ]
        self.loops.append(Body(f"%{condition} ({seen}: {plain}) -> pred[]", check))

        zero, start, loop = self.new("constant"), self.new("tuple"), self.new("while")
        into.append(Op(zero, "s32[]", "constant", [], literal="0"))
        into.append(Op(start, shape, "tuple", [zero, value, *weights]))
        known = f', backend_config={{"known_trip_count":{{"n":"{blocks}"}}}}'
        about = self.metadata("while", "while")
        into.append(
            Op(
                loop,
                shape,
                "while",
                [start],
                f", condition=%{condition}, body=%{body}{about}{known}",
            )
        )
        if self.random.random() < 0.3:  # a tuple element on a line of its own
            element = self.new("get-tuple-element")
            into.append(Op(element, WIDE, "get-tuple-element", [loop], ", index=1"))
            return element
        return f"{loop}#1"

    # ---- passes

    @property
    def bodies(self) -> list[Body]:
        return [*self.reducers, *self.fused, *self.loops, self.entry]

    def rewrite_gemms(self) -> None:
        """Each dot becomes a call that gives a tuple: its result, and its workspace."""
        for body in (*self.loops, self.entry):
            renamed: dict[str, str] = {}
            for op in body.ops:
                if op.opcode == "dot":
                    call = self.new("cublas-gemm")
                    renamed[op.name] = f"{call}#0"
                    op.name, op.opcode = call, "custom-call"
                    op.type = f"({WIDE}, {WORKSPACE})"
                    about = op.tail[op.tail.index(", metadata") :]
                    target = ', custom_call_target="__cublas$lt$matmul"'
                    op.tail = target + about + _GEMM % self.random.randrange(30)
            self._rename(body, renamed)

    def fuse(self) -> None:
        """Each cluster becomes a fusion, and a computation of its own."""
        for body in (*self.loops, self.entry):
            renamed: dict[str, str] = {}
            types = {op.name: op.type for op in body.ops}
            body.items = [
                self._fusion(item, renamed, types) if isinstance(item, Cluster) else item
                for item in body.items
            ]
            self._rename(body, renamed)

    def _fusion(self, cluster: Cluster, renamed: dict[str, str], types: dict[str, str]) -> Op:
        last = cluster.ops[-1]
        own = {op.name: f"{op.name}.1" for op in cluster.ops}
        parameters: dict[str, Op] = {}
        for op in cluster.ops:
            for name in op.operands:
                if name not in own and name not in parameters:
                    shape = self._type(name, types)
                    number = str(len(parameters))
                    parameters[name] = Op(
                        self.new(f"param_{number}"), shape, "parameter", [], literal=number
                    )
        inner = own | {name: parameter.name for name, parameter in parameters.items()}
        calls, fusion = self.new("fused_computation"), self.new(f"loop_{last.opcode}_fusion")
        arguments = ", ".join(f"{p.name}: {_plain(p.type)}" for p in parameters.values())
        kind = "kInput" if last.opcode == "reduce" else "kLoop"
        about = last.tail[last.tail.index(", metadata") :]
        for op in cluster.ops:
            op.name = own[op.name]
            op.operands = [inner[name] for name in op.operands]
        last.root = True
        result = Body(
            f"%{calls} ({arguments}) -> {_plain(last.type)}", [*parameters.values(), *cluster.ops]
        )
        self.fused.append(result)
        renamed[last.name.removesuffix(".1")] = fusion
        return Op(
            fusion, last.type, "fusion", list(parameters), f", kind={kind}, calls=%{calls}{about}"
        )

    @staticmethod
    def _type(reference: str, types: dict[str, str]) -> str:
        name, _, element = reference.partition("#")
        if not element:
            return types[name]
        parts = types[name].strip("()").replace("/*index=5*/", "").split(", ")
        return parts[int(element)]

    @staticmethod
    def _rename(body: Body, renamed: dict[str, str]) -> None:
        for op in body.ops:
            if op.operands:
                op.operands = [renamed.get(name, name) for name in op.operands]
        body.text = ""

    def change(self) -> None:
        """A pass: some computations, and some lines in each."""
        bodies = self.bodies
        budget = CHANGED_BYTES * sum(len(body.spelled()) for body in bodies)
        self.random.shuffle(bodies)
        for body in bodies:
            size = len(body.spelled())
            if size <= budget:
                budget -= size
                self._edit(body)

    def _edit(self, body: Body) -> None:
        renamed: dict[str, str] = {}
        items: list[Op | Cluster] = []
        types: dict[str, str] = {}
        for item in body.items:
            ops = item.ops if isinstance(item, Cluster) else [item]
            for op in ops:
                if op.operands:
                    op.operands = [renamed.get(name, name) for name in op.operands]
                if self.random.random() < CHANGED_LINES / 2 and op.opcode != "parameter":
                    if op.opcode == "fusion" and self.random.random() < 0.5:
                        queue = self.random.randrange(4)
                        op.tail = op.tail.partition(", backend_config")[0] + _NATIVE % (4, queue)
                    elif not op.root:
                        stem = op.name.partition(".")[0]
                        old, op.name = op.name, self.new(stem)
                        renamed[old] = op.name
                        renamed |= {f"{old}#{n}": f"{op.name}#{n}" for n in range(4)}
            if (
                isinstance(item, Op)
                and item.opcode in ("fusion", "custom-call")
                and self.random.random() < CHANGED_LINES / 8
            ):
                read = item.operands[0]
                copy = Op(self.new("copy"), "", "copy", [read])
                copy.type = self._type(read, types)
                item.operands = [copy.name, *item.operands[1:]]
                items.append(copy)
            items.append(item)
            types.update((op.name, op.type) for op in ops)
        body.items = items
        body.text = ""

    def schedule(self) -> None:
        """The entry in another order: an instruction as soon as its operands are there."""
        self.is_scheduled = True
        for body in (*self.loops, self.entry):
            depth: dict[str, int] = {}
            for op in body.ops:
                names = (name.partition("#")[0] for name in op.operands)
                depth[op.name] = 1 + max((depth[name] for name in names), default=0)
            root = [op for op in body.ops if op.root]
            others = sorted((op for op in body.ops if not op.root), key=lambda op: depth[op.name])
            body.items = [*others, *root]
            body.text = ""

    # ---- text

    def header(self) -> str:
        scheduled = "is_scheduled=true, " if self.is_scheduled else ""
        aliases = ", ".join(
            f"{{{n + 1}}}: ({1 + 4 * n}, {{}}, may-alias)" for n in range(len(self.outputs) - 1)
        )
        layout = f"({_numbered(self.parameters)})->({_numbered(self.outputs)})"
        replicated = ",".join(["true"] * len(self.parameters))
        return (
            f"HloModule jit_train_step, {scheduled}input_output_alias={{ {aliases} }}, "
            f"entry_computation_layout={{{layout}}}, "
            f"allow_spmd_sharding_propagation_to_parameters={{{replicated}}}, num_partitions=8"
        )

    def tables(self) -> str:
        files = [f'{n} "model/layers/{scope}.py"' for n, scope in _from_one(_SCOPES)]
        functions = [f'{n} "Transformer.<locals>.{scope}"' for n, scope in _from_one(_SCOPES)]
        places, frames = [], []
        for n in range(1, self.frames + 1):
            which, line = 1 + n % len(_SCOPES), 10 + n % 900
            places.append(
                f"{n} {{file_name_id={which} function_name_id={which} line={line} "
                f"end_line={line} column={n % 60} end_column={n % 60 + 24}}}"
            )
            frames.append(f"{n} {{file_location_id={n} parent_frame_id={max(1, n // 2)}}}")
        blocks = {
            "FileNames": files,
            "FunctionNames": functions,
            "FileLocations": places,
            "StackFrames": frames,
        }
        return "\n\n".join("\n".join([title, *rows]) for title, rows in blocks.items())

    def text(self) -> str:
        bodies = "\n\n".join(body.spelled() for body in self.bodies)
        return f"{self.header()}\n\n{self.tables()}\n\n\n{bodies}\n\n"


def _from_one(names: Sequence[str]) -> Iterable[tuple[int, str]]:
    return enumerate(names, 1)


def file_names(count: int) -> list[str]:
    """Names of consecutive dumps, spread over the passes of XLA:GPU."""
    lines = PIPELINE.read_text("utf-8").splitlines()
    steps = [line.split(" ", 1) for line in lines if not line.startswith("#")]
    runs = [
        (pipeline, after, before)
        for (pipeline, after), (same, before) in pairwise(steps)
        if pipeline == same
    ]
    chosen = [runs[n * len(runs) // count] for n in range(count)]
    return [
        f"module_0001.jit_train_step.{n:04d}.{pipeline}.after_{after}.before_{before}.txt"
        for n, (pipeline, after, before) in enumerate(chosen)
    ]


@dataclass
class Shares:
    """The share of the output that had been written before."""

    files: int = 0
    new_files: int = 0
    bytes: int = 0
    new_block_bytes: int = 0
    lines: int = 0
    seen: set[int] = field(default_factory=set)
    """Hashes of texts and of computations."""
    seen_lines: set[int] = field(default_factory=set)

    def add(self, text: str) -> None:
        self.files += 1
        self.bytes += len(text)
        if self._is_new(text):
            self.new_files += 1
            for block in filter(self._is_new, text.split("\n\n")):
                self.new_block_bytes += len(block)
                self.seen_lines.update(map(hash, block.split("\n")))
        self.lines += text.count("\n")

    def _is_new(self, text: str) -> bool:
        before = len(self.seen)
        self.seen.add(hash(text))
        return len(self.seen) > before

    def __str__(self) -> str:
        return (
            f"{self.files} files, {self.bytes / 1e6:.0f} MB, {self.lines} lines; unique: "
            f"{self.new_files / self.files:.2f} of the files, "
            f"{self.new_block_bytes / self.bytes:.3f} of the bytes by computation, "
            f"{len(self.seen_lines) / self.lines:.3f} of the lines"
        )


def write(folder: Path, gigabytes: float, dumps: int, seed: int) -> Shares:
    """Writes the directory; what lay in it stays."""
    chance = random.Random(seed)
    step = Step(max(2, round(gigabytes * 1e9 / dumps / BYTES_A_BLOCK)), chance)
    folder.mkdir(parents=True, exist_ok=True)
    shares = Shares()
    text = step.text()
    for number, name in enumerate(file_names(dumps)):
        if number == FUSION_AT - 1:
            step.rewrite_gemms()
            text = step.text()
        elif number == FUSION_AT:
            step.fuse()
            text = step.text()
        elif number == dumps * 4 // 5:
            step.schedule()
            text = step.text()
        elif number and chance.random() >= UNCHANGED:
            step.change()
            text = step.text()
        shares.add(text)
        (folder / name).write_text(text, "utf-8")
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--dumps", type=int, default=DUMPS)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(write(given.out, given.gigabytes, given.dumps, given.seed))


if __name__ == "__main__":
    main()
