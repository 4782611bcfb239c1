"""Metrics of engine hosts' models and GPUs, and of third-party inference servers.

An unknown value has no series: 0 would mean that it was measured.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from backends.engine_metrics.scraper import Scrape
from backends.gpu.facts import Fact, facts_by_device
from backends.llm.host.host_connection import HostStatus
from gateway.observability.metrics.exposition import Family, Kind, Labels, Sample

Hosts: TypeAlias = Mapping[str, HostStatus]

_GPU: Final[tuple[tuple[str, str, Kind, str], ...]] = (
    ("memory_total_bytes", "memory_total_bytes", "gauge", "Memory of a GPU."),
    ("memory_used_bytes", "memory_used_bytes", "gauge", "Memory in use, by anyone."),
    ("power_watts", "power_watts", "gauge", "Power drawn."),
    ("power_limit_watts", "power_limit_watts", "gauge", "Power it may draw."),
    ("energy_joules", "energy_joules_total", "counter", "Energy used since the driver's start."),
    ("temperature_celsius", "temperature_celsius", "gauge", "Temperature of the chip."),
    ("memory_temperature_celsius", "memory_temperature_celsius", "gauge", "Temperature of the memory."),
    ("sm_clock_mhz", "sm_clock_mhz", "gauge", "Clock of the multiprocessors."),
    ("memory_clock_mhz", "memory_clock_mhz", "gauge", "Clock of the memory."),
    ("kernel_activity", "kernel_activity_ratio", "gauge", "Part of the time in which any kernel ran."),
    ("sm_activity", "sm_activity_ratio", "gauge", "Part of the multiprocessors' time in which they had work."),
    ("sm_occupancy", "sm_occupancy_ratio", "gauge", "Part of the multiprocessors' places for warps in use."),
    ("tensor_activity", "tensor_activity_ratio", "gauge", "Part of the time in which tensor cores computed."),
    ("dram_activity", "dram_activity_ratio", "gauge", "Part of the memory's bandwidth in use."),
    ("other_processes", "other_processes", "gauge", "Processes on it that are not its engine host's."),
    ("is_shared", "shared", "gauge", "Whether another process computes on it: GPU times are then not trusted."),
    ("is_lost", "lost", "gauge", "Whether it is lost until it is reset."),
)
_MODEL: Final[tuple[tuple[str, str, Kind, str], ...]] = (
    ("running", "running", "gauge", "Requests in an engine's batch, of all gateways."),
    ("waiting", "waiting", "gauge", "Requests that wait at an engine."),
    ("kv_blocks_total", "kv_blocks", "gauge", "Blocks of an engine's KV cache."),
    ("kv_blocks_held", "kv_blocks_held", "gauge", "Blocks used by requests."),
    ("kv_blocks_kept", "kv_blocks_kept", "gauge", "Pinned blocks of prompts that callers marked."),
    ("kv_blocks_given_up", "kv_blocks_given_up_total", "counter", "Such blocks that running requests needed."),
    ("prefix_cache_queries", "prefix_queried_tokens_total", "counter", "Prompt tokens looked up in the prefix cache."),
    ("prefix_cache_hits", "prefix_hit_tokens_total", "counter", "Prompt tokens found there."),
    ("preemptions", "preemptions_total", "counter", "Requests put back to wait for lack of blocks."),
    ("speculative_drafted_tokens", "drafted_tokens_total", "counter", "Tokens drafted."),
    ("speculative_accepted_tokens", "accepted_tokens_total", "counter", "Drafted tokens that were right."),
    ("adapters_loaded", "adapters_loaded", "gauge", "Adapters an engine has at hand."),
    ("is_awake", "awake", "gauge", "Whether a model is loaded and does not sleep."),
    ("wake_last_seconds", "wake_seconds", "gauge", "How long it last took to wake."),
    ("load_last_seconds", "load_seconds", "gauge", "How long it last took to load it for a request."),
    ("slow_ratio", "slow_ratio", "gauge", "How many times longer its steps take than when it was new."),
)
_WAITING: Final = {"waiting_for_room": "room", "waiting_deferred": "deferred"}
_UPSTREAM: Final[tuple[tuple[str, str, Kind, str], ...]] = (
    ("running", "running", "gauge", "Requests in an inference server's batch, as it reports."),
    ("waiting", "waiting", "gauge", "Requests that wait at an inference server."),
    ("kv_usage", "kv_usage_ratio", "gauge", "Used part of its KV cache."),
    ("prompt_tokens", "prompt_tokens_total", "counter", "Prompt tokens it received."),
    ("generated_tokens", "generated_tokens_total", "counter", "Tokens it has made."),
    ("computed_tokens", "computed_prompt_tokens_total", "counter", "Prompt tokens that no cache answered."),
    ("looked_up_tokens", "prefix_queried_tokens_total", "counter", "Prompt tokens looked up in its prefix cache."),
    ("cached_tokens", "prefix_hit_tokens_total", "counter", "Prompt tokens its prefix cache answered."),
    ("recent_hit_ratio", "prefix_hit_ratio", "gauge", "Its prefix cache's recent hit rate, as it computes it itself."),
    ("preemptions", "preemptions_total", "counter", "Requests it put back to wait."),
    ("drafted_tokens", "drafted_tokens_total", "counter", "Tokens it drafted."),
    ("accepted_tokens", "accepted_tokens_total", "counter", "Drafted tokens that were right."),
    ("is_asleep", "asleep", "gauge", "Whether it sleeps."),
    ("loaded_models", "loaded_models", "gauge", "Models that it has in memory."),
    ("model_bytes", "model_memory_bytes", "gauge", "Memory that its loaded models occupy, of GPUs and of the host."),
    ("model_gpu_bytes", "model_gpu_memory_bytes", "gauge", "GPU memory that its loaded models occupy."),
)


def gpu_families(hosts: Hosts) -> Iterator[Family]:
    """Yield the metrics of GPUs, labelled by host and UUID."""
    devices = [
        ({"host": name, "gpu": uuid}, facts)
        for name, host in hosts.items()
        for uuid, facts in facts_by_device(host.facts).items()
    ]
    yield from _families("tollkeeper_gpu_", _GPU, devices)
    yield Family(
        "tollkeeper_gpu_ecc_errors_total",
        "counter",
        "Memory errors over a GPU's life.",
        _samples(
            ({**labels, "kind": kind}, facts.get(f"ecc_{kind}"))
            for labels, facts in devices
            for kind in ("corrected", "uncorrected")
        ),
    )
    yield Family(
        "tollkeeper_gpu_throttled",
        "gauge",
        "Reasons for reduced GPU clocks; 1 for each.",
        [
            ({**labels, "reason": reason}, 1)
            for labels, facts in devices
            for reason in filter(None, str(facts.get("throttle_reasons") or "").split(","))
        ],
    )
    yield Family(
        "tollkeeper_gpu_faults_total",
        "counter",
        "Faults (XID) of a host's GPUs since its start.",
        _samples(({"host": name}, host.facts.get("gpu_faults")) for name, host in hosts.items()),
    )


def model_families(hosts: Hosts) -> Iterator[Family]:
    """Yield what engines report, labelled by host and model."""
    models = [
        ({"host": name, "model": model}, _own(host.facts, model))
        for name, host in hosts.items()
        for model in host.models
    ]
    yield from _families("tollkeeper_engine_", _MODEL, models)
    yield Family(
        "tollkeeper_engine_waiting_by_reason",
        "gauge",
        "Requests that wait at an engine: for room, or deferred for a grammar, an adapter or remote keys and values.",
        _samples(
            ({**labels, "reason": reason}, facts.get(fact))
            for labels, facts in models
            for fact, reason in _WAITING.items()
        ),
    )


def upstream_families(scrapes: Mapping[str, Scrape]) -> Iterator[Family]:
    """Yield what other inference servers report, labelled by target and engine."""
    known = [
        ({"target": name, "engine": scrape.gauges.engine}, _upstream_facts(scrape))
        for name, scrape in scrapes.items()
        if scrape.gauges is not None
    ]
    yield Family(
        "tollkeeper_upstream_metrics_reachable",
        "gauge",
        "Whether a target's metrics_url answered at the last attempt.",
        [({"target": name}, int(scrape.is_reached)) for name, scrape in scrapes.items()],
    )
    yield Family(
        "tollkeeper_upstream_metrics_readable",
        "gauge",
        "Whether the page at metrics_url is in a known inference server's format.",
        [({"target": name}, int(scrape.gauges is not None)) for name, scrape in scrapes.items() if scrape.is_reached],
    )
    yield from _families("tollkeeper_upstream_", _UPSTREAM, known)
    yield Family(
        "tollkeeper_upstream_waiting_by_reason",
        "gauge",
        "Requests that wait at an inference server, by the reason it names.",
        [
            ({"target": name, "engine": scrape.gauges.engine, "reason": reason}, count)
            for name, scrape in scrapes.items()
            if scrape.gauges is not None
            for reason, count in scrape.gauges.waiting_by_reason.items()
        ],
    )


def _upstream_facts(scrape: Scrape) -> Mapping[str, Fact]:
    return {fact: getattr(scrape.gauges, fact) for fact, _, _, _ in _UPSTREAM}


def _own(facts: Mapping[str, Fact], model: str) -> Mapping[str, Fact]:
    prefix = f"{model}."
    return {name.removeprefix(prefix): value for name, value in facts.items() if name.startswith(prefix)}


def _families(
    prefix: str, table: tuple[tuple[str, str, Kind, str], ...], things: Sequence[tuple[Labels, Mapping[str, Fact]]]
) -> Iterator[Family]:
    for fact, name, kind, help in table:
        yield Family(prefix + name, kind, help, _samples((labels, facts.get(fact)) for labels, facts in things))


def _samples(found: Iterable[tuple[Labels, Fact]]) -> list[Sample]:
    """Return those that are known, as numbers."""
    return [(labels, value * 1) for labels, value in found if isinstance(value, bool | int | float)]
