"""Targets of fuzzers, for any bytes: each raises if the program breaks a promise.

`tests/fuzz/test_seeded.py` calls them with a seeded sample, `python -m tests.fuzz` with atheris.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import hlo_lint
from hlo_lint.apps.settings.load import read_file
from hlo_lint.apps.settings.settings import Settings
from hlo_lint.dumps.artefacts import ARTEFACTS, reader_for
from hlo_lint.engine.suppressions.baseline import read_baseline
from hlo_lint.engine.suppressions.comments import lost_comments, read_comments
from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError
from hlo_lint.hlo.ir import HloFile
from hlo_lint.hlo.parser.module import Memo, parse_file
from hlo_lint.hlo.shape import arrays
from hlo_lint.kernels.custom_calls import TritonCall, decode_payload, encode_payload, render_payload
from hlo_lint.report.formats import FORMATS
from hlo_lint.report.formats import render as render_report
from hlo_lint.report.report import Report
from hlo_lint.rules.findings import INTERNAL_ERROR, Severity
from hlo_lint.rules.registry import all_rules
from hlo_lint.text.errors import ConfigError, HloLintError, UsageError
from hlo_lint.text.source import decode as decode_text
from hlo_lint.text.source import encode as encode_text
from hlo_lint.xla.cpu import XlaCpu

Target = Callable[[bytes], None]
TARGETS: dict[str, Target] = {}
MAX_READ = 200
"""Instructions of a text whose attributes are read."""
MAX_ELEMENTS = 1 << 12
"""Of an array that is computed."""
MAX_SECONDS = 5
"""CPU time of a module that is computed."""


class BrokenPromiseError(AssertionError):
    """A promise of the program that does not hold for one input."""


def _target(function: Target) -> Target:
    TARGETS[function.__name__] = function
    return function


def _expect(holds: bool, promise: str) -> None:
    if not holds:
        raise BrokenPromiseError(promise)


@_target
def parse(data: bytes) -> None:
    """Every byte comes out as it went in, and whatever is asked of the graph has an answer."""
    file = parse_file(data)
    _expect(encode_text(file.text) == data, "parsing keeps every byte")
    size = len(file.text)
    for module in file.modules:
        for problem in module.problems:
            _expect(0 <= problem.span.start <= problem.span.end <= size, "problems are in the text")
        for name in module.attributes:
            try:
                module.attribute(name)
            except AttributeSyntaxError as error:
                str(error)
        for instruction in islice(module.instructions(), MAX_READ):
            start, end = module.span(instruction)
            _expect(0 <= start <= end <= size, "instructions are in the text")
            _expect(file.text[start:end] == instruction.text, "a span is that of its text")
            assert instruction.operands is not None
            assert instruction.users is not None
            assert instruction.called_computations is not None
            if instruction.shape_or_none is not None:
                str(instruction.shape_or_none)
            for name in instruction.attributes:
                instruction.attribute_or_none(name)


@_target
def memo(data: bytes) -> None:
    """Sharing between the files of a directory changes no byte and no part of a graph."""
    shared = Memo()
    half = data[: len(data) // 2]
    for part in (data, half, data + b"\n", half.replace(b"a", b"b"), half.strip()):
        file = parse_file(part, memo=shared)
        _expect(encode_text(file.text) == part, "parsing keeps every byte")
        _expect(list(_graph(file)) == list(_graph(parse_file(part))), "a memo changes no graph")


def _graph(file: HloFile) -> Iterator[object]:
    """All that a parser says of a file."""
    for module in file.modules:
        yield module.name, module.header, module.tables, module.entry and module.entry.name
        yield [(problem.message, problem.span) for problem in module.problems]
        for computation in module.computations:
            yield computation.name, module.computation_start(computation), computation.spans
            for instruction in islice(computation.instructions, MAX_READ):
                yield (
                    *(instruction.name, instruction.opcode, instruction.is_root, instruction.text),
                    *(instruction.type_text, instruction.operands_text, instruction.operand_names),
                    *(instruction.attributes_text, instruction.span),
                )


@cache
def every_rule() -> Settings:
    """All but the one that asks XLA, which is not fuzzed here."""
    rules = [rule.name() for rule in all_rules() if rule.command == "check"]
    return Settings(select=tuple(name for name in rules if name != "parser-refuses"))


def _no_crash(report: Report) -> Report:
    for finding in report.findings:
        _expect(finding.rule != INTERNAL_ERROR, "\n".join((finding.message, *finding.notes)))
    return report


@_target
def lint(data: bytes) -> None:
    """Every rule looks at it, and says the same of it twice."""
    report = _no_crash(hlo_lint.lint(data, settings=every_rule()))
    lines = data.count(b"\n") + 1
    for finding in report.findings:
        _expect(1 <= finding.line <= finding.end_line <= lines, "findings are in the text")


@_target
def lint_before(data: bytes) -> None:
    """The same, before a pass."""
    _no_crash(hlo_lint.lint(data, settings=every_rule(), before="layout_normalization"))


@_target
def report(data: bytes) -> None:
    """Every format shows every report, in UTF-8 and without a character that a terminal obeys."""
    _show(_no_crash(hlo_lint.lint(data, settings=every_rule())))


def _show(made: Report) -> None:
    for name in FORMATS:
        text = render_report(made, name)
        text.encode("utf-8")
        _expect("\x1b" not in text, f"{name} writes no escape")


@_target
def fix(data: bytes) -> None:
    """A fix changes what it says and no other byte, leaves HLO, and has nothing to do again."""
    settings = every_rule().overridden(unsafe_fixes=True)
    fixed = hlo_lint.fix(data, settings=settings, before="layout_normalization")
    _no_crash(fixed.remaining)
    for file in fixed.files:
        _expect(encode_text(file.before) == data, "a fix begins with the text")
        if not file.edits:
            _expect(file.after == file.before, "no edit, no change")
    if len(fixed.files) != 1 or not fixed.edits:
        return
    before, after = parse_file(data), parse_file(fixed.text)
    problems = [sum(len(m.problems) for m in file.modules) for file in (before, after)]
    _expect(problems[1] <= problems[0], "a fixed text can be read")
    again = hlo_lint.fix(fixed.text, settings=settings, before="layout_normalization")
    _expect(not again.edits, f"a second fix has nothing to do: {again.edits}")


@_target
def values(data: bytes) -> None:
    """A fix of what XLA accepts keeps every value, and every line that no edit touches."""
    sound = ["verifier", "parser-refuses", "unreadable-text"]
    if any(finding.severity is Severity.ERROR for finding in hlo_lint.lint(data, sound).findings):
        return
    fixed = hlo_lint.fix(data, before="layout_normalization", unsafe_fixes=True)
    if not fixed.edits:
        return
    text = decode_text(data)
    lost = set(text.splitlines()) - touched_lines(text, fixed) - set(fixed.text.splitlines())
    _expect(not lost, f"a line that no edit touches stays: {lost}")
    try:
        expected = result(text)
    except (HloLintError, MemoryError):
        return
    _expect(result(fixed.text) == expected, "a fix keeps every value")


def touched_lines(text: str, fixed: hlo_lint.FixResult) -> set[str]:
    """The lines that an edit of any round may have changed."""
    lines = text.splitlines()
    numbers = set()
    for edit in fixed.edits:
        first = text.count("\n", 0, edit.span.start)
        numbers |= set(range(first, text.count("\n", 0, edit.span.end) + 1))
    return {lines[number] for number in numbers if number < len(lines)}


def result(text: str) -> list[bytes]:
    """The values for inputs that are the same for the same parameters, bit for bit.

    Raises:
        HloLintError: they cannot be computed.
    """
    import numpy as np

    from hlo_lint.engine.values.run import arrays_of, values_of

    module = hlo_lint.parse(text)
    shapes = [instruction.shape for instruction in module.instructions()]
    if len(shapes) > MAX_READ or any(
        array.elements > MAX_ELEMENTS for shape in shapes for array in arrays(shape)
    ):
        raise UsageError("too much to compute")
    chance = np.random.default_rng(0)
    entry = module.entry_computation
    inputs = [
        chance.integers(0, 2, array.dims)
        for parameter in entry.parameters
        for array in arrays(parameter.shape)
    ]
    (value,) = values_of(module, inputs, xla=_xla())
    return [array.tobytes() for array in arrays_of(value)]


@cache
def _xla() -> XlaCpu:
    xla = XlaCpu(seconds=MAX_SECONDS)
    atexit.register(xla.close)
    return xla


@_target
def match(data: bytes) -> None:
    """A pattern is read or refused, and looks for itself in any text."""
    from hlo_lint.analysis.match.reader import read_pattern

    pattern, _, text = decode_text(data).partition("\n")
    try:
        asked = read_pattern(pattern)
    except UsageError:
        return
    for module in parse_file(text).modules:
        for instruction in islice(module.instructions(), MAX_READ):
            hlo_lint.match.explain(asked, instruction)
        list(hlo_lint.match.find(asked, module))


PAYLOAD_TARGETS = (
    "triton_kernel_call __gpu$xla.gpu.triton mosaic_gpu_v2 mosaic_gpu tpu_custom_call "
    "__cublas$gemm __cublas$lt$matmul __cublas$triangularSolve"
).split()


@_target
def payload(data: bytes) -> None:
    """A payload is decoded or refused, and goes back into the text as it was."""
    target = PAYLOAD_TARGETS[data[0] % len(PAYLOAD_TARGETS)] if data else PAYLOAD_TARGETS[0]
    content = "".join(f"\\{byte:03o}" for byte in data[1:])
    for spelled in (f'"{content}"', decode_text(data[1:])):
        text = f'e {{ ROOT r = f32[] custom-call(), custom_call_target="{target}", '
        module = hlo_lint.parse(f"HloModule m\nENTRY {text}backend_config={spelled} }}")
        for instruction in islice(module.instructions(), 3):
            _decode(instruction)


def _decode(instruction: hlo_lint.Instruction) -> None:
    try:
        decoded = decode_payload(instruction)
    except HloLintError:
        return
    if decoded is None:
        return
    render_payload(decoded)
    if isinstance(decoded, TritonCall):
        _expect(
            encode_payload(instruction, decoded) == instruction.attribute_text("backend_config"),
            "an unchanged payload is the text as it stands",
        )


@_target
def artefact(data: bytes) -> None:
    """No reader raises on what a file holds."""
    if not data:
        return
    ending = sorted(ARTEFACTS)[data[0] % len(ARTEFACTS)]
    reader = reader_for(f"module_0001.f{ending}")
    assert reader is not None
    text = decode_text(data[1:])
    read_text = reader(text, None)
    for problem in read_text.problems:
        _expect(0 <= problem.start <= problem.end <= len(text), "problems are in the text")


@_target
def kernel_text(data: bytes) -> None:
    """PTX and logs of tensor descriptors: any text is read."""
    from hlo_lint.kernels.ptx import hazards, read_ptx
    from hlo_lint.kernels.tma.cutlass_log import read_log
    from hlo_lint.kernels.tma.xla_text import read_descriptors

    text = decode_text(data)
    hazards(read_ptx(text))
    read_log(text)
    list(read_descriptors(text))


@_target
def comment(data: bytes) -> None:
    """Comments to us are read wherever they are, and a comment is lost by no edit of itself."""
    file = parse_file(b"// hlo-lint: " + data)
    read_comments(file, "x")
    text = decode_text(data)
    _expect(not lost_comments(text, text), "a text has lost nothing of itself")
    _no_crash(hlo_lint.lint(b"HloModule m // hlo-lint:" + data))


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="hlo-lint-fuzz"))


@_target
def settings(data: bytes) -> None:
    """A settings file is read, or refused with its place."""
    path = _folder() / "hlo_lint.toml"
    path.write_bytes(data)
    try:
        read_file(path).chosen_rules()
    except (ConfigError, UsageError) as error:
        str(error)


@_target
def baseline(data: bytes) -> None:
    """A baseline is read, or refused."""
    path = _folder() / "baseline.json"
    path.write_bytes(data)
    try:
        read_baseline(path)
    except HloLintError as error:
        str(error)


@_target
def editor(data: bytes) -> None:
    """An editor may ask about any place of any text, in any state between two edits."""
    from lsprotocol import types

    utf16 = types.PositionEncodingKind.Utf16
    from hlo_lint.apps.lsp.documents import Document
    from hlo_lint.apps.lsp.hover import hover
    from hlo_lint.apps.lsp.outline import folds, symbols
    from hlo_lint.apps.lsp.texts import Text

    places, source = data[:8].ljust(8, b"\0"), decode_text(data[8:])
    text = Text("untitled:x", source.encode("utf-8", "replace").decode(), 1, None, utf16)
    positions = [types.Position(places[n], places[n + 1] << 1) for n in (0, 2, 4, 6)]
    change = types.TextDocumentContentChangePartial(
        types.Range(positions[0], positions[1]), chr(places[0]) * (places[1] % 3)
    )
    for _ in range(2):
        document = Document(text, Memo())
        symbols(document)
        folds(document)
        for position in positions:
            offset = text.offset(position)
            _expect(0 <= offset <= len(text.source), "a position is in the text")
            hover(document, offset)
        text.apply_change(change)


METHODS = (
    "textDocument/didOpen textDocument/didChange textDocument/didClose textDocument/hover "
    "textDocument/definition textDocument/references textDocument/documentSymbol "
    "textDocument/foldingRange textDocument/codeAction codeAction/resolve "
    "workspace/didChangeWatchedFiles"
).split()


class _Client:
    """A server in this process, and what it logs."""

    def __init__(self) -> None:
        from hlo_lint.apps.lsp import app

        app.DELAY = 0
        self.loop = asyncio.new_event_loop()
        self.logged: list[logging.LogRecord] = []
        handler = logging.Handler()
        handler.emit = self.logged.append  # type: ignore[method-assign,assignment]
        for name in ("pygls", "hlo_lint.apps.lsp"):
            logging.getLogger(name).addHandler(handler)
            logging.getLogger(name).propagate = False
        self.server = app.make_server()
        self.server.protocol.set_writer(self)
        begin = {"id": 0, "method": "initialize", "params": {"capabilities": {}}}
        self.loop.run_until_complete(self.send(begin))

    def write(self, data: bytes) -> None:
        """Take an answer."""

    def close(self) -> None:
        """No more answers come."""

    async def send(self, given: dict[str, Any]) -> None:
        """Send a message, and wait until the server has nothing to do."""
        from pygls.exceptions import JsonRpcException

        protocol = self.server.protocol
        try:
            protocol.handle_message(protocol.structure_message({"jsonrpc": "2.0", **given}))
        except JsonRpcException:
            return
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(tasks)


@cache
def _client() -> _Client:
    return _Client()


@_target
def message(data: bytes) -> None:
    """Requests of an editor are answered or refused: a line is a method's number and parameters."""
    from pygls.exceptions import JsonRpcException

    client = _client()
    for number, line in enumerate(data.split(b"\n")[:8]):
        try:
            given = {"params": json.loads(line[1:]), "method": METHODS[line[0] % len(METHODS)]}
        except (ValueError, RecursionError, IndexError):
            continue
        is_notified = given["method"].startswith(("textDocument/did", "workspace/did"))
        sent = given if is_notified else {**given, "id": number + 1}
        client.loop.run_until_complete(client.send(sent))
    logged, client.logged[:] = client.logged[:], []
    for uri in list(client.server.opened):  # not closed: that looks through memory
        client.server.opened.pop(uri)
        client.server.workspace.remove_text_document(uri)
    for record in logged:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, JsonRpcException):
            raise error


