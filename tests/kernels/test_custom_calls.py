"""Payloads of custom calls: read, shown, changed, and put back where they came from."""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_lint.hlo import wire
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.parser.mlir_dictionary import MlirValue, read_dictionary, spelled
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.hlo.parser.strings import c_escape, c_unescape, mlir_escape, mlir_unescape
from hlo_lint.hlo.wire import Reader
from hlo_lint.kernels import custom_calls
from hlo_lint.kernels.custom_calls import PayloadError, decode_payload, encode_payload, triton
from hlo_lint.kernels.custom_calls.carrier import content_of
from hlo_lint.kernels.custom_calls.gemm import DotDimensions
from hlo_lint.kernels.custom_calls.mosaic import MosaicDescriptor, read_module
from hlo_lint.text.source import decode as text_of
from tests.conftest import DUMPS, FIXTURES, ROOT, completed

PAYLOADS = FIXTURES / "payloads"
CASES = sorted(path.name for path in PAYLOADS.iterdir())
TRITON_CASES = [case for case in CASES if case not in ("pallas_triton", "mosaic")]

every_case = settings(max_examples=100)
needs_jaxlib = pytest.mark.skipif(find_spec("jaxlib") is None, reason="no jaxlib to read with")
needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="no jax to read MLIR with")


def dump_of(case: str) -> Path:
    (path,) = (PAYLOADS / case).glob("*gpu_after_optimizations.txt")
    return path


def text_in(path: Path) -> str:
    return text_of(path.read_bytes())


def instructions(text: str) -> Iterator[Instruction]:
    for module in parse_file(text).modules:
        yield from module.instructions()


@cache
def carrier_of(case: str) -> Instruction:
    """The one instruction of a case that carries something."""
    (found,) = filter(decode_payload, instructions(text_in(dump_of(case))))
    return found


def call_of(case: str) -> custom_calls.TritonCall:
    payload = decode_payload(carrier_of(case))
    assert isinstance(payload, custom_calls.TritonCall)
    return payload


def plain_of(case: str) -> triton.KernelCall:
    call = call_of(case).call
    assert isinstance(call, triton.KernelCall)
    return call


def aliases_of(call: custom_calls.TritonCall) -> tuple[triton.InputOutputAlias, ...]:
    assert isinstance(call.call, triton.AutotunedKernelCall)
    return call.call.input_output_aliases


def custom_call(attributes: str) -> Instruction:
    """The instruction of a text that XLA takes."""
    text = f"HloModule m\n\nENTRY e {{\n  ROOT c = f32[] custom-call(){attributes}\n}}\n"
    (found,) = instructions(text)
    return found


# ---- what the fixtures carry


@pytest.mark.parametrize(
    ("case", "aliases"),
    [
        ("add_right_legacy", [(1, 2, 4096)]), ("add_right_ffi", [(1, 2, 4096)]),
        ("add_wrong_legacy", [(1, 0, 4096)]), ("add_wrong_ffi", [(1, 0, 4096)]),
        ("add_none_legacy", []), ("add_none_ffi", []), ("add_wrong_size_legacy", [(1, 2, 2048)]),
    ],
)  # fmt: skip
def test_a_tuned_call_lists_what_it_saves(case: str, aliases: list[tuple[int, int, int]]) -> None:
    call = call_of(case)
    assert list(aliases_of(call)) == aliases
    assert [one.grid for one in call.kernel_calls] == [(8, 1, 1), (4, 1, 1)]
    assert call.pointer_count == 3


def test_a_call_says_its_kernel_and_parameters() -> None:
    call = plain_of("partial_ffi")
    assert call.parameters == (triton.Array(0, 16),) * 3
    assert (call.kernel.kernel_name, call.kernel.num_warps) == ("add_128", 4)
    assert (call.kernel.compute_capability, call.kernel.num_ctas) == (90, 1)
    assert "st.global.f32" in call.kernel.ptx


@pytest.mark.parametrize("carrier", ["ffi", "legacy"])
def test_a_tensor_descriptor_has_its_strides_in_elements(carrier: str) -> None:
    call = plain_of(f"descriptor_degenerate_{carrier}")
    assert call.parameters[0] == triton.TensorDescriptor(
        elem_type=9, swizzle=3, shape=(32, 1, 128), strides=(128, 1, 1), block_shape=(1, 1, 64),
        oob_fill=0,
    )  # fmt: skip
    assert call.parameters[3:5] == (triton.Scalar("i32", 128), triton.Scalar("i64", 128))
    assert call.pointers == (0, 7)


