"""Protocol buffers against the texts that XLA wrote beside them, and files that hold none."""

from __future__ import annotations

import gzip
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.hlo.wire import delimited
from hlo_lint.text.errors import DumpError, PayloadError
from hlo_lint.xla.limits import SECONDS
from hlo_lint.xla.proto import module_bytes, read_proto
from tests.conftest import completed

pytestmark = pytest.mark.slow

DUMPS: Final = Path(__file__).parents[2] / "fixtures" / "dumps" / "cpu-jax0.11.2"
PROTOS: Final = sorted(DUMPS.glob("as_*proto/*.hlo.pb*"))
SCHEDULED: Final = DUMPS / "as_proto" / "module_0000.jit_tanh_sum.cpu_after_optimizations.hlo.pb"

needs_jaxlib = pytest.mark.skipif(find_spec("jaxlib") is None, reason="jaxlib is not installed")
needs_protobuf = pytest.mark.skipif(
    find_spec("jaxlib") is None or find_spec("google") is None,
    reason="jaxlib or protobuf is not installed",
)
every_case = settings(max_examples=200)


def test_there_are_protos_of_both_kinds() -> None:
    assert {path.suffix for path in PROTOS} == {".pb", ".gz"}


@needs_jaxlib
@pytest.mark.parametrize("path", PROTOS, ids=lambda path: path.name)
def test_a_proto_is_the_text_beside_it(path: Path) -> None:
    beside = path.with_name(path.name.removesuffix(".gz").removesuffix(".hlo.pb") + ".txt")
    read, printed = read_proto(path), beside.read_text()
    assert rows(read) == rows(printed)
    # The proto's config is not read, so the head's `allow_spmd_…` are not printed.
    assert read.partition("\n")[2] == printed.partition("\n")[2]
    assert printed.startswith(read.partition("\n")[0])


@needs_jaxlib
def test_a_bare_module_and_a_snapshot_are_read_like_a_proto(tmp_path: Path) -> None:
    proto = SCHEDULED.read_bytes()
    module = module_bytes(proto)
    assert len(module) < len(proto)
    expected = read_proto(SCHEDULED)
    assert read_proto(written(tmp_path / "bare.pb", module)) == expected
    snapshot = delimited(1, proto).raw + delimited(4, b"cpu").raw
    assert read_proto(written(tmp_path / "snapshot.hlo.pb", snapshot)) == expected


# The text format


@needs_protobuf
@pytest.mark.parametrize(
    ("name", "opening", "closing"),
    [
        ("proto.hlo.pbtxt", "# XLA\nhlo_module {\n", "}\nbuffer_assignment: <>\n"),
        ("bare.pbtxt", "", ""),
        ("snapshot.textproto", "hlo: <hlo_module: {\n", "}; >, execution_platform: 'cpu'"),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "compressed"])
def test_the_text_format_gives_the_same(
    tmp_path: Path, name: str, opening: str, closing: str, pack: type[bytes]
) -> None:
    printed = text_format_of(SCHEDULED).decode().partition("buffer_assignment")[0]
    module = printed.removeprefix("hlo_module {\n").rstrip().removesuffix("}")
    assert 'opcode: "tanh"' in module
    path = tmp_path / (name + ".gz" * (pack is not bytes))
    path.write_bytes(pack((opening + module + closing).encode()))
    assert read_proto(path) == read_proto(SCHEDULED)


@needs_protobuf
def test_numbers_of_every_spelling_reach_xla(tmp_path: Path) -> None:
    values = "f32s: [1.5f, -inf, nan, -2e-3, 1e99, .25, 7, infinity, 0.1, 0, -1, 2]"
    says = "constant({1.5, -inf, nan, -0.002, inf, 0.25, 7, inf, 0.1, 0, -1, 2})"
    shape = "element_type: 11 dimensions: 0xC layout { minor_to_major: 0 }"
    constant = f"opcode: 'constant' literal {{ shape {{ {shape} }} {values} }}"
    assert says in read_proto(small_module(tmp_path, constant, shape=shape))


@needs_protobuf
def test_strings_are_unescaped(tmp_path: Path) -> None:
    spelled = r"""metadata { op_name: "a" '\x62\143' "\u00e9" # one string
      '\"' }"""
    text = read_proto(small_module(tmp_path, f'opcode: "negate" operand_ids: 1 {spelled}'))
    assert r'op_name="abc\303\251\""' in text