STEMS = """
module_0001.jit_f.before_optimizations.txt
module_0001.jit_f.0000.pipeline.after_pass.before_other.txt
module_0001.jit_f.0001.post-layout_assignment.after_autotuner.before_x.txt
module_0001.jit_f.sm_9.0_gpu_after_optimizations.txt
module_0001.jit_f.sm_9.0_gpu_after_optimizations-buffer-assignment.txt
module_0001.jit_f.sm_9.0_gpu_after_optimizations-buffer-assignment-values.txt
module_0001.jit_f.sm_9.0_gpu_after_optimizations-live-range.txt
module_0001.jit_f.debug_options module_0001.jit_f.ptx module_0001.metadata.textproto
module_0001.jit_f.autotune_results.pbtxt module_0001.jit_f.thunk_sequence.txt
compile_options.textproto x.hlo.pb x.hlo.pb.gz log.txt
""".split()
SEPARATOR = b"\xff\xfe"


@_target
def directory(data: bytes) -> None:
    """A dump directory is checked, whatever its files hold: parts begin with a byte for a name."""
    with tempfile.TemporaryDirectory(dir=_folder()) as folder:
        for part in data.split(SEPARATOR)[:6]:
            if part:
                Path(folder, STEMS[part[0] % len(STEMS)]).write_bytes(part[1:])
        _no_crash(hlo_lint.lint(Path(folder), settings=every_rule(), resolved=True))


@_target
def file_name(data: bytes) -> None:
    """A file may have any name that the system allows."""
    name = os.fsdecode(data[:200].replace(b"\0", b"_").replace(b"/", b"_"))
    with tempfile.TemporaryDirectory(dir=_folder()) as folder:
        path = Path(folder, f"m{name}.txt")
        path.write_bytes(b"HloModule m\n\nENTRY e {\n  ROOT p = f32[8]{0} reshape(q)\n}\n")
        _show(_no_crash(hlo_lint.lint(Path(folder))))
