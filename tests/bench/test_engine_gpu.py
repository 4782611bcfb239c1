"""The GPU benchmark if there is no GPU: every row is there and says why it has no value; and its pure parts."""

import json
from argparse import Namespace

import pytest

from algorithms.gpu_time.attribution import attribute
from algorithms.gpu_time.step_fit import fit
from algorithms.gpu_time.step_model import DECODE, PREFILL, StepModel, StepRow
from bench.engine_gpu import PROMISES, measure
from bench.gpu_attribution import Mix, add_coalitions, add_prediction, add_tenants, calibration, recorded_mixes
from bench.gpu_figures import FigureFile, Promise, report_figures
from bench.gpu_models import SHAPES, VOCABULARY, words, write_model
from bench.gpu_pairs import add_comparison, alternate
from bench.gpu_runs import Answer, Run
from bench.gpu_steps import FOLDER, read_runs
from bench.gpu_workloads import Workload, coalition_batches, renewed, two_tenants, uniform
from bench.report import Report
from contracts.recording.records import StepRecord

TRUE = StepModel(token_ns=10_000.0, ridge_tokens=200.0, pair_ns=0.2, read_ns=8.0, logit_ns=2_000.0, fixed_ns=500_000.0)


def test_without_a_gpu_every_promised_row_says_so(monkeypatch):
    monkeypatch.setattr("bench.engine_gpu.shutil.which", lambda name: None)
    report = Report("engine_gpu", options=Namespace(keep=None, phases="8b,1b", recorded=None))
    measure(report)
    assert [row.metric for row in report.rows] == [promise.metric for promise in PROMISES]
    assert {(row.met, row.reason) for row in report.rows} == {(None, "no GPU")}


def test_figures_survive_in_order_and_the_last_of_a_metric_counts(tmp_path):
    file = FigureFile(tmp_path / "figures.jsonl")
    file.add("a", 1.0)
    file.add("a", 2.0, n=3, rival=4.0)
    file.fail("part", "it broke")
    again = FigureFile(tmp_path / "figures.jsonl")
    assert (again.figures()["a"].value, again.figures()["a"].ratio_to) == (2.0, {"rival": 4.0})
    assert again.failures() == {"part": "it broke"}


@pytest.mark.parametrize(("value", "met"), [(0.97, False), (0.98, True), (0.99, True)])
def test_a_figure_is_held_to_its_promise(tmp_path, value, met):
    file = FigureFile(tmp_path / "figures.jsonl")
    file.add("kept", value)
    file.add("beside", 5.0, unit="s")
    report = Report("x")
    report_figures(report, (Promise("kept", "ratio", 0.98), Promise("gone", "ratio", 1.0)), file.figures(), "broken")
    assert [(row.metric, row.met, row.reason) for row in report.rows] == [
        ("kept", met, ""),
        ("gone", None, "broken"),
        ("beside", None, "no bound is set for it"),
    ]


