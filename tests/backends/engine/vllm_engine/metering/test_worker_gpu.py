"""vLLM's own worker with the meter in it, on a GPU: what the fakes of the other tests stand for."""

import asyncio
import importlib.util
import shutil
import tempfile
from pathlib import Path

import pytest

from algorithms.gpu_time.ledger import ledger_lines
from algorithms.gpu_time.step_model import DECODE, PREFILL
from bench.gpu_engine import BareEngine
from bench.gpu_models import write_model
from bench.gpu_workloads import uniform, varied

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        shutil.which("nvidia-smi") is None or importlib.util.find_spec("vllm") is None, reason="needs a GPU and vLLM"
    ),
]


@pytest.fixture(scope="module")
def folder():
    path = Path(tempfile.mkdtemp(prefix="m"))  # short: a socket lies in it
    yield path
    shutil.rmtree(path, ignore_errors=True)


def test_steps_of_a_real_engine_are_whole_exact_and_closed(folder):
    async def serve():
        engine = BareEngine(
            write_model(folder, "1b"),
            folder,
            metered=True,
            arguments={
                "enforce_eager": True,
                "max_model_len": 4_096,
                "max_num_batched_tokens": 1_024,
                "kv_cache_memory_bytes": 2 << 30,
            },
        )
        try:
            await engine.run(uniform("warm", 2, 32, 4, seed=1))
            run = await engine.run(varied("mixed", 2, [(8, 64, 16), (2, 3_000, 4)], concurrency=10))
            return run, engine.take_steps(), engine.facts(), engine.began_ns
        finally:
            engine.close()

    run, records, facts, began_ns = asyncio.run(serve())
    steps = [one for one in run.steps if one.kind == "step"]
    assert sum(answer.tokens for answer in run.answers) == 8 * 16 + 2 * 4
    assert all(sum(one.gpu_ns) == one.busy_ns and _has_forward(one) for one in steps)
    assert sum(sum(one.scheduled) for one in steps) >= 8 * (64 + 15) + 2 * (3_000 + 3)
    assert {phase for one in steps for phase in one.phases} == {PREFILL, DECODE}
    assert [b.sequence - a.sequence for a, b in zip(records, records[1:], strict=False)] == [1] * (len(records) - 1)
    assert facts["meter_lost_steps"] == facts["meter_unknown_rows"] == 0
    ended_ns = max(one.started_at_ns + one.busy_ns for one in records)
    lines = next(iter(ledger_lines(records, began_ns, ended_ns).values()))
    assert abs(lines.unexplained_ns) < lines.wall_ns / 1_000
    assert lines.load_ns > 0 and lines.warmup_ns > 0


def _has_forward(step):
    """The forward pass is timed by itself where there is one worth timing: from 16 tokens on."""
    if sum(step.scheduled) < 16:
        return step.forward_ns is None
    return 0 < step.forward_ns < step.busy_ns