def test_a_pallas_kernel_says_its_grid_and_its_code() -> None:
    payload = decode_payload(carrier_of("pallas_triton"))
    assert isinstance(payload, custom_calls.PallasTritonCall)
    assert (payload.name, payload.grid, payload.num_warps) == ("add", (8, 1, 1), 4)
    assert payload.ir.startswith(b"ML\xefR")


def test_a_mosaic_kernel_keeps_its_bytecode() -> None:
    payload = decode_payload(carrier_of("mosaic"))
    assert isinstance(payload, custom_calls.MosaicCall)
    assert payload.module.startswith(b"ML\xefR")


def test_a_gemm_says_its_dimensions() -> None:
    path = next((DUMPS / "gpu-jax0.11.2" / "cublaslt_fission").glob("*gpu_after_opt*ions.txt"))
    payloads = map(decode_payload, instructions(text_in(path)))
    (gemm,) = (one for one in payloads if isinstance(one, custom_calls.GemmConfig))
    assert (gemm.target, gemm.alpha, gemm.beta) == ("__cublas$lt$matmul", 1, 0)
    assert gemm.dimensions == DotDimensions((0,), (1,), (0,), (2,))


@pytest.mark.parametrize(
    "attributes",
    ['custom_call_target="Sharding"', 'custom_call_target="my_ffi", backend_config={n = 1 : i32}'],
)
def test_a_call_of_something_else_carries_nothing(attributes: str) -> None:
    assert decode_payload(custom_call(f", {attributes}")) is None


# ---- and back


@pytest.mark.parametrize("case", TRITON_CASES)
def test_an_unchanged_payload_is_the_text_as_it_stands(case: str) -> None:
    instruction = carrier_of(case)
    assert encode_payload(instruction, call_of(case)) == instruction.attributes["backend_config"]


@pytest.mark.parametrize("case", TRITON_CASES)
def test_a_message_written_again_is_the_same_bytes(case: str) -> None:
    call = call_of(case)
    again = triton.with_message(call, wire.serialize(Reader(call.message).fields()))
    assert again.message == call.message
    text = encode_payload(carrier_of(case), again)
    assert triton.decode_triton(call.target, content_of(text)).message == call.message


@pytest.mark.parametrize("case", CASES)
def test_escapes_are_those_of_xla(case: str) -> None:
    printed = carrier_of(case).attributes["backend_config"]
    if printed.startswith('"'):
        assert f'"{c_escape(c_unescape(printed[1:-1]))}"' == printed
        return
    dictionary = read_dictionary(printed)
    for name, value in dictionary.values.items():
        assert dictionary.with_value(name, value).text == printed


@pytest.mark.parametrize("carrier", ["ffi", "legacy"])
@pytest.mark.parametrize("which", ["right", "wrong", "none"])
def test_a_list_of_aliases_is_replaced_and_nothing_else(which: str, carrier: str) -> None:
    right, case = call_of(f"add_right_{carrier}"), f"add_{which}_{carrier}"
    changed = triton.with_aliases(call_of(case), [triton.InputOutputAlias(1, 2, 4096)])
    assert changed.message == right.message
    text = encode_payload(carrier_of(case), changed)
    assert triton.decode_triton(changed.target, content_of(text)) == changed


def test_aliases_can_be_several_or_none() -> None:
    wanted = (triton.InputOutputAlias(0, 3, 1 << 40), triton.InputOutputAlias(1, 2, 8))
    changed = triton.with_aliases(call_of("add_right_ffi"), wanted)
    assert aliases_of(changed) == wanted
    assert aliases_of(triton.with_aliases(changed, [])) == ()


def test_a_call_that_is_not_autotuned_takes_no_aliases() -> None:
    with pytest.raises(PayloadError, match="only an autotuned call"):
        triton.with_aliases(call_of("partial_ffi"), [])


@pytest.mark.parametrize("carrier", ["ffi", "legacy"])
def test_strides_change_in_the_descriptor_and_after_it(carrier: str) -> None:
    call = call_of(f"descriptor_degenerate_{carrier}")
    changed = triton.with_tensor_strides(call, {(0, 0): (128, 128, 1)})
    assert changed.message == call_of("descriptor_dense_ffi").message
    assert isinstance(changed.call, triton.KernelCall)
    assert changed.call.parameters[4:7] == tuple(triton.Scalar("i64", n) for n in (128, 128, 1))


@pytest.mark.parametrize("place", [(0, 1), (1, 0), (0, 99)])
def test_strides_want_a_descriptor(place: tuple[int, int]) -> None:
    with pytest.raises(PayloadError, match="is not a tensor descriptor with 3 strides"):
        triton.with_tensor_strides(call_of("descriptor_dense_ffi"), {place: (1, 1, 1)})


