"""The real dumps, with what XLA did to each, where the archives lie beside the checkout."""

from __future__ import annotations

import json
import random
import tarfile
from pathlib import Path

import pytest

import hlo_lint
from hlo_lint.engine.proof.terms import prove_equal
from hlo_lint.kernels.custom_calls import TritonCall, decode_payload
from hlo_lint.kernels.custom_calls.triton import AutotunedKernelCall, TensorDescriptor
from hlo_lint.rules.form.malformed_text import MalformedText
from tests.conftest import ROOT, present
from tests.mutations import mutate

ARCHIVES = ROOT.parent / "shared" / "dumps"
NEXT = "layout_normalization"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ARCHIVES.is_dir(), reason="the archives of dumps are not here"),
]

CRASHES = {
    "jax0.10.0_forced_cublaslt_CRASH": "autotuner",
    "jax0.10.0_no_reshape_decomposer_CRASH": "layout-assignment",
    "jax0.10.2_no_reshape_decomposer_CRASH": "layout-assignment",
    "jax0.11.2_no_reshape_decomposer_CRASH": "layout-assignment",
    "h200_crash/gemm_layouts": "layout-assignment",
    "h200_truth/003_retcheck": "layout-assignment",
}


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dumps")
    for archive in sorted(ARCHIVES.glob("*.tar.xz")):
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def texts(dumps: Path) -> list[bytes]:
    contents = (path.read_bytes() for path in sorted(dumps.rglob("*")) if path.is_file())
    return [data for data in contents if data.startswith(b"HloModule")]


def test_the_bytes_of_every_text_survive(texts: list[bytes]) -> None:
    assert len(texts) == 4736
    for data in texts:
        module = hlo_lint.parse(data)
        assert hlo_lint.emit(module).encode("utf-8", "surrogateescape") == data
        assert not module.problems


def test_no_text_that_xla_wrote_is_malformed(texts: list[bytes]) -> None:
    for data in random.Random(0).sample(texts, 1_500):
        assert not list(MalformedText().check(hlo_lint.parse(data)))


def test_the_bytes_of_ten_thousand_damaged_texts_survive(texts: list[bytes]) -> None:
    short = [data for data in texts if len(data) < 120_000]
    chance = random.Random(0)
    for _ in range(10_000):
        data = mutate(chance.choice(short), short, chance)
        module = hlo_lint.parse(data)
        assert hlo_lint.emit(module).encode("utf-8", "surrogateescape") == data
        assert isinstance(module.problems, tuple)


def test_an_error_in_exactly_the_modules_that_died(dumps: Path) -> None:
    lines = (dumps / "h200/reshape_cases.jsonl").read_text().splitlines()
    cases = [json.loads(line) for line in lines]
    died = {f"jit_case_{case['seed']}" for case in cases if case["error"] is not None}
    report = hlo_lint.lint(dumps / "h200/reshape_cases", ["reshape-moves-data"], before=NEXT)
    assert (len(died), len(cases)) == (90, 150)
    errors = [f for f in report.findings if f.severity is hlo_lint.Severity.ERROR]
    assert {finding.module for finding in errors} == died
    assert len(errors) == len(report.findings)


@pytest.mark.parametrize("form", ["copy", "transpose"])
def test_every_one_of_them_is_fixed_and_keeps_its_values(dumps: Path, form: str) -> None:
    fixed = hlo_lint.fix(dumps / "h200/reshape_cases", before=NEXT, form=form)
    assert fixed.remaining.clean
    changed = [file for file in fixed.files if file.edits]
    assert len(changed) == 90
    for file in changed:
        assert prove_equal(hlo_lint.parse(file.before), hlo_lint.parse(file.after)).moves
        assert hlo_lint.fix(file.after, before=NEXT, form=form).text == file.after


def only_error(path: Path, rules: list[str] | None = None) -> hlo_lint.Diagnostic:
    """The finding, an error."""
    (finding,) = hlo_lint.lint(path, rules).findings
    assert finding.severity is hlo_lint.Severity.ERROR
    return finding


@pytest.mark.parametrize(("folder", "guilty"), CRASHES.items())
def test_a_crash_has_one_cause_and_names_its_pass(dumps: Path, folder: str, guilty: str) -> None:
    finding = only_error(dumps / folder)
    assert finding.instruction is not None
    assert present(finding.introduced_by).pass_name == guilty
    death = only_error(dumps / folder, ["compilation-died"])
    assert death.message.startswith(f"compilation died in {NEXT}: ")