@pytest.mark.drill
def test_a_model_has_a_tokenizer_for_every_id_and_words_of_one_token(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    path = write_model(tmp_path, "1b")
    tokenizer = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == VOCABULARY
    assert json.loads((path / "config.json").read_text())["hidden_size"] == SHAPES["1b"]["hidden_size"]
    prompt = uniform("x", 1, 300, 1, seed=7).asks[0].prompt
    assert tokenizer.encode("".join(words()[one] for one in prompt)).ids == list(prompt)
    assert tokenizer.decode([VOCABULARY - 1]) != ""


def test_prompts_are_distinct_unless_sharing_is_the_point():
    asks = uniform("x", 256, 64, 8, seed=1).asks
    assert len({ask.prompt for ask in asks}) == 256
    prefix = next(one for one in two_tenants(3) if one.name == "prefix").only("A").asks
    assert len({ask.prompt[:3_000] for ask in prefix}) == 1
    assert len({ask.prompt for ask in prefix}) == len(prefix)
    again = renewed(asks, seed=2)
    assert not {ask.prompt for ask in asks} & {ask.prompt for ask in again}
    assert [len(ask.prompt) for ask in again] == [64] * 256


def test_tokens_that_come_together_have_no_time_between_them():
    answer = Answer(0.0)
    answer.add(2, 1.0)
    answer.add(1, 1.5)
    answer.add(3, 2.5)
    assert (answer.first, answer.tokens, answer.gaps) == (1.0, 6, [0.0, 0.5, 1.0, 0.0, 0.0])


def run_of(workload, steps, wall=1.0, gap=0.01):
    answers = [Answer(0.0, 0.1, wall, ask.output_tokens, [gap] * ask.output_tokens, wall) for ask in workload.asks]
    return Run(workload.name, answers, steps, 0, 10**12)


class FakeEngine:
    """Serves in steps of the true model: prompts first, all at once, then decodes."""

    def __init__(self):
        self.sequence = 0

    async def serve(self, workload):
        steps = []
        prompts = [(ask.tenant, StepRow(len(ask.prompt), 0, phase=PREFILL)) for ask in workload.asks]
        for start in range(0, len(prompts), 4):
            steps.append(self.step(prompts[start : start + 4]))
        for token in range(1, max(ask.output_tokens for ask in workload.asks)):
            rows = [
                (ask.tenant, StepRow(1, len(ask.prompt) + token - 1, phase=DECODE))
                for ask in workload.asks
                if ask.output_tokens > token
            ]
            steps.append(self.step(rows))
        return run_of(workload, steps)

    def step(self, rows):
        self.sequence += 1
        composition = [row for _, row in rows]
        busy_ns = round(TRUE.predict_ns(composition))
        return StepRecord(
            engine="e",
            sequence=self.sequence,
            started_at_ns=self.sequence,
            busy_ns=busy_ns,
            method="steptime-as/1",
            request_ids=[bytes(16)] * len(rows),
            tenants=[tenant for tenant, _ in rows],
            scheduled=[row.scheduled for row in composition],
            context=[row.context for row in composition],
            phases=[row.phase for row in composition],
            gpu_ns=attribute(TRUE, busy_ns, composition).parts_ns,
        )


async def test_an_engine_that_follows_the_model_is_predicted_and_split_without_subsidy(tmp_path):
    engine, figures = FakeEngine(), FigureFile(tmp_path / "figures.jsonl")
    known = [step for workload in calibration(1) for step in (await engine.serve(workload)).recorded()]
    model = fit([one.sample() for one in known])
    mixes = await add_tenants(figures, engine.serve, model, seed=2, rounds=1)
    add_prediction(figures, {"calibration": Mix(known), **mixes})
    found = {name: figure.value for name, figure in figures.figures().items()}
    assert found["step_model_mape"] < 1.0
    assert found["gain_decode_p90"] > 3.5
    for mix in ("short_long", "prefix", "bursty"):
        assert found[f"tenants_{mix}_outside"] <= found[f"tenants_{mix}_outside_equal"]
        assert found[f"tenants_{mix}_outside"] < 0.5


async def test_a_split_by_the_true_model_is_in_the_core_and_near_the_shapley_value(tmp_path):
    figures = FigureFile(tmp_path / "figures.jsonl")
    for name, asks in coalition_batches(1):
        await add_coalitions(figures, name, asks, FakeEngine().serve, TRUE, seed=1, rounds=1)
    found = {name: figure.value for name, figure in figures.figures().items()}
    for name in ("five", "six"):
        assert found[f"coalition_{name}_excess"] <= 1e-6
        assert found[f"coalition_{name}_distance"] < found[f"coalition_{name}_distance_equal"]
        assert found[f"coalition_{name}_saved_by_sharing"] > 0


async def test_ways_alternate_and_no_two_runs_share_a_prompt(tmp_path):
    order: list[str] = []
    seen: list[Workload] = []

    def way(name, gap):
        async def serve(workload):
            order.append(name)
            seen.append(workload)
            return run_of(workload, [], wall=gap * 100, gap=gap)

        return serve

    runs = await alternate(
        {"bare": way("bare", 0.010), "host": way("host", 0.011)},
        lambda seed: uniform("x", 2, 16, 4, seed=seed),
        3,
        seed=1,
    )
    assert order == ["bare", "host", "host", "bare", "bare", "host"]
    assert len({ask.prompt for workload in seen for ask in workload.asks}) == 12
    figures = FigureFile(tmp_path / "figures.jsonl")
    add_comparison(figures, "host", runs["host"], runs["bare"], quantiles={"p50": 0.5})
    assert figures.figures()["host_throughput"].value == pytest.approx(10 / 11)
    assert figures.figures()["host_itl_p50"].value == pytest.approx(1.1)


def test_a_tenant_alone_keeps_its_requests():
    for workload in two_tenants(3):
        alone = [ask for name in workload.tenants for ask in workload.only(name).asks]
        assert sorted(ask.prompt for ask in alone) == sorted(ask.prompt for ask in workload.asks)


def test_every_mix_of_the_latest_recording_is_predicted_within_the_bounds(tmp_path):
    """8B Llama shape on an H200, vLLM 0.25.1, 2026-11-22, recorded after the model was last changed."""
    mixes = recorded_mixes(read_runs(FOLDER / "steps_mixes_8b_2.jsonl.gz", FOLDER / "runs_mixes_8b_2.jsonl"))
    found = FigureFile(tmp_path / "figures.jsonl")
    add_prediction(found, mixes)
    values = {name: figure.value for name, figure in found.figures().items()}
    assert values["step_model_mape"] < 3.0
    assert values["step_model_p90"] < 6.0
    assert values["gain_prefill_p90"] > 2.5
    assert values["gain_decode_p90"] > 3.5
    assert values["gain_decode_p99"] > 4.4


def test_the_recorded_mixes_are_predicted_from_each_other():
    """8B Llama shape on an H200, vLLM 0.25.1, 2026-11-21: each mix by a fit to the others."""
    report = Report("engine_gpu", options=Namespace(keep=None, phases="", recorded=FOLDER))
    measure(report)
    found = {row.metric: row.value for row in report.rows if row.value is not None}
    assert found["step_model_mape"] < 4.0
    assert found["gain_decode_p90"] > 3.5
    assert found["gain_decode_p99"] > 4.4
    assert {row.reason for row in report.rows if row.value is None} == {
        "predicted from a recording; all else needs a GPU"
    }