def test_unknown_fields_survive_in_their_place() -> None:
    call = call_of("add_wrong_legacy")
    first, *rest = Reader(call.message).fields()
    later, last = wire.delimited(99, b"of a later release"), wire.varint_field(1000, 7)
    inside = wire.delimited(2, wire.bytes_of(first) + later.raw)
    message = wire.serialize([later, inside, *rest, last])
    changed = triton.with_aliases(
        replace(call, message=message), [triton.InputOutputAlias(1, 2, 4096)]
    )
    expected = call_of("add_right_legacy")
    assert changed.call == expected.call
    fields = Reader(changed.message).fields()
    assert [one.number for one in fields] == [99, 2, *(one.number for one in rest), 1000]
    assert later.raw in wire.bytes_of(fields[1])


_READ_AND_PRINT = """
import sys
try:
    from jaxlib import _hlo as xla
except ImportError:
    from jaxlib import _jax as xla
for text in sys.stdin.read().split("\\0"):
    print(xla.hlo_module_from_text(text).to_string())
"""


@needs_jaxlib
def test_xla_reads_what_was_written_and_prints_it_the_same() -> None:
    texts, written = [], []
    for case in TRITON_CASES:
        instruction, payload = carrier_of(case), call_of(case)
        payload = triton.with_message(payload, payload.message + wire.varint_field(99, 1).raw)
        before = instruction.attributes["backend_config"]
        after = encode_payload(instruction, payload)
        # An older release does not know how a newer one spells a mesh.
        text = re.sub(r" sharding=\{mesh\S+ \[\{\}\]\},", "", text_in(dump_of(case)))
        texts.append(re.sub(r" sharding=\{mesh.*?\]\},", "", text).replace(before, after))
        written.append(f"backend_config={after}")
    command = [sys.executable, "-P", "-c", _READ_AND_PRINT]
    child = completed(command, input="\0".join(texts))
    assert child.returncode == 0, child.stderr
    assert [text for text in written if text not in child.stdout] == []


# ---- escapes


@every_case
@given(st.binary())
def test_any_bytes_survive_either_escape(data: bytes) -> None:
    assert mlir_unescape(mlir_escape(data)) == data
    assert c_unescape(c_escape(data)) == data


@pytest.mark.parametrize(
    ("unescape", "text", "at"),
    [
        (mlir_unescape, r"ab\9", 2), (mlir_unescape, "\\", 0), (mlir_unescape, r"\234\'", 4),
        (c_unescape, r"ab\9C", 2), (c_unescape, r"\400", 0), (c_unescape, "x\\", 1),
    ],
)  # fmt: skip
def test_a_backslash_begins_an_escape(unescape: Callable[[str], bytes], text: str, at: int) -> None:
    with pytest.raises(PayloadError, match="is not an escape") as caught:
        unescape(text)
    assert (caught.value.offset, caught.value.unit) == (at, "character")


def test_a_dictionary_may_come_in_quotes_and_goes_back_into_them() -> None:
    printed = carrier_of("add_wrong_ffi").attributes["backend_config"]
    quoted = f'"{c_escape(printed.encode())}"'
    target = 'custom_call_target="triton_kernel_call_ffi"'
    instruction = custom_call(f", {target}, backend_config={quoted}")
    call = decode_payload(instruction)
    assert isinstance(call, custom_calls.TritonCall)
    assert call == call_of("add_wrong_ffi")
    changed = encode_payload(instruction, triton.with_aliases(call, []))
    assert changed.startswith('"{opaque = \\"x')
    assert triton.decode_triton(call.target, content_of(changed)) == triton.with_aliases(call, [])


# ---- dictionaries


def test_a_dictionary_says_what_each_value_is_and_where_it_stands() -> None:
    text = (
        r'{a, b = -3 : i64, c = "x\9C\"", d = [1 : i32, "y"], e = array<i64: 1, 2>, '
        r"f = #gpu.space<a, [1] -> (b)>, g = dense<[1, 2]> : tensor<2xi64>, h = 1.5 : f32, "
        r'i = {j = true, "k l" = unit}, m = @n::@o, p = "s" : !q.r<t>, u = array<i32>}'
    )
    found = read_dictionary(text)
    assert found.values == {
        "a": None, "b": -3, "c": b'x\x9c"', "d": (1, b"y"), "e": (1, 2),
        "f": "#gpu.space<a, [1] -> (b)>", "g": "dense<[1, 2]> : tensor<2xi64>", "h": 1.5,
        "i": {"j": True, "k l": None}, "m": "@n::@o", "p": b"s", "u": (),
    }  # fmt: skip
    spans = {name: text[one.start : one.end] for name, one in found.entries.items()}
    assert (spans["b"], found.entries["b"].type) == ("-3", "i64")
    assert (spans["p"], found.entries["p"].type) == ('"s"', "!q.r<t>")
    assert spans["d"] == '[1 : i32, "y"]'
    assert found.with_value("e", (7,)).text == text.replace("array<i64: 1, 2>", "array<i64: 7>")
    assert found.with_value("b", 9).text == text.replace("-3 : i64", "9 : i64")


