"""How fast our own engine is on this machine, against transformers' continuous batching and a dense batch.

The model is the built-in one. Everybody gets the same weights, threads and prompts; all prompts differ.
"""

import logging
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
import transformers
from transformers import GenerationConfig, LlamaForCausalLM

from backends.engine.torch_engine.engine import TorchEngine
from backends.engine.torch_engine.settings import EngineSettings
from bench.report import Report, run_bench
from bench.torch_driver import run
from contracts.engine.wire import Sampling, Submit

BATCH: Final = 16
CONTEXT: Final = 512
PREFIX: Final = 2000
MODEL: Final = Path(__file__).resolve().parent.parent / "backends" / "engine" / "builtin_model"
_FIRST_ID, _VOCABULARY = 16, 4096  # beyond the special tokens
_KV_BYTES: Final = 1 << 30
_TURN_STEPS: Final = 4
_FITTING_STEPS: Final = 540
_SKIPPED_STEPS: Final = 4  # the first steps allocate


@dataclass(frozen=True)
class Bench:
    """The rival model, and how often to measure."""

    reference: LlamaForCausalLM
    steps: int
    rounds: int

    def engine(self) -> TorchEngine:
        """Start an engine, warmed up."""
        engine = TorchEngine(EngineSettings(path=MODEL, kv_bytes=_KV_BYTES))
        engine.warm_up()
        return engine


def load_reference() -> LlamaForCausalLM:
    """Return the same model in transformers, computing in float32 as the engine does."""
    reference: LlamaForCausalLM = LlamaForCausalLM.from_pretrained(
        MODEL, dtype=torch.float32, attn_implementation="sdpa"
    )
    return reference


def prompts(count: int, length: int, seed: int = 0) -> list[list[int]]:
    """Return random prompts, all different."""
    source = random.Random(seed)
    return [[source.randrange(_FIRST_ID, _VOCABULARY) for _ in range(length)] for _ in range(count)]


