"""Hooks into vLLM's prefix cache: report its changes, and pin marked prompts.

Serving does not need them: a hook that this vLLM or the operator's arguments do not support is left out with a warning.
"""

import logging
import time
from dataclasses import dataclass
from typing import Any, Final

from backends.engine.base import ModelOrder
from backends.engine.torch_engine.kv_events import KvEventLog
from backends.engine.vllm_engine.kv_events.source import KvPlace, KvSource, NoKvEvents
from backends.engine.vllm_engine.metering.capability import missing_fields, missing_methods

_log = logging.getLogger(__name__)

SCHEDULER: Final = "backends.engine.vllm_engine.keeping.scheduler.make_scheduler"
_SCHEDULER_METHODS: Final = {
    "add_request": ("request",),
    "schedule": (),
    "update_from_output": (),
    "reset_prefix_cache": (),
}
_POOL_METHODS: Final = {
    "get_cached_block": ("block_hash", "kv_cache_group_ids"),
    "touch": ("blocks",),
    "free_blocks": ("ordered_blocks",),
    "get_num_free_blocks": (),
}
_EVENT_FIELDS: Final = ("endpoint", "replay_endpoint", "buffer_steps", "enable_kv_cache_events")


@dataclass(slots=True)
class CacheHooks:
    """The installed hooks. `why` is the reason why cache changes cannot be reported; empty if they can."""

    place: KvPlace | None
    why: str = ""
    keeps: bool = False

    def source(self, order: ModelOrder, replica: str, block_size: int) -> KvSource:
        """Return the source of cache events, once vLLM runs."""
        if self.place is None:
            return NoKvEvents(self.why)
        return self.place.follow(KvEventLog(order.engine, order.name, replica, block_size, "gpu", time.time_ns))

    def close(self) -> None:
        """Release the hooks if the model did not load."""
        if self.place is not None:
            self.place.close()


def add_cache_hooks(config: Any) -> CacheHooks:
    """Add the supported hooks to vLLM's configuration and return them."""
    why = why_not_followed(config)
    place: KvPlace | None = None
    if not why:
        from vllm.config.kv_events import KVEventsConfig

        place = KvPlace()
        config.kv_events_config = KVEventsConfig(**place.config_fields())
    else:
        _log.warning("vLLM's cache is not followed: %s", why)
    why_not = why_not_kept(config)
    if not why_not:
        config.scheduler_config.scheduler_cls = SCHEDULER
    else:
        _log.warning("marked prompts cannot be pinned: %s", why_not)
    return CacheHooks(place, why, not why_not)


def why_not_followed(config: Any) -> str:
    """Return why cache changes cannot be reported; empty if they can."""
    common = _why_no_cache(config)
    if common:
        return common
    if config.kv_events_config is not None:
        return "--kv-events-config sends vLLM's events elsewhere"
    if config.parallel_config.data_parallel_size > 1:
        return "its data-parallel ranks have a cache each; run a host for each rank instead"
    missing = _missing_event_parts()
    return f"this vLLM lacks {', '.join(missing)}" if missing else ""


def why_not_kept(config: Any) -> str:
    """Return why prompts cannot be pinned; empty if they can."""
    common = _why_no_cache(config)
    if common:
        return common
    if config.scheduler_config.scheduler_cls is not None:
        return "--scheduler-cls names a scheduler that is not ours"
    missing = _missing_scheduler_parts()
    return f"this vLLM lacks {', '.join(missing)}" if missing else ""


def _why_no_cache(config: Any) -> str:
    if config.model_config.runner_type == "pooling":
        return "a model that embeds has no cache"
    return "" if config.cache_config.enable_prefix_caching else "its prefix cache is off"


def _missing_event_parts() -> list[str]:
    try:
        from vllm.config.kv_events import KVEventsConfig
    except ImportError as error:
        return [str(error.name)]
    return missing_fields(KVEventsConfig, _EVENT_FIELDS)


def _missing_scheduler_parts() -> list[str]:
    try:
        from vllm.v1.core.block_pool import BlockPool
        from vllm.v1.core.kv_cache_manager import KVCacheManager
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    except ImportError as error:
        return [str(error.name)]
    return [
        *missing_methods(AsyncScheduler, _SCHEDULER_METHODS),
        *missing_methods(BlockPool, _POOL_METHODS),
        *missing_methods(KVCacheManager, {"allocate_slots": ("request", "num_new_tokens", "new_computed_blocks")}),
    ]
