"""`tollkeeper plan`: the same seed gives the same plan, and what contradicts itself is one line."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from algorithms.gpu_time.step_model import StepModel
from analytics.planner.setup import ReplicaSetup
from analytics.planner.setup_file import read_setup, setup_as_json
from contracts.errors import ConfigurationError
from tollkeeper.cli import app

MODEL = StepModel(token_ns=27_000, ridge_tokens=170, pair_ns=0.26, read_ns=40, logit_ns=2_000, fixed_ns=300_000)
MADE = ("--generate", "200", "--rate", "40", "--input-tokens", "300", "--output-tokens", "30")


@pytest.fixture
def setup(tmp_path: Path) -> Path:
    path = tmp_path / "replica.json"
    path.write_text(json.dumps(setup_as_json(ReplicaSetup(steps=MODEL, kv_blocks=3_000))))
    return path


def plan(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["plan", *arguments])


def answer(*arguments: str) -> dict[str, Any]:
    done = plan(*arguments, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_plan_is_the_same_for_the_same_seed_and_says_what_it_played(setup: Path) -> None:
    arguments = (*MADE, "--setup", str(setup), "--replicas", "2", "--usd-per-gpu-hour", "2.5")
    one = answer(*arguments)
    assert one == answer(*arguments)
    assert one["now"]["served"] == one["workload"]["requests"] == 200
    assert one["now"]["ttft_ms"]["p50"] > 0 and float(one["now"]["cost_usd"]) > 0
    assert one["replica"]["steps"]["token_ns"] == 27_000 and "what_if" not in one and "sizing" not in one


def test_what_if_and_sizing_are_beside_what_is(setup: Path) -> None:
    found = answer(
        *MADE, "--setup", str(setup), "--traffic", "4", "--ttft-p95-ms", "80", "--gpu", "h200", "--to-gpu", "b200"
    )
    assert found["what_if"]["replica"]["steps"]["read_ns"] == pytest.approx(40 * 4.8 / 8.0)
    assert found["what_if"]["workload"].endswith("x 4")
    assert found["sizing"]["replicas"] >= 1 and found["sizing"]["outcome"]["ttft_ms"]["p95"] <= 80
    shown = plan(*MADE, "--setup", str(setup), "--traffic", "4")
    assert shown.exit_code == 0 and "x 4" in shown.output and "unknown" in shown.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--to-gpu", "h100"), "name the GPU that the replica was measured on"),
        (("--trace", "x"), "--trace contradicts --generate"),
        (("--usd-per-gpu-hour", "much"), "is not a price per GPU hour"),
        (("--without", "nobody"), "no request of nobody"),
        (("--policy", "best"), "no policy is called 'best'"),
    ],
)
def test_what_cannot_be_planned_is_one_line(setup: Path, arguments: tuple[str, ...], said: str) -> None:
    done = plan(*MADE, "--setup", str(setup), *arguments)
    assert done.exit_code == 2
    assert said in done.output.replace("\n", " ") and "Traceback" not in done.output


@pytest.mark.parametrize("text", ["", "{}", '{"steps": 3}', '{"steps": {}, "wheels": 4}'])
def test_a_file_that_is_no_setup_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "odd.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=r"odd\.json is not valid"):
        read_setup(path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_setup(tmp_path / "missing.json")
