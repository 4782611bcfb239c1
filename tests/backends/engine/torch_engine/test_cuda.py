"""The same engine on a GPU. Skipped without one; the last results lie in bench/results."""

import random

import pytest
import torch

from backends.engine.settings import BUILTIN_PATH
from bench.torch_driver import run
from contracts.engine.wire import Sampling, Submit
from tests.backends.engine.torch_engine.conftest import MakeEngine
from tests.backends.engine.torch_engine.test_parity import expected, random_batch
from tests.backends.engine.torch_engine.tiny_models import TinyModel

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_batches_generate_on_a_gpu_what_transformers_does(tiny: TinyModel, make_engine: MakeEngine, seed: int):
    batch = random_batch(random.Random(seed), 20)
    engine = make_engine(tiny.path, device="cuda", dtype="float32", kv_blocks=32, max_batch_tokens=24, max_sequences=10)
    answers = run(engine, batch, after_step=lambda _: engine.blocks.check_integrity())
    assert {key: answer.token_ids for key, answer in answers.items()} == expected(tiny, batch)
    assert engine.stats()["preemptions"] != 0


def test_the_time_of_every_step_is_split_to_the_nanosecond(make_engine: MakeEngine):
    engine = make_engine(BUILTIN_PATH, device="cuda", kv_blocks=512, max_batch_tokens=512)
    batch = [
        Submit(
            request_id=number.to_bytes(16, "big"),
            model="tiny",
            token_ids=[1, 4, *range(100, 140 + 10 * number), 2, 5],
            sampling=Sampling(max_tokens=64, temperature=0.7, seed=number, ignore_eos=True),
        )
        for number in range(12)
    ]
    first, again = run(engine, batch), run(engine, batch)
    for one in batch:
        assert len(first[one.request_id].token_ids) == 64
        assert first[one.request_id].account.gpu is not None
        assert again[one.request_id].account.usage.output_tokens == 64
    busy = [record for record in engine.take_steps() if record.kind == "step"]
    assert busy and all(sum(record.gpu_ns) == record.busy_ns for record in busy)


def test_a_prompt_read_before_is_not_read_again_on_a_gpu(tiny: TinyModel, make_engine: MakeEngine):
    batch = random_batch(random.Random(3), 8)
    engine = make_engine(tiny.path, device="cuda", dtype="float32")
    first, second = run(engine, batch), run(engine, batch)
    for one in batch:
        assert second[one.request_id].token_ids == first[one.request_id].token_ids
        assert second[one.request_id].cached_tokens == (len(one.token_ids) - 1) // 16 * 16
