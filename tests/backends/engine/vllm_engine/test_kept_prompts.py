"""What was kept of a prompt in vLLM's cache is on the account as written, and only what was new in it."""

import pytest

from contracts.engine.kept_prefix import KeptPrefix
from contracts.engine.wire import Image
from tests.backends.engine.vllm_engine.driving import ask, drive, end
from tests.backends.engine.vllm_engine.played_llm import Choice, Output, Times

FIVE_MINUTES, HOUR = 300, 3600


def answer(kept, cached=0):
    now = 1.0
    said = None if kept is None else {"tollkeeper_kept": kept}
    return [Output([Choice(0, [300], "length")], True, cached, Times(now, now, now, now), kv_transfer_params=said)]


@pytest.fixture
def usage_of(make_engine):
    def run(kept, cached=0, prefixes=((64, FIVE_MINUTES),), prompt=100, *, keeps=True):
        engine, llm = make_engine(lambda request: answer(kept, cached), keeps_prompts=keeps)
        marks = [KeptPrefix(tokens=tokens, ttl_seconds=seconds) for tokens, seconds in prefixes]
        events = drive(engine, ask(1, [5] * prompt, max_tokens=1, kept_prefixes=marks, tenant="acme"))
        return end(events).usage, llm.requests[0].sampling.get("extra_args")

    return run


def test_what_is_new_is_written_and_the_rest_read(usage_of):
    usage, order = usage_of([64], cached=32)
    assert (usage.input_text, usage.cache_read_text, usage.cache_write_5m) == (36, 32, 32)
    assert order == {"tollkeeper_keep": ["acme", [[64, FIVE_MINUTES]]]}


def test_two_beginnings_are_written_each_for_its_time(usage_of):
    usage, _ = usage_of([32, 96], prefixes=((32, HOUR), (100, FIVE_MINUTES)))
    assert (usage.cache_write_1h, usage.cache_write_5m, usage.input_text) == (32, 64, 4)


@pytest.mark.parametrize("kept", [[0], None])
def test_what_was_not_kept_is_not_written(usage_of, kept):
    usage, _ = usage_of(kept)
    assert usage.cache_write_5m is None and usage.input_text == 100


def test_a_host_that_cannot_keep_orders_nothing(usage_of):
    assert usage_of(None, keeps=False)[1] is None


def test_of_a_prompt_with_images_nothing_is_ordered(make_engine):
    from dataclasses import replace

    from tests.backends.engine.vllm_engine.played_llm import FACTS

    engine, llm = make_engine(
        lambda request: answer(None), keeps_prompts=True, facts=replace(FACTS, accepts_images=True)
    )
    images = [Image(data=b"x", sha256=b"s" * 32)]
    marks = [KeptPrefix(tokens=64, ttl_seconds=FIVE_MINUTES)]
    drive(engine, ask(1, [5] * 100, max_tokens=1, kept_prefixes=marks, images=images))
    assert "extra_args" not in llm.requests[0].sampling
