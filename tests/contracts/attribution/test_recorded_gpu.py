"""Two tenants on a real H200, alone and together: fitted to the runs alone, the split of the run together must charge
neither more than alone nor less than what the other saves without it."""

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from algorithms.gpu_time.attribution import attribute
from algorithms.gpu_time.step_fit import fit, relative_errors
from algorithms.gpu_time.step_fitter import StepFitter
from algorithms.gpu_time.step_model import StepModel
from bench.attribution import FIT_RUNS, RIVALS, Bounds, bounds, busy_ns, charges, main, token_proxy_errors
from bench.gpu_steps import RecordedStep, read_runs, samples

Runs = dict[str, list[RecordedStep]]


@pytest.fixture(scope="module")
def runs() -> Runs:
    return read_runs()


@pytest.fixture(scope="module")
def model(runs: Runs) -> StepModel:
    return fit(samples(step for name in FIT_RUNS for step in runs[name]))


def seconds(charged: dict[str, int]) -> dict[str, float]:
    return {tag: round(part / 1e9, 4) for tag, part in charged.items()}


def test_the_bounds_are_those_of_the_recording(runs: Runs) -> None:
    within = bounds(runs, "AB")
    rounded = {tag: (round(one.floor_ns / 1e9, 3), round(one.ceiling_ns / 1e9, 3)) for tag, one in within.items()}
    assert rounded == {"A": (4.528, 5.003), "B": (7.250, 7.726)}


def test_no_tenant_subsidises_the_other(runs: Runs, model: StepModel) -> None:
    charged = charges(model, runs["AB"])
    print(f"charged: {seconds(charged)} s")
    assert 4.528 <= charged["A"] / 1e9 <= 5.003
    assert 7.250 <= charged["B"] / 1e9 <= 7.726
    assert sum(charged.values()) == busy_ns(runs["AB"])


def test_the_unseen_run_is_predicted(runs: Runs, model: StepModel) -> None:
    """Measured: mean 1.4 %, 90th percentile 2.8 %."""
    known = samples(step for name in FIT_RUNS for step in runs[name])
    unseen = samples(runs["AB"])
    errors, proxy = relative_errors(model, unseen), token_proxy_errors(known, unseen)
    p90 = sorted(errors)[len(errors) * 9 // 10]
    print(
        f"error on AB: mean {errors.mean():.2%}, 90th percentile {p90:.2%}; in proportion to tokens {proxy.mean():.2%}"
    )
    assert errors.mean() < 0.03
    assert p90 < 0.06
    assert proxy.mean() > 3.5 * errors.mean()


def test_simpler_splits_make_the_light_tenant_pay_twice(runs: Runs) -> None:
    within = bounds(runs, "AB")["A"]
    charged = {name: split(runs["AB"])["A"] for name, split in RIVALS.items()}
    print({name: f"{part / 1e9:.3f} s" for name, part in charged.items()}, "charged to A by simpler splits")
    assert charged["equal"] > 2 * within.ceiling_ns
    assert charged["residence"] > 2 * within.ceiling_ns


@pytest.mark.parametrize("fitted_to", [("A", "B"), ("bench", "A"), ("bench", "B"), ("bench",), ("A",)])
def test_no_single_run_makes_the_result(runs: Runs, fitted_to: tuple[str, ...]) -> None:
    found = fit(samples(step for name in fitted_to for step in runs[name]))
    charged = charges(found, runs["AB"])
    print(f"fitted to {fitted_to}: {seconds(charged)} s")
    for tag, within in bounds(runs, "AB").items():
        assert within.outside_ns(charged[tag]) == 0


@pytest.mark.parametrize("every", [2, 5, 20])
def test_a_part_of_the_steps_is_enough(runs: Runs, every: int) -> None:
    known = samples(step for name in FIT_RUNS for step in runs[name])
    for first in range(0, every, max(1, every // 5)):
        charged = charges(fit(known[first::every]), runs["AB"])
        for tag, within in bounds(runs, "AB").items():
            assert within.outside_ns(charged[tag]) == 0


def test_the_online_fit_charges_within_bounds_from_its_own_window(runs: Runs) -> None:
    """Steps come once, in order, and the run together is split with what was known at each step."""
    fitter = StepFitter()
    charged = {"A": 0, "B": 0}
    for name in (*FIT_RUNS, "AB"):
        for step in runs[name]:
            parts = attribute(fitter.model, step.busy_ns, step.rows).parts_ns
            if name == "AB":
                for tag, part in zip(step.tags, parts, strict=True):
                    charged[tag] += part
            fitter.observe(step.busy_ns, step.rows)
            if fitter.is_due:
                fitter.refit()
    print(f"charged online: {seconds(charged)} s with version {fitter.model.version}")
    for tag, within in bounds(runs, "AB").items():
        assert within.outside_ns(charged[tag]) == 0
    assert not fitter.drift.is_raised


@pytest.mark.parametrize(("charged", "outside"), [(9, 1), (10, 0), (11, 0), (20, 0), (21, 1)])
def test_bounds_include_their_ends(charged: int, outside: int) -> None:
    assert Bounds(10, 20).outside_ns(charged) == outside


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1, 2.0", "steps.jsonl.gz:1: not JSON"),
        ("[1, 2.0, 3.0]", "steps.jsonl.gz:1: not a step"),
        ('[1, 2.0, 3.0, 4, [["A", 1]]]', "steps.jsonl.gz:1: not a step"),
        ('{"a": 1}', "steps.jsonl.gz:1: not a step"),
    ],
)
def test_a_broken_recording_is_named_by_file_and_line(tmp_path: Path, line: str, message: str) -> None:
    steps, runs = _write(tmp_path, [line], [{"name": "A", "t0": 0, "t1": 1}])
    with pytest.raises(ValueError, match=message):
        read_runs(steps, runs)


def test_the_bench_says_which_run_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps, runs = _write(tmp_path, ['[0, 5.0, 0.0, 500000, [["A", 1, 3]]]'], [{"name": "A", "t0": 0, "t1": 1}])
    assert main(["--steps", str(steps), "--runs", str(runs), "--fit", "A", "--test", "AB", "--json"]) == 2
    assert capsys.readouterr().err == "attribution: no run named 'AB' in runs.jsonl; there are A\n"


def test_the_bench_takes_a_tiny_recording_with_odd_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        '[0, 180000.0, 0.0, 500000, [["A", 7, 0]]]',
        '[1, 5.5, 0.0, 600000, [["A", 1, 7], ["B", 0, 9]]]',
        "[2, 3.0, 0.0, 700000, []]",
        '[3, 0.0, 0.0, 800000, [["B", 1, 7]]]',
    ]
    runs = [{"name": name, "t0": 0, "t1": 1} for name in ("A", "B", "AB")]
    steps_file, runs_file = _write(tmp_path, lines, runs)
    arguments = ["--steps", str(steps_file), "--runs", str(runs_file), "--fit", "A,B", "--quick", "--json"]
    assert main(arguments) in (0, 1)
    rows = {row["metric"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert rows["not_conserved"]["value"] == 0
    assert rows["split_64_decode"]["n"] > 0


def _write(folder: Path, steps: list[str], runs: Sequence[Mapping[str, object]]) -> tuple[Path, Path]:
    steps_file, runs_file = folder / "steps.jsonl.gz", folder / "runs.jsonl"
    steps_file.write_bytes(gzip.compress("\n".join(steps).encode()))
    runs_file.write_text("".join(json.dumps(run) + "\n" for run in runs))
    return steps_file, runs_file