@pytest.mark.parametrize(
    ("text", "at"),
    [("", 0), ("{a = }", 5), ("{a = 1", 6), ("{a = 1 b = 2}", 7), ('{a = "\\9"}', 6), ("{} x", 3)],
)
def test_what_is_no_dictionary_says_where(text: str, at: int) -> None:
    with pytest.raises(PayloadError) as caught:
        read_dictionary(text)
    assert caught.value.offset == at


def test_brackets_may_be_nested_too_deep() -> None:
    with pytest.raises(PayloadError, match="too deep"):
        read_dictionary("{a = " + "[" * 9999 + "]" * 9999 + "}")


@every_case
@given(st.text(alphabet='{}[]<>(),:=" \\#@!-.1aβ\n', max_size=30))
def test_any_text_is_a_dictionary_or_a_payload_error(text: str) -> None:
    written = f"{{a = {text}}}"
    try:
        assert read_dictionary(written).text == written
    except PayloadError as error:
        place = error.offset
    else:
        return
    assert place is not None
    assert place <= len(written)


_mlir_values = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.from_regex(r"[a-z_]{2,8}", fullmatch=True), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.slow
@every_case
@given(_mlir_values)
def test_a_value_spelled_is_read_as_the_same(value: MlirValue) -> None:
    assert read_dictionary(f"{{it = {spelled(value)}}}").values == {"it": value}


# The wire format


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("0a05616263", "byte 0: field 1 ends 2 bytes after its message"),
        ("08", "byte 1: the message ends in the middle of a varint"),
        ("08" + "ff" * 10 + "01", "byte 1: a varint of more than 64 bits"),
        ("0b", "byte 0: field 1 has wire type 3"),
        ("00", "byte 0: 0 is not a field number"),
        ("0801" + "09616263", "byte 2: field 1 ends 5 bytes after its message"),
    ],
)
def test_malformed_bytes_say_which(data: str, says: str) -> None:
    with pytest.raises(PayloadError, match=f"^{says}$"):
        Reader(bytes.fromhex(data)).fields()


def test_a_message_of_too_many_fields_is_refused() -> None:
    data = wire.delimited(1, wire.packed_field(2, range(9)).raw).raw
    reader = Reader(data, max_fields=10)
    (outer,) = reader.fields()
    (inner,) = reader.fields(outer)
    with pytest.raises(PayloadError, match=r"^byte 12: more than 10 fields$"):
        reader.numbers(inner)


@every_case
@given(st.binary(max_size=60))
def test_any_bytes_are_fields_or_a_payload_error(data: bytes) -> None:
    try:
        assert wire.serialize(Reader(data).fields()) == data
    except PayloadError as error:
        place = error.offset
    else:
        return
    assert place is not None
    assert place <= len(data)


def test_a_number_written_longer_than_needed_stays_so() -> None:
    data = bytes.fromhex("08ac8200" + "1203616263")
    reader = Reader(data)
    number, text = reader.fields()
    assert wire.int_of(number) == 300
    assert wire.rewrite(reader, {text.start: [wire.varint_field(3, 1)]}) == data[:4] + b"\x18\x01"


# ---- broken payloads


