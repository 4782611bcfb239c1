"""Collects vLLM's statistics of each step: queues, memory, cache hits, preemptions, drafts, adapters."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from backends.engine.base import Facts
from backends.engine.step_book import QueueFacts

_BATCH_BOUNDS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # tokens generated in a step


@dataclass(slots=True)
class Gauges:
    """Counters since the engine's start, and current gauges. `note` is called after each step."""

    kv_blocks: int = 0
    running: int = 0
    waiting: int = 0
    deferred: int = 0  # waiting for a grammar, an adapter or remote KV, but not for memory
    kv_usage: float = 0.0
    steps: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    cache_queries: int = 0
    cache_hits: int = 0
    preemptions: int = 0
    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    evictions: int = 0
    corrupted: int = 0
    running_adapters: dict[str, int] = field(default_factory=dict)
    waiting_adapters: dict[str, int] = field(default_factory=dict)
    batches: "Counter[int]" = field(default_factory=Counter)

    def note(self, scheduler: Any, iteration: Any) -> None:
        """Add one step's statistics: vLLM's SchedulerStats and IterationStats (v1/metrics/stats.py), or `None`."""
        if scheduler is not None:
            self.running = scheduler.num_running_reqs
            self.deferred = scheduler.num_skipped_waiting_reqs
            self.waiting = scheduler.num_waiting_reqs + self.deferred
            self.kv_usage = scheduler.kv_cache_usage
            cache = scheduler.prefix_cache_stats
            if cache is not None:
                self.cache_queries += cache.queries
                self.cache_hits += cache.hits
            self.evictions += len(scheduler.kv_cache_eviction_events)
            drafting = scheduler.spec_decoding_stats
            if drafting is not None:
                self.drafts += drafting.num_drafts
                self.drafted += drafting.num_draft_tokens
                self.accepted += drafting.num_accepted_tokens
            self.running_adapters = scheduler.running_lora_adapters
            self.waiting_adapters = scheduler.waiting_lora_adapters
        if iteration is not None:
            self.steps += 1
            self.generated_tokens += iteration.num_generation_tokens
            self.prompt_tokens += iteration.prompt_token_stats.total
            self.preemptions += iteration.num_preempted_reqs
            self.batches[_bound(iteration.num_generation_tokens)] += 1

    def rest(self) -> None:
        """Set the queue gauges to 0 as nothing runs: vLLM reports its queues only with steps."""
        self.running = self.waiting = self.deferred = 0
        self.running_adapters = self.waiting_adapters = {}

    def queue_facts(self) -> QueueFacts:
        """Return the state of the queue and KV cache for a step record."""
        return QueueFacts(self.running, self.waiting, round(self.kv_usage * self.kv_blocks), self.kv_blocks)

    def facts(self) -> Facts:
        """Return all values, by their names in the `stats` call."""
        facts: Facts = {
            "running": self.running,
            "waiting": self.waiting,
            "waiting_for_room": self.waiting - self.deferred,
            "waiting_deferred": self.deferred,
            "kv_blocks_total": self.kv_blocks,
            "kv_blocks_held": round(self.kv_usage * self.kv_blocks),
            "kv_usage": self.kv_usage,
            "engine_steps": self.steps,
            "prompt_tokens": self.prompt_tokens,
            "generated_tokens": self.generated_tokens,
            "prefix_cache_queries": self.cache_queries,
            "prefix_cache_hits": self.cache_hits,
            "preemptions": self.preemptions,
            "kv_evictions_sampled": self.evictions,
            "speculative_drafts": self.drafts,
            "speculative_drafted_tokens": self.drafted,
            "speculative_accepted_tokens": self.accepted,
            "speculative_acceptance": self.accepted / self.drafted if self.drafted else None,
            "adapters_running": len(self.running_adapters),
            "adapters_waiting": len(self.waiting_adapters),
        }
        for bound, count in sorted(self.batches.items()):
            size = f"at_most_{bound}" if bound <= _BATCH_BOUNDS[-1] else f"more_than_{_BATCH_BOUNDS[-1]}"
            facts[f"steps_of_{size}_tokens"] = count
        return facts


def _bound(tokens: int) -> int:
    return next((bound for bound in _BATCH_BOUNDS if tokens <= bound), _BATCH_BOUNDS[-1] + 1)
