"""The autotuner's choice: contests of known counts, ties, failures, changed winners."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlo_lint.dumps.artefacts.autotune import Autotuning, read_autotuning
from hlo_lint.kernels.autotuning import fragile_winner
from hlo_lint.kernels.autotuning.fragile_winner import changed_winners, fragile, subject_of
from hlo_lint.rules.registry import find_rule
from tests.conftest import FIXTURES, present

AUTOTUNE = FIXTURES / "autotune"
NAMES = sorted(path.name for path in AUTOTUNE.glob("*.textproto"))


def log(name: str) -> Autotuning:
    return read_autotuning((AUTOTUNE / name).read_text("utf-8"))


def timed(**backends: list[int]) -> Autotuning:
    """A log of one instruction; 0 is a candidate that failed. cuBLASLt needs 32 MiB, as ever."""
    profiles = [
        f"{'config_profiles' if time else 'failed_configs'} {{ config {{ backend: {name} }} "
        + ("scratch_bytes: 33554432 " if name.startswith("CUBLASLT") else "")
        + (f"run_time {{ nanos: {time} }} }}" if time else "kind: COMPILATION_FAILED }")
        for name, times in backends.items()
        for time in times
    ]
    return read_autotuning(
        f'instruction_profiles {{ hlo_fingerprint: "f" {" ".join(profiles)} '
        'hlo_text: "%dot = f32[2] fusion(%p)" }'
    )


def contest(**backends: list[int]) -> fragile_winner.Contest:
    (tuned,) = timed(**backends).instructions
    return present(fragile_winner.contest_of(tuned))


def no_contest(**backends: list[int]) -> bool:
    (tuned,) = timed(**backends).instructions
    return fragile_winner.contest_of(tuned) is None


def one_fragile(**backends: list[int]) -> fragile_winner.Fragile:
    (found,) = fragile(timed(**backends))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_fixture_is_read_whole(name: str) -> None:
    read = log(name)
    assert (read.problems, bool(read.instructions)) == ((), True)


@pytest.mark.parametrize("name", ["new.textproto", "old.textproto"])
def test_both_formats_give_the_same_verdicts(name: str) -> None:
    assert [(each.tuned.name, each.contest.margin) for each in fragile(log(name))] == [
        ("loop_add_fusion", 160),
        ("loop_reduce_fusion", 0),
    ]


def test_the_verdict_names_the_instruction_both_times_and_both_counts() -> None:
    assert fragile(log("new.textproto"))[0].reason == (
        "the autotuner's choice for %loop_add_fusion (hlo_fingerprint "
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1) may change from run to run: NATIVE_EMITTER (3.36 us, "
        "1 sample) beat BLOCK_LEVEL_EMITTER (3.52 us, 2 samples) by 160 ns of 3.36 us, but each "
        "candidate is timed once and a lead below 16% is not stable"
    )


def test_the_larger_number_of_samples_is_told_where_it_won() -> None:
    assert one_fragile(A=[3000] * 7, B=[3032]).reason.endswith(
        "; the minimum of 7 samples is low by chance more often than a single sample"
    )
    assert "by chance" not in one_fragile(A=[3000], B=[3032] * 7).reason


def test_the_place_is_the_record_of_the_instruction() -> None:
    read = log("new.textproto")
    for each in fragile(read):
        record = read.text[each.tuned.span.start : each.tuned.span.end]
        assert record.startswith("instruction_profiles {")
        assert f'hlo_fingerprint: "{each.tuned.fingerprint}"' in record


def test_an_old_log_has_a_name_and_no_fingerprint() -> None:
    first = fragile(log("old.textproto"))[0]
    assert (subject_of(first.tuned), first.tuned.fingerprint) == ("%loop_add_fusion", "")


def test_an_instruction_without_a_name_is_told_by_its_fingerprint() -> None:
    read = read_autotuning(
        'instruction_profiles { hlo_fingerprint: "f" '
        "config_profiles { config { backend: A } run_time { nanos: 32 } } "
        "config_profiles { config { backend: B } run_time { nanos: 32 } } }"
    )
    assert [subject_of(each.tuned) for each in fragile(read)] == ["(hlo_fingerprint f)"]


def test_a_tie_is_fragile_and_said_to_be_one() -> None:
    assert "only by its place in the list" in one_fragile(A=[3424], B=[3424]).reason


def test_a_lead_is_sure_from_the_threshold_on() -> None:
    enough = round(10_000 * fragile_winner.SURE)
    assert fragile(timed(A=[10_000], B=[enough])) == ()
    assert one_fragile(A=[10_000], B=[enough - 1]).contest.margin == enough - 10_001


def test_one_backend_alone_has_no_contest() -> None:
    assert no_contest(A=[3000, 3001])


def test_a_backend_that_only_failed_is_no_rival() -> None:
    assert no_contest(A=[3000], B=[0, 0])


def test_an_instruction_on_which_all_failed_is_passed_over() -> None:
    assert no_contest(A=[0], B=[0])


def test_of_two_rivals_the_likelier_to_win_is_named() -> None:
    found = contest(A=[4000], CUBLASLT=[4000], B=[4620])
    assert (found.rival.backend, found.margin) == ("B", 620)


# Scratch memory


@pytest.mark.parametrize(
    ("cublaslt", "says"),
    [
        (8000, "TRITON"),
        (8000 - fragile_winner.SCRATCH_WINDOW, "TRITON"),
        (7999 - fragile_winner.SCRATCH_WINDOW, "CUBLASLT"),
    ],
)
def test_less_scratch_wins_within_the_window(cublaslt: int, says: str) -> None:
    (tuned,) = timed(CUBLASLT=[cublaslt], TRITON=[8100, 8000]).instructions
    won = present(fragile_winner.chosen(tuned))
    assert won.backend == says
    assert won.nanoseconds == (8000 if says == "TRITON" else cublaslt)


def test_a_slower_winner_that_needs_less_scratch_is_sure() -> None:
    assert fragile(timed(TRITON=[5000], CUBLASLT=[4800])) == ()


@pytest.mark.parametrize(
    ("triton", "cublaslt", "winner", "margin"),
    [(8000, 6500, "TRITON", 500), (8000, 5500, "CUBLASLT", 500)],
)
def test_both_are_fragile_near_the_edge_of_the_window_and_told_why(
    triton: int, cublaslt: int, winner: str, margin: int
) -> None:
    found = one_fragile(TRITON=[triton], CUBLASLT=[cublaslt])
    assert (found.contest.winner.backend, found.contest.margin) == (winner, margin)
    assert (
        f"(TRITON needs less scratch, which XLA counts as {fragile_winner.SCRATCH_WINDOW} ns)"
        in found.reason
    )


def test_no_scratch_is_told_of_where_it_made_no_difference() -> None:
    assert "scratch" not in one_fragile(A=[3000], B=[3032]).reason


def test_a_flip_of_the_shortest_time_alone_is_none() -> None:
    runs = timed(TRITON=[5000], CUBLASLT=[4800]), timed(TRITON=[4800], CUBLASLT=[5000])
    assert changed_winners(runs) == ()


@pytest.mark.parametrize(
    ("backend", "says"), [("CUBLASLT_FISSION", True), ("CUBLASLT", True), ("CUDNN", False)]
)
def test_fewer_algorithms_are_advised_where_cublaslt_is_in_it(backend: str, says: bool) -> None:
    rival = 4032 - (fragile_winner.SCRATCH_WINDOW if says else 0)
    advice = " ".join(one_fragile(TRITON=[4000], **{backend: [rival]}).advice)
    assert ("--xla_gpu_blas_max_algorithms=1" in advice) == says
    assert "--xla_gpu_load_autotune_results_from=" in advice


@given(
    st.lists(st.integers(1, 10**9), min_size=1, max_size=20),
    st.lists(st.integers(1, 10**9), min_size=1, max_size=20),
)
def test_the_winner_is_never_behind(one: list[int], other: list[int]) -> None:
    assert contest(A=one, B=other).margin == abs(min(one) - min(other))
    assert contest(TRITON=one, CUBLASLT=other).margin >= 0


# Several runs


@pytest.mark.parametrize(
    ("names", "logs"),
    [
        (["new.textproto", "new_again.textproto"], [0, 1]),
        (["old.textproto", "old_again.textproto"], [0, 1]),
        (["appended.textproto"], [0, 0]),
    ],
)
def test_a_flip_is_told_with_both_backends(names: list[str], logs: list[int]) -> None:
    (flip,) = changed_winners(map(log, names))
    assert flip.tuned.name == "loop_add_fusion"
    assert [win.candidate.backend for win in flip.wins] == ["NATIVE_EMITTER", "BLOCK_LEVEL_EMITTER"]
    assert [win.log for win in flip.wins] == logs
    assert flip.reason.endswith(
        "got different backends in 2 runs: NATIVE_EMITTER in 1, BLOCK_LEVEL_EMITTER in 1"
    )


def test_the_same_log_twice_has_no_flips() -> None:
    assert changed_winners([log("new.textproto")] * 2) == ()


def test_two_devices_may_choose_as_they_like() -> None:
    text = (AUTOTUNE / "new_again.textproto").read_text("utf-8")
    elsewhere = read_autotuning(text.replace("0123456789abcdef", "fedcba9876543210"))
    assert changed_winners([log("new.textproto"), elsewhere]) == ()


def test_a_run_in_which_all_failed_chose_nothing() -> None:
    assert changed_winners([timed(A=[3000], B=[0]), timed(A=[0], B=[0])]) == ()


def test_names_alike_within_an_old_log_are_other_instructions() -> None:
    text = (AUTOTUNE / "old.textproto").read_text("utf-8")
    again = (AUTOTUNE / "old_again.textproto").read_text("utf-8")
    assert changed_winners([read_autotuning(text + again)]) == ()


def test_the_rule_has_the_lead_that_was_fitted_and_takes_another() -> None:
    rule = find_rule("fragile-autotuner-winner")
    assert rule.options()["lasting-lead"].default == fragile_winner.SURE
    assert len(fragile(log("new.textproto"), 1.0)) < len(fragile(log("new.textproto")))