def opaque(message: bytes) -> bytes:
    return zlib.compress(message)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "its zlib data is truncated after 0 bytes"),
        (b"no zlib", "its zlib data is damaged"),
        (opaque(b"")[:-1], "truncated after 7 bytes"),
        (opaque(b"") + b"x", "byte 8: bytes after the end of its zlib data"),
        (opaque(b""), "neither a kernel call nor an autotuned one"),
        (opaque(b"\x0a\x00"), "byte 2: a kernel call without its kernel"),
        (opaque(b"\x0a\x02\x0a\x00\x12\x00"), "both a kernel call and an autotuned one"),
        (opaque(b"\x08\x01"), "byte 1: field 1 does not hold bytes"),
        (opaque(b"\x0a\x02\x0a\x00" * 2), "duplicate field 1 of TritonAnyKernelCall"),
        (opaque(b"\x0a\x02\x0a\x00\x22\x01\xff"), "byte 6: field 4 is not UTF-8"),
        (opaque(bytes(1 << 20) * 65), "become more than"),
    ],
)
def test_a_broken_legacy_payload_says_what_is_wrong(content: bytes, says: str) -> None:
    instruction = custom_call(
        f', custom_call_target="triton_kernel_call", backend_config="{c_escape(content)}"'
    )
    with pytest.raises(PayloadError, match=says):
        decode_payload(instruction)


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ('"triton_kernel_call_ffi"', "has no backend_config"),
        ('"triton_kernel_call_ffi", backend_config={other = "x"}', "expected the string `opaque`"),
        ('"triton_kernel_call_ffi", backend_config={opaque = 1 : i32}', "expected the string"),
        (
            r'"triton_kernel_call_ffi", backend_config={opaque = "\zz"}',
            r"11: \\\\zz is not an escape",
        ),
        ('"__gpu$xla.gpu.triton", backend_config={name = 1 : i32}', "`name` is not a string"),
        ('"__gpu$xla.gpu.triton", backend_config={name = "k"}', "expected `grid_x`"),
        ('"mosaic_gpu_v2", backend_config={kernel_hash = "k"}', "expected `module`"),
        ('"__cublas$gemm", backend_config={"beta":"x"}', "beta is not a number"),
        ('"__cublas$gemm", backend_config="[]"', "expected a JSON object"),
    ],
)
def test_a_broken_call_says_what_is_wrong(attributes: str, says: str) -> None:
    with pytest.raises(PayloadError, match=says):
        decode_payload(custom_call(f", custom_call_target={attributes}"))


def test_a_payload_that_grows_beyond_its_bound_is_not_expanded() -> None:
    with pytest.raises(PayloadError, match="a decompression bomb, or not a kernel"):
        triton.decompressed(zlib.compress(bytes(triton.ANY_EXPANSION + 1)))
    assert (
        len(triton.decompressed(zlib.compress(bytes(triton.ANY_EXPANSION)))) == triton.ANY_EXPANSION
    )


@every_case
@given(st.data())
def test_a_damaged_message_is_a_call_or_a_payload_error(data: st.DataObject) -> None:
    message = bytearray(call_of(data.draw(st.sampled_from(TRITON_CASES))).message)
    for _ in range(data.draw(st.integers(1, 4))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    del message[data.draw(st.integers(1, len(message))) :]
    try:
        call = triton.decode_triton("triton_kernel_call", opaque(bytes(message)))
    except PayloadError:
        return
    assert call.pointer_count >= 0
    assert custom_calls.render_payload(call)


# ---- as a person reads it


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("add_wrong_ffi", "InputOutputAlias(input_buffer=1, output_buffer=0, size_bytes=4096)"),
        ("descriptor_degenerate_legacy", "strides=(128, 1, 1)"),
    ],
)
def test_a_call_is_shown_with_its_fields(case: str, words: str) -> None:
    assert words in custom_calls.render_payload(call_of(case))


# ---- MLIR


@needs_jax
@pytest.mark.skipif(
    find_spec("jax") is None or tuple(map(int, version("jax").split(".")[:2])) < (0, 11),
    reason="the fixture is bytecode of jax 0.11.2",
)
def test_the_descriptors_of_a_mosaic_kernel_are_read_by_mlir() -> None:
    payload = decode_payload(carrier_of("mosaic"))
    assert isinstance(payload, custom_calls.MosaicCall)
    module = read_module(payload.module)
    descriptor = MosaicDescriptor(
        elem_type=5, rank=4, shape=(8, 2, 8, 64), strides=(1024, 64, 128, 1), swizzle_bytes=128,
        block_shape=(8, 1, 8, 64),
    )  # fmt: skip
    assert module.descriptors == (descriptor, descriptor)
    assert "func.call" in module.text


@pytest.mark.slow
@needs_jax
def test_what_mlir_does_not_read_says_why() -> None:
    with pytest.raises(PayloadError, match=r"MLIR rejects it: .*bytecode"):
        read_module(b"ML\xefR\x0dMLIR24.0.0git\x00\xff")


def test_without_jax_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    without = [entry for entry in sys.path if not (Path(entry) / "jax").exists()]
    monkeypatch.setattr(sys, "path", [str(ROOT), *without])
    with pytest.raises(PayloadError, match=r"install jax.*No module named 'jax"):
        read_module(b"ML\xefR")