def requests(texts: Sequence[Sequence[int]], max_tokens: int) -> list[Submit]:
    """Ask for exactly `max_tokens` of each."""
    sampling = Sampling(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    return [
        Submit(request_id=number.to_bytes(16, "big"), model="", token_ids=list(text), sampling=sampling)
        for number, text in enumerate(texts)
    ]


def decoding_engine(bench: Bench, count: int, context: int, tokens: int, *, before: int = 0) -> TorchEngine:
    """Return an engine in which the given number of requests decode, their prompts done; it has taken `before` steps
    for others.
    """
    engine = bench.engine()
    if before:
        run(engine, requests(prompts(1, 8), before))
    for request in requests(prompts(count, context), tokens + 2 * _SKIPPED_STEPS + context):
        engine.submit(request)
    engine.step()
    while not all(sequence.remaining == 1 for sequence in engine.scheduler.running) or engine.scheduler.waiting:
        engine.step()
    for _ in range(_SKIPPED_STEPS):
        engine.step()
    return engine


def step_seconds(engine: TorchEngine, steps: int = 1, clock: Callable[[], float] = time.perf_counter) -> float:
    """Time some steps and taking their records, as a host does a few times a second; return the time of one."""
    began = clock()
    for _ in range(steps):
        engine.step()
    engine.take_steps()
    engine.take_kv_events()
    return (clock() - began) / steps


def our_decode_seconds(bench: Bench, count: int = BATCH, context: int = CONTEXT) -> float:
    """Return the median step of a decoding batch."""
    engine = decoding_engine(bench, count, context, bench.steps)
    seconds = statistics.median(step_seconds(engine) for _ in range(bench.steps))
    engine.close()
    return seconds


def dense_decode_seconds(bench: Bench) -> float:
    """Return the median step of a dense batch: equal lengths, transformers' own cache, greedy."""
    taken = []
    with torch.inference_mode():
        found = bench.reference(torch.tensor(prompts(BATCH, CONTEXT)), use_cache=True, logits_to_keep=1)
        for _ in range(bench.steps + _SKIPPED_STEPS):
            began = time.perf_counter()
            tokens = found.logits[:, -1].argmax(-1, keepdim=True)
            found = bench.reference(tokens, past_key_values=found.past_key_values, use_cache=True)
            tokens.tolist()
            taken.append(time.perf_counter() - began)
    return statistics.median(taken[_SKIPPED_STEPS:])


def rival_decode_seconds(bench: Bench) -> float:
    """Return the median step of transformers' continuous batching: between tokens while all sixteen decode."""
    tokens = bench.steps + 2 * BATCH
    config = GenerationConfig(max_new_tokens=tokens, do_sample=False, eos_token_id=-1, pad_token_id=0)
    found = bench.reference.generate_batch(
        prompts(BATCH, CONTEXT), generation_config=config, record_timestamps=True, progress_bar=False
    )
    times = [output.timestamps or [] for output in found.values()]
    begun, ended = max(one[0] for one in times), min(one[-1] for one in times)
    within = sorted(at for at in times[0] if begun < at <= ended)
    return float(statistics.median(after - before for before, after in zip(within, within[1:], strict=False)))


def measure_decode(report: Report, bench: Bench) -> None:
    """Add the ratios to the rivals, rounds alternating so that a slow moment of the machine meets all."""
    ours, dense, rival = [], [], []
    for _ in range(bench.rounds):
        ours.append(our_decode_seconds(bench))
        dense.append(dense_decode_seconds(bench))
        rival.append(rival_decode_seconds(bench))
    mine = min(ours)
    report.add("decode_b16_ctx512_step", mine * 1e3, "ms", better="lower", n=len(ours))
    for name, others, must, stretch in (
        ("transformers_continuous_batching", rival, 2.1, 2.5),
        ("transformers_dense_batch", dense, 0.75, 0.9),
    ):
        ratio = min(others) / mine
        report.add(
            f"decode_b16_ctx512_speed_vs_{name}",
            ratio, "x", must=must, stretch=stretch, n=len(others), ratio_to={name: ratio},
        )  # fmt: skip


def measure_throughput(report: Report, bench: Bench) -> None:
    """Add tokens a second for one stream and for the best of several batch sizes, short prompts."""
    single = max(1 / our_decode_seconds(bench, 1, 64) for _ in range(bench.rounds))
    report.add("single_stream", single, "tok/s", must=150, stretch=250, n=bench.rounds)
    rates = {}
    for count in (8, 16, 32):
        engine = bench.engine()
        began = time.perf_counter()
        answers = run(engine, requests(prompts(count, 64, seed=count), 2 * bench.steps))
        seconds = time.perf_counter() - began
        engine.close()
        rates[count] = sum(len(answer.token_ids) for answer in answers.values()) / seconds
    report.add("best_aggregate", max(rates.values()), "tok/s", must=400, stretch=600, n=len(rates))


def first_token_seconds(engine: TorchEngine, request: Submit) -> float:
    """Time from submitting a request to its first token."""
    engine.submit(request)
    began = time.perf_counter()
    while not any(getattr(event, "token_ids", None) for event in engine.step()):
        pass
    seconds = time.perf_counter() - began
    engine.abort(request.request_id)
    run(engine, [])
    return seconds


def measure_prefix(report: Report, bench: Bench) -> None:
    """Add the time to first token after a cached prefix of 2,000 tokens, against the same prompt never seen."""
    engine = bench.engine()
    cold, warm = [], []
    for number in range(3 * bench.rounds):
        prefix, *tails = prompts(3, PREFIX, seed=number)
        first, second = requests([prefix + tail[:16] for tail in tails], 8)
        cold.append(first_token_seconds(engine, first))
        warm.append(first_token_seconds(engine, second))
    engine.close()
    ratio = statistics.median(warm) / statistics.median(cold)
    report.add("warm_prefix_2000_ttft", ratio, "x cold", must=0.15, stretch=0.05, better="lower", n=len(warm))


def measure_metering(report: Report, bench: Bench) -> None:
    """Add what step records and attribution cost: one engine steps in turns, metered and not.

    Processor time, in which other processes hardly show. The step model's first fits, which every engine makes in its
    first 500 steps, are over by then.
    """
    turns = 2 * bench.steps * bench.rounds
    engine = decoding_engine(bench, BATCH, 64, turns * _TURN_STEPS, before=_FITTING_STEPS)
    taken: dict[bool, list[float]] = {True: [], False: []}
    for number in range(turns):
        # On, off, off, on: contexts grow from turn to turn, and so that evens out.
        metering = number % 4 in (0, 3)
        engine.set_metering(metering)
        taken[metering].append(step_seconds(engine, _TURN_STEPS, time.process_time))
    engine.close()
    # The middle half of the pairs: a disturbed turn makes one side of its pair look slow.
    pairs = sorted(with_it / without for with_it, without in zip(taken[True], taken[False], strict=True))
    cost = statistics.fmean(pairs[len(pairs) // 4 : len(pairs) - len(pairs) // 4])
    report.add("step_metering_cost", 100 * (cost - 1), "%", must=1.0, stretch=0.3, better="lower", n=turns)


def measure(report: Report) -> None:
    """Measure our engine's decoding, throughput, prefix cache and metering on this machine."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    logging.disable(logging.WARNING)
    bench = Bench(load_reference(), steps=24 if report.quick else 60, rounds=1 if report.quick else 3)
    measure_decode(report, bench)
    measure_throughput(report, bench)
    measure_prefix(report, bench)
    measure_metering(report, bench)


if __name__ == "__main__":
    sys.exit(run_bench("engine", measure))