@needs_protobuf
@pytest.mark.parametrize(
    ("instruction", "says"),
    [
        ("colour: 3", '6:105 : Message type "xla.HloInstructionProto" has no field named'),
        ("opcode: add", ": Expected string but found: 'add'"),
        ("id: 9223372036854775808", ": Value out of range: 9223372036854775808"),
        (
            "literal { shape { element_type: F31 } }",
            'Enum type "xla.PrimitiveType" has no value named F31',
        ),
        ("operand_ids: [1 2]", 'Expected ","'),
    ],
)
def test_an_error_in_the_text_has_its_place(tmp_path: Path, instruction: str, says: str) -> None:
    assert says in refusal(small_module(tmp_path, instruction))


@needs_protobuf
def test_messages_nested_too_deeply_are_refused(tmp_path: Path) -> None:
    path = written(
        tmp_path / "deep.pbtxt", b"host_program_shape { result {" + b"tuple_shapes {" * 9999
    )
    assert "messages are nested too deeply" in refusal(path)


@needs_protobuf
def test_text_that_is_another_message_is_refused() -> None:
    config = next(DUMPS.parent.glob("gpu-*/*/*.config.pbtxt"))
    assert 'Message type "xla.HloModuleProto" has no field named' in refusal(config)


@needs_protobuf
@pytest.mark.parametrize("path", PROTOS, ids=lambda path: path.name)
def test_a_proto_survives_the_text_format(path: Path, tmp_path: Path) -> None:
    text = read_proto(path)
    spelled = written(tmp_path / "spelled.pbtxt", text_format_of(path))
    assert read_proto(spelled) == text


# What holds no module


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "it is empty"),
        (b"HloModule m\n\nENTRY e { ROOT p = f32[] parameter(0) }\n", "field 13 has wire type 7"),
        (b"\xff" * 40, "varint of more than 64 bits"),
        (b"\x0a\x03abc", "nor does its field 1: byte 2: field 12 ends"),
        (b"\x0a\x7fabc", "byte 0: field 1 ends 124 bytes after its message"),
        (b"\x00\x00", "byte 0: 0 is not a field number"),
    ],
)
def test_other_bytes_are_no_proto(tmp_path: Path, data: bytes, says: str) -> None:
    assert says in refusal(written(tmp_path / "x.hlo.pb", data))


def test_another_message_of_the_same_dump_is_no_proto() -> None:
    for path in [*DUMPS.rglob("*memory-usage-report.pb*"), *DUMPS.rglob("compile_options.pb")]:
        assert "it holds no module" in refusal(path)


def test_a_proto_that_is_cut_off_is_no_proto(tmp_path: Path) -> None:
    whole = (DUMPS / "as_proto/module_0000.jit_tanh_sum.before_optimizations.hlo.pb").read_bytes()
    assert module_bytes(whole)
    for end in range(len(whole)):
        with pytest.raises(PayloadError):
            module_bytes(whole[:end])
    assert "not an HloProto" in refusal(written(tmp_path / "x.hlo.pb", whole[:-1]))


@every_case
@given(st.integers(0, 880), st.binary(max_size=3))
def test_a_damaged_proto_is_read_or_refused(at: int, damage: bytes) -> None:
    whole = SCHEDULED.read_bytes()
    damaged = whole[:at] + damage + whole[at + len(damage) :]
    try:
        module = module_bytes(damaged)
    except PayloadError:
        return
    assert module in damaged


def test_gzip_data_that_is_cut_off_or_damaged_is_refused(tmp_path: Path) -> None:
    packed = gzip.compress(SCHEDULED.read_bytes())
    assert "cut off" in refusal(written(tmp_path / "cut.pb.gz", packed[:-9]))
    assert "CRC" in refusal(written(tmp_path / "crc.pb.gz", packed[:-8] + bytes(8)))
    assert "damaged" in refusal(written(tmp_path / "bad.pb.gz", packed[:10] + b"\xff" * 20))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in refusal(tmp_path / "x.hlo.pb")


# XLA's code in a process of its own


def test_without_jaxlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    without = [entry for entry in sys.path if not (Path(entry) / "jaxlib").exists()]
    monkeypatch.setattr(sys, "path", without)
    monkeypatch.setenv(SECONDS, "299")  # another child than that of other tests
    with pytest.raises(DumpError) as caught:
        read_proto(SCHEDULED)
    assert f"{caught.value}" == (
        f"{SCHEDULED}: pip install 'hlo-lint[xla]' to read protocol buffers: "
        "No module named 'jaxlib'"
    )


