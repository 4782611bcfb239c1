"""What vLLM tells of itself, as gauges and counters."""

from types import SimpleNamespace

from backends.engine.step_book import QueueFacts
from backends.engine.vllm_engine.gauges import Gauges


def scheduler(**more):
    found = {
        "num_running_reqs": 3,
        "num_waiting_reqs": 2,
        "num_skipped_waiting_reqs": 1,
        "kv_cache_usage": 0.25,
        "prefix_cache_stats": SimpleNamespace(queries=10, hits=4),
        "kv_cache_eviction_events": [],
        "spec_decoding_stats": None,
        "running_lora_adapters": {"a": 2},
        "waiting_lora_adapters": {},
    }
    return SimpleNamespace(**(found | more))


def iteration(generated=3, **more):
    tokens = SimpleNamespace(total=7)
    found = {"num_generation_tokens": generated, "prompt_token_stats": tokens, "num_preempted_reqs": 1}
    return SimpleNamespace(**(found | more))


def test_counters_add_up_and_gauges_are_of_now():
    gauges = Gauges(kv_blocks=100)
    gauges.note(scheduler(), iteration())
    gauges.note(scheduler(num_running_reqs=1), iteration())
    facts = gauges.facts()
    assert (facts["running"], facts["waiting"], facts["waiting_for_room"], facts["waiting_deferred"]) == (1, 3, 2, 1)
    assert (facts["prefix_cache_queries"], facts["prefix_cache_hits"]) == (20, 8)
    assert (facts["preemptions"], facts["generated_tokens"], facts["prompt_tokens"]) == (2, 6, 14)
    assert (facts["kv_blocks_held"], facts["adapters_running"]) == (25, 1)
    assert gauges.queue_facts() == QueueFacts(1, 3, 25, 100)


def test_acceptance_is_unknown_until_something_was_drafted():
    gauges = Gauges()
    gauges.note(scheduler(), iteration())
    assert gauges.facts()["speculative_acceptance"] is None
    drafts = SimpleNamespace(num_drafts=2, num_draft_tokens=6, num_accepted_tokens=3)
    gauges.note(scheduler(spec_decoding_stats=drafts), iteration())
    assert gauges.facts()["speculative_acceptance"] == 0.5


def test_batch_sizes_are_counted_by_their_bound():
    gauges = Gauges()
    for generated in (1, 2, 3, 4, 5, 1024, 5000):
        gauges.note(None, iteration(generated))
    counts = {name: count for name, count in gauges.facts().items() if name.startswith("steps_of")}
    assert counts == {
        "steps_of_at_most_1_tokens": 1,
        "steps_of_at_most_2_tokens": 1,
        "steps_of_at_most_4_tokens": 2,
        "steps_of_at_most_8_tokens": 1,
        "steps_of_at_most_1024_tokens": 1,
        "steps_of_more_than_1024_tokens": 1,
    }


def test_at_rest_nothing_runs_whatever_was_said_last():
    gauges = Gauges(kv_blocks=100)
    gauges.note(scheduler(), None)
    gauges.rest()
    assert gauges.facts()["running"] == gauges.facts()["waiting"] == gauges.facts()["adapters_running"] == 0
    assert gauges.facts()["engine_steps"] == 0
