"""The seeds of fuzzing: small fixtures, given to the targets that read their kind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from hlo_lint.dumps.artefacts import ARTEFACTS
from tests.fuzz.targets import METHODS, PAYLOAD_TARGETS, SEPARATOR, STEMS, TARGETS

FIXTURES = Path(__file__).parents[2] / "fixtures"
MAX_BYTES = 6000

PATTERNS = (
    "reshape(custom_call())",
    'm.transpose(m.copy("inner").one_user()).named("outer")',
    'fusion(any(), "x").attr(kind="kLoop").any_order()',
    'dot().shape(array(dtype="bf16", rank=2)).shape("f32[8]")',
)
COMMENTS = (
    "allow reshape-moves-data -- it is cheap",
    "allow-file layout, memory -- all of it\n",
    "begin allow verifier -- here\nx\n// hlo-lint: end allow verifier",
    "stage gpu post-layout",
)
SETTINGS = (
    'select = ["layout"]\njobs = 2\n[severity]\nverifier = "off"\n',
    '[rules.reshape-moves-data]\nmove-as = "copy"\n[[allow]]\nrule = "layout"\nreason = "x"\n',
    'stage = "gpu post-layout"\nexclude = ["**/x*"]\nbefore = "layout_normalization"\n',
)


@cache
def texts() -> tuple[bytes, ...]:
    """Texts of HLO."""
    files = sorted(path for path in FIXTURES.rglob("*.hlo") if path.stat().st_size < MAX_BYTES)
    return tuple(path.read_bytes() for path in files)


@cache
def _contents(*endings: str) -> tuple[bytes, ...]:
    files = (path for path in sorted(FIXTURES.rglob("*")) if path.name.endswith(endings))
    return tuple(path.read_bytes()[: 2 * MAX_BYTES] for path in files if path.is_file())[:40]


def seeds(name: str) -> Iterator[bytes]:
    """The inputs that a target begins with."""
    match name:
        case "payload":
            for number in range(len(PAYLOAD_TARGETS)):
                yield from (bytes([number]) + config for config in _configs())
        case "artefact":
            for number, ending in enumerate(sorted(ARTEFACTS)):
                yield from (bytes([number]) + text for text in _contents(ending))
        case "kernel_text":
            yield from _contents(".ptx", ".log")
        case "match":
            yield from (f"{pattern}\n".encode() + texts()[0] for pattern in PATTERNS)
        case "comment":
            yield from map(str.encode, COMMENTS)
        case "settings":
            yield from map(str.encode, SETTINGS)
        case "baseline":
            yield b'{"version": 2, "findings": [{"rule": "layout", "fingerprint": "0"}]}'
        case "editor":
            yield from (b"\1\2\3\4\5\6\7\10" + text for text in texts())
        case "message":
            yield from _conversations()
        case "directory":
            for text in texts()[:60]:
                yield SEPARATOR.join(bytes([number]) + text for number in (0, 1, 3))
            for number, stem in enumerate(STEMS):
                ending = stem[stem.find("-") :] if "-" in stem else f".{stem.rpartition('.')[2]}"
                for text in _contents(ending)[:3]:
                    yield bytes([3]) + texts()[0] + SEPARATOR + bytes([number]) + text
        case "file_name":
            yield b"odule_0001.jit_f.before_optimizations"
        case _:
            assert name in TARGETS
            yield from texts()


def _conversations() -> Iterator[bytes]:
    """A text that is opened, and each question about it."""
    named = {"uri": "untitled:a"}
    at = {"line": 3, "character": 9}
    whole = {"start": {"line": 0, "character": 0}, "end": {"line": 9, "character": 0}}
    asked = {
        "textDocument": named,
        "position": at,
        "range": whole,
        "newName": "b",
        "context": {"includeDeclaration": True, "diagnostics": []},
        "changes": [{"uri": "untitled:a", "type": 1}],
        "settings": {"hlo-lint": {"select": ["layout"]}},
        "title": "x",
        "data": named,
        "contentChanges": [{"range": whole, "text": "x"}],
    }
    for number, method in enumerate(METHODS):
        version = {"version": 2} if method.endswith("didChange") else {}
        asked["textDocument"] = named | version
        for text in texts()[number::60]:
            source = text.decode("utf-8", "replace")
            item = {**named, "languageId": "hlo", "version": 1, "text": source}
            opened = json.dumps({"textDocument": item}).encode()
            question = bytes([number]) + json.dumps(asked).encode()
            yield b"\n".join((b"\0" + opened, question, question))


@cache
def _configs() -> tuple[bytes, ...]:
    import hlo_lint
    from hlo_lint.kernels.custom_calls.carrier import content_of

    found = []
    for path in sorted((FIXTURES / "payloads").rglob("*.txt"))[:200]:
        for module in hlo_lint.parse_all(path.read_bytes()):
            for instruction in module.instructions():
                config = instruction.attribute_text("backend_config")
                if instruction.opcode == "custom-call" and config and len(config) < 3 * MAX_BYTES:
                    found.append(content_of(config))
    return tuple(dict.fromkeys(found))[:20]