@needs_protobuf
def test_an_abort_of_xla_is_an_error_of_the_file(tmp_path: Path) -> None:
    mesh = "sharding { named_sharding { mesh { axes { name: 'x' size: -4 } } } }"
    path = small_module(tmp_path, f"opcode: 'negate' operand_ids: 1 {mesh}")
    said = refusal(path)
    assert said.startswith(f"{path}: XLA was ended by SIGABRT while it read this file; ")
    assert "Mesh axis size must be positive" in said


@needs_protobuf
def test_what_xla_refuses_is_an_error_with_its_reason(tmp_path: Path) -> None:
    assert "Unknown opcode: nagate" in refusal(small_module(tmp_path, "opcode: 'nagate'"))


@needs_jaxlib
def test_xla_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECONDS, "1e-6")
    with pytest.raises(DumpError, match=r"still at it after 1e-06 seconds"):
        read_proto(SCHEDULED)


@needs_jaxlib
def test_this_process_never_imports_jaxlib() -> None:
    script = (
        "import sys; from pathlib import Path; from hlo_lint.xla.proto import read_proto; "
        f"text = read_proto(Path({str(SCHEDULED)!r})); "
        "print(text.split()[0], [name for name in sys.modules if name.startswith('jax')])"
    )
    root = Path(__file__).parents[2]
    child = completed([sys.executable, "-c", script], cwd=root)
    assert (child.stdout, child.stderr) == ("HloModule []\n", "")


@needs_jaxlib
def test_all_files_are_read_by_one_child() -> None:
    script = (
        "import sys; from pathlib import Path; from hlo_lint.xla.proto import read_proto; "
        "sys.addaudithook(lambda event, _: event == 'subprocess.Popen' and print('started')); "
        "texts = [read_proto(Path(path)) for path in sys.argv[1:]]"
    )
    command = [sys.executable, "-c", script, *map(str, PROTOS[:3])]
    root = Path(__file__).parents[2]
    child = completed(command, cwd=root)
    assert (child.stdout, child.stderr) == ("started\n", "")


@needs_jaxlib
def test_the_current_directory_and_the_flags_of_xla_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = read_proto(SCHEDULED)
    written(tmp_path / "jaxlib.py", b"raise SystemExit('imported from the current directory')")
    written(tmp_path / "json.py", b"raise SystemExit('imported from the current directory')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XLA_FLAGS", f"--xla_no_such_flag --xla_dump_to={tmp_path}/dump")
    assert read_proto(SCHEDULED) == expected
    assert not (tmp_path / "dump").exists()


# Helpers


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def text_format_of(path: Path) -> bytes:
    from google.protobuf import text_format

    from hlo_lint.hlo.text_proto import new_message

    data = path.read_bytes()
    proto = new_message("xla.HloProto")
    proto.ParseFromString(gzip.decompress(data) if path.suffix == ".gz" else data)
    return bytes(text_format.MessageToString(proto), "utf-8")


def refusal(path: Path) -> str:
    with pytest.raises(DumpError) as caught:
        read_proto(path)
    assert f"{caught.value}".startswith(f"{path}: ")
    return f"{caught.value}"


def rows(text: str) -> list[tuple[str, bool, list[tuple[object, ...]]]]:
    """Every computation: name, whether it is the entry, its instructions as they were read."""
    (module,) = parse_file(text).modules
    assert not module.problems
    return [(part.name, part.is_entry, list(part.rows)) for part in module.computations]


def small_module(
    folder: Path,
    instruction: str,
    shape: str = "element_type: F32 dimensions: 2 layout { minor_to_major: 0 }",
) -> Path:
    """A module with one parameter, and one instruction that reads it; that is in line 6."""
    program = f"{{ parameters {{ {shape} }} parameter_names: 'a' result {{ {shape} }} }}"
    return written(
        folder / "small.pbtxt",
        f"""name: 'small' id: 1 entry_computation_name: 'e' entry_computation_id: 1
host_program_shape {program}
computations {{
  name: 'e' id: 1 root_id: 2 program_shape {program}
  instructions {{ id: 1 name: 'a' opcode: 'parameter' shape {{ {shape} }} }}
  instructions {{ id: 2 name: 'b' shape {{ {shape} }} {instruction} }}
}}
""".encode(),
    )
