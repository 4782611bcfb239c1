"""How fast a prompt's meaning leads a route, what that does to the event loop, and how often it leads right.

The embedder runs in its process as the gateway runs it. Latency is of both processes on one core; the loop's lag is
measured with the cores that there are.
"""

import asyncio
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil
import yaml

from backends.embedder.child import EmbedderChild
from bench.report import Report, run_bench
from contracts.errors import EmbedderUnavailable
from contracts.serving.semantic import SemanticSpec, semantic_spec
from gateway.routing.semantic.evaluation import LabelledPrompt, evaluate
from gateway.routing.semantic.learning import READ_TOKENS, learn
from gateway.routing.semantic.tally import Tally
from gateway.routing.semantic.trained_classifiers import TrainedClassifiers

PROMPTS: Final = Path(__file__).parent / "semantic_prompts.yaml"
MEDIAN_MUST_MS: Final = 12.0
MEDIAN_STRETCH_MS: Final = 5.0
LAG_MUST_MS: Final = 20.0
_TOKENS: Final = 64
_BEAT_SECONDS: Final = 0.001
# One token each, so that a prompt's length is known: 62 and the two marks around them.
_WORDS: Final = (
    "the of and in to was he is as for on with that it his by at from her she you had an were but be".split()
)


def measure(report: Report) -> None:
    """Measure the time to read a prompt of 64 tokens, the loop's lag meanwhile, and how often readings are right."""
    semantic_rows(report)


def semantic_rows(report: Report) -> None:
    """Add the rows."""
    try:
        asyncio.run(_measure(report))
    except EmbedderUnavailable as error:
        report.add_absent("semantic_route_median", "ms", error.message, must=MEDIAN_MUST_MS)


async def _measure(report: Report) -> None:
    data = yaml.safe_load(PROMPTS.read_text(encoding="utf-8"))
    spec = semantic_spec(data["semantic"])
    assert spec is not None
    count = 100 if report.quick else 400
    await _measure_latency(report, spec, count)
    embedder = EmbedderChild()
    try:
        await _measure_lag(report, spec, embedder, count)
        await _measure_readings(report, spec, embedder, data["prompts"])
    finally:
        await embedder.close()


async def _measure_latency(report: Report, spec: SemanticSpec, count: int) -> None:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})  # the embedder inherits it
    embedder = EmbedderChild()
    try:
        lesson = await learn(spec, embedder)
        for number in range(10):
            await _read(lesson, embedder, _prompt(-1 - number))
        before = _processor_seconds()
        times = sorted([await _read(lesson, embedder, _prompt(number)) for number in range(count)])
        spent = _processor_seconds() - before
        again = sorted([await _read(lesson, embedder, _prompt(number)) for number in range(count)])
    finally:
        await embedder.close()
        os.sched_setaffinity(0, cores)
    report.add("semantic_route_median", statistics.median(times), "ms", must=MEDIAN_MUST_MS,
               stretch=MEDIAN_STRETCH_MS, better="lower", n=count)  # fmt: skip
    report.add("semantic_route_p99", times[count * 99 // 100], "ms", better="lower", n=count)
    report.add("semantic_route_cpu", spent / count * 1e3, "ms of CPU", better="lower", n=count)
    report.add("semantic_route_kept_median", statistics.median(again), "ms", better="lower", n=count)


async def _measure_lag(report: Report, spec: SemanticSpec, embedder: EmbedderChild, count: int) -> None:
    """Look how late the loop comes to a beat while prompts are read, 16 at once, and beside it without any."""
    lesson = await learn(spec, embedder)

    async def beat(lags: list[float], done: asyncio.Event) -> None:
        while not done.is_set():
            due = time.perf_counter() + _BEAT_SECONDS
            await asyncio.sleep(_BEAT_SECONDS)
            lags.append((time.perf_counter() - due) * 1e3)

    lags: list[float] = []
    done = asyncio.Event()
    heart = asyncio.create_task(beat(lags, done))
    began = time.perf_counter()
    for first in range(0, count, 16):
        prompts = [_prompt(10_000 + number) for number in range(first, first + 16)]
        await asyncio.gather(*(_read(lesson, embedder, prompt) for prompt in prompts))
    seconds = time.perf_counter() - began
    done.set()
    await heart
    lags.sort()
    report.add(
        "semantic_loop_lag_p99", lags[len(lags) * 99 // 100], "ms", must=LAG_MUST_MS, better="lower", n=len(lags)
    )
    report.add("semantic_prompts_per_second", -(-count // 16) * 16 / seconds, "1/s", n=count)


async def _measure_readings(report: Report, spec: SemanticSpec, embedder: EmbedderChild, prompts: list[Any]) -> None:
    found = await evaluate(spec, msgspec.convert(prompts, list[LabelledPrompt]), embedder)
    intents, complexity = found.examples.intents, found.examples.complexity
    assert intents is not None and complexity is not None
    for name, tally in (
        ("semantic_intents", found.intents),
        ("semantic_intents_held_out", intents.held_out),
        ("semantic_complexity", found.complexity),
        ("semantic_complexity_held_out", complexity.held_out),
    ):
        assert tally is not None
        _add_tally(report, name, tally)


def _add_tally(report: Report, name: str, tally: Tally) -> None:
    for what, share in (("accuracy", tally.accuracy), ("abstention", tally.abstention)):
        if share is not None:
            report.add(f"{name}_{what}", share, "share", better="lower" if what == "abstention" else "higher",
                       n=tally.count)  # fmt: skip


async def _read(lesson: TrainedClassifiers, embedder: EmbedderChild, prompt: str) -> float:
    """Return how long it takes to read a prompt, in milliseconds."""
    began = time.perf_counter()
    embedding = await embedder.embed(prompt, "bench", READ_TOKENS)
    lesson.read(prompt, embedding)
    elapsed = (time.perf_counter() - began) * 1e3
    assert embedding.tokens == _TOKENS
    return elapsed


def _processor_seconds() -> float:
    """Return what this process and the embedder's have used of processors so far."""
    own = psutil.Process()
    times = [process.cpu_times() for process in (own, *own.children())]
    return sum(time.user + time.system for time in times)


def _prompt(number: int) -> str:
    """Return a prompt of 64 tokens that is like no other: the words turned and swapped by its number."""
    words = [_WORDS[(place * (1 + number % 5) + number) % len(_WORDS)] for place in range(_TOKENS - 2)]
    for place in range(16):
        words[place] = _WORDS[(number >> place) % 2]
    return " ".join(words)


if __name__ == "__main__":
    sys.exit(run_bench("semantic", measure))
