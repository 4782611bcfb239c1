"""The frame of the benchmarks: what a row promises and what the exit status says."""

import argparse
import json
import re
from pathlib import Path

import pytest

import bench.__main__
from bench.report import Report, Row, run_bench

BENCH = Path(bench.__main__.__file__).parent


@pytest.mark.parametrize(("value", "met"), [(99.9, False), (100.0, True), (100.1, True)])
def test_more_is_better_from_the_must_on(value: float, met: bool) -> None:
    assert Report("x").add("rate", value, "1/s", must=100.0).met is met


@pytest.mark.parametrize(("value", "met"), [(4.9, True), (5.0, True), (5.1, False)])
def test_less_is_better_up_to_the_must(value: float, met: bool) -> None:
    assert Report("x").add("delay", value, "ms", must=5.0, better="lower").met is met


def test_a_row_that_is_neither_met_nor_missed_says_why() -> None:
    with pytest.raises(ValueError, match="a reason is due"):
        Row(bench="x", metric="rate", value=1.0, unit="1/s", met=None, n=1)
    assert Report("x").add("size", 1.0, "bytes").reason
    assert Report("x").add_absent("gpu_rate", "1/s", "no GPU on this machine", must=1.0).met is None


def test_a_disturbed_measurement_is_neither_met_nor_missed_and_says_why() -> None:
    row = Report("x").add("delay", 9.0, "ms", must=5.0, better="lower", unjudged="the machine was busy")
    assert (row.met, row.must, row.value, row.reason) == (None, 5.0, 9.0, "the machine was busy")


def test_a_benchmark_may_have_options_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[float] = []

    def add_options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--minutes", type=float)

    run_bench("x", lambda report: seen.append(report.options.minutes), ["--minutes", "2.5"], add_options)
    assert seen == [2.5]


@pytest.mark.parametrize(("value", "status"), [(1.0, 1), (2.0, 0)])
def test_a_missed_must_is_the_exit_status(value: float, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    def measure(report: Report) -> None:
        report.add("good", 5.0, "1/s", must=1.0)
        report.add("tested", value, "1/s", must=2.0)
        report.add_absent("rival", "1/s", "the rival is not installed", must=2.0)

    assert run_bench("x", measure, []) == status
    printed = capsys.readouterr()
    assert ("tested" in printed.err) is (status == 1)
    assert "rival: the rival is not installed" in printed.out


def test_json_is_one_line_per_row_with_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    def measure(report: Report) -> None:
        report.add("rate", 3.0, "1/s", must=1.0, stretch=4.0, n=7, ratio_to={"nginx": 0.5})
        report.add_absent("gpu", "1/s", "no GPU")

    assert run_bench("x", measure, ["--json", "--quick"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["ratio_to"] == {"nginx": 0.5}
    assert (first["bench"], first["value"], first["must"], first["stretch"], first["n"]) == ("x", 3.0, 1.0, 4.0, 7)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", first["date"])
    assert first["commit"] and first["hardware"]
    assert second["met"] is None and second["reason"] == "no GPU" and second["value"] is None


def test_quick_reaches_the_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[bool] = []
    run_bench("x", lambda report: seen.append(report.quick), ["--quick", "--json"])
    run_bench("x", lambda report: seen.append(report.quick), ["--json"])
    assert seen == [True, False]


def test_make_bench_runs_every_module_that_reports_rows() -> None:
    calls = re.compile(r"^(?!def ).*\brun_bench\(", re.MULTILINE)
    reporting = {path.stem for path in BENCH.glob("*.py") if calls.search(path.read_text())}
    assert reporting == set(bench.__main__.BENCHMARKS)
