"""What is in the way of following vLLM's cache or keeping prompts in it is named, and nothing else is."""

import logging
from types import SimpleNamespace

import pytest

from backends.engine import vllm_builder
from backends.engine.base import ModelOrder
from backends.engine.vllm_engine import cache_hooks
from backends.engine.vllm_engine.cache_hooks import CacheHooks, why_not_followed, why_not_kept
from contracts.errors import Unavailable


def config(*, cached=True, runner="generate", ranks=1, events=None, scheduler=None):
    """What of vLLM's configuration is read."""
    return SimpleNamespace(
        model_config=SimpleNamespace(runner_type=runner),
        cache_config=SimpleNamespace(enable_prefix_caching=cached),
        parallel_config=SimpleNamespace(data_parallel_size=ranks),
        scheduler_config=SimpleNamespace(scheduler_cls=scheduler),
        kv_events_config=events,
    )


@pytest.fixture(autouse=True)
def whole_vllm(monkeypatch):
    monkeypatch.setattr(cache_hooks, "_missing_event_parts", list)
    monkeypatch.setattr(cache_hooks, "_missing_scheduler_parts", list)


@pytest.mark.parametrize(
    ("options", "followed", "kept"),
    [
        ({}, "", ""),
        ({"cached": False}, "prefix cache is off", "prefix cache is off"),
        ({"runner": "pooling"}, "embeds", "embeds"),
        ({"ranks": 2}, "a cache each; run a host for each", ""),
        ({"events": object()}, "--kv-events-config", ""),
        ({"scheduler": "x.Y"}, "", "--scheduler-cls"),
    ],
    ids=["nothing", "no cache", "an embedder", "data-parallel ranks", "other events", "another scheduler"],
)
def test_each_reason_is_named(options, followed, kept):
    said = why_not_followed(config(**options)), why_not_kept(config(**options))
    assert [bool(one) for one in said] == [bool(followed), bool(kept)]
    assert followed in said[0] and kept in said[1]


def test_a_release_that_lacks_a_part_is_served_without_it(monkeypatch):
    monkeypatch.setattr(cache_hooks, "_missing_scheduler_parts", lambda: ["BlockPool.touch"])
    assert why_not_kept(config()) == "this vLLM lacks BlockPool.touch" and why_not_followed(config()) == ""


def test_without_events_the_reason_is_what_gateways_are_told():
    source = CacheHooks(None, "its prefix cache is off").source(ModelOrder("m", "/m", engine="e/1"), "r", 16)
    with pytest.raises(Unavailable, match="its prefix cache is off"):
        source.cached_blocks()


def test_data_parallel_ranks_are_not_metered_and_that_is_said(monkeypatch, caplog):
    monkeypatch.setattr(vllm_builder, "missing_hooks", list)
    with caplog.at_level(logging.WARNING):
        assert not vllm_builder.can_meter(2) and vllm_builder.can_meter(1)
    assert "2 data-parallel ranks are not metered: run a host for each rank" in caplog.text