def test_each_module_that_died_behind_the_autotuner_is_found_by_its_file(dumps: Path) -> None:
    files = sorted((dumps / "deviceless_examples/003_corpus").glob("module_*.txt"))
    assert len(files) == 23
    for file in files:
        only_error(file)
        death = only_error(file, ["compilation-died"])
        assert death.message.startswith(f"compilation dies in {NEXT}: ")


TRUE_OF_HEALTHY_DUMPS = {
    "incomplete-dump",
    "reshape-runs-as-kernel",
    "gemm-breaks-on-backend-flip",
    "start-without-overlap",
    "gemm-slows-on-backend-flip",
    "change-without-effect",  # of algsimp, once in convnet
}
"""They cost time, or might on another run; none of them is an error."""


def test_healthy_dumps_have_no_errors(dumps: Path) -> None:
    names = "h200_x2 h200_offload h200_fission large_language_models multimodal science".split()
    healthy = [
        *(path for path in (dumps / "h200").iterdir() if path.is_dir()),
        *(path for path in dumps.glob("jax*") if not path.name.endswith("CRASH")),
        *(dumps / name for name in (*names, "vision_diffusion")),
    ]
    for folder in healthy:
        if folder.name != "reshape_cases":
            assert not errors(folder), folder
            found = {finding.rule for finding in hlo_lint.lint(folder).findings}
            assert found <= TRUE_OF_HEALTHY_DUMPS, folder


WRONG_ON_THE_FIRST_RUN = """
000_accum_none_legacy 000_accum_wrong_legacy 000_accumparam_none_ffi 000_accumparam_none_legacy
000_accumparam_wrong_ffi 000_accumparam_wrong_legacy 000_donate_ffi 001_alias10_legacy 001_partial
003_retcheck 004_bad
""".split()
ENDINGS = ("none_ffi", "none_legacy", "wrong_ffi", "wrong_legacy")
RIGHT_BY_LUCK = ["000_accum_none_ffi", "000_accum_wrong_ffi"]
RIGHT = """
000_accum_right_ffi 000_accum_right_legacy 000_accumparam_right_ffi 000_accumparam_right_legacy
000_donate_legacy 000_live_accum_wrong 000_live_accumparam_wrong 000_noalias_ffi 000_noalias_legacy
000_prealloc_empty_ffi 000_prealloc_empty_legacy 000_prealloc_ffi 000_prealloc_legacy
001_alias10_fixed 002_d2d 002_offload 002_stream 004_fixed 004_good
""".split()


def errors(folder: Path) -> list[str]:
    found = hlo_lint.lint(folder).findings
    return [f.message for f in found if f.severity is hlo_lint.Severity.ERROR]


@pytest.mark.parametrize("case", WRONG_ON_THE_FIRST_RUN)
def test_what_an_h200_computed_wrong_or_refused_is_an_error(dumps: Path, case: str) -> None:
    found = errors(dumps / "h200_truth" / case)
    assert any("(latent)" not in message for message in found)


@pytest.mark.parametrize("case", [*RIGHT, *RIGHT_BY_LUCK])
def test_what_an_h200_computed_right_has_no_error_but_a_latent_one(dumps: Path, case: str) -> None:
    found = errors(dumps / "h200_truth" / case)
    assert len(found) == (case in RIGHT_BY_LUCK)
    assert all(message.endswith("(latent)") for message in found)


@pytest.mark.parametrize(
    ("case", "saved", "strides"),
    [
        *((f"000_accum_{end}", [(1, 2, 2097152)], []) for end in ENDINGS),
        ("000_accumparam_wrong_ffi", [(1, 2, 2097152)], []),
        ("001_alias10_legacy", [(1, 2, 4096)], []),
        ("004_bad", [], [(128, 128, 1)]),
    ],
)
def test_a_mended_payload_says_what_ran_right(
    dumps: Path, case: str, saved: list[tuple[int, ...]], strides: list[tuple[int, ...]]
) -> None:
    fixed = hlo_lint.fix(dumps / "h200_truth" / case)
    assert not [f for f in fixed.findings if f.severity is hlo_lint.Severity.ERROR]
    (file,) = (file for file in fixed.files if file.edits)
    decoded = map(decode_payload, hlo_lint.parse(file.after).instructions())
    (payload,) = (payload for payload in decoded if isinstance(payload, TritonCall))
    call = payload.call
    pairs = call.input_output_aliases if isinstance(call, AutotunedKernelCall) else ()
    assert [tuple(pair) for pair in pairs] == saved
    assert [
        parameter.strides
        for call in payload.kernel_calls
        for parameter in call.parameters
        if isinstance(parameter, TensorDescriptor)
    ] == strides
