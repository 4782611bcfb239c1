"""vLLM's schedulers with prefix pinning: the `scheduler_cls` of the vLLM host.

Imported by vLLM in its scheduler process, never by the host itself.
"""

import logging
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from backends.engine.vllm_engine.keeping.prompt_keeper import PromptKeeper

_log = logging.getLogger(__name__)


class _Keeping:
    """Mixin that adds a `PromptKeeper` to one of vLLM's two schedulers."""

    def __init__(self, *parts: Any, **options: Any) -> None:
        super().__init__(*parts, **options)
        own: Any = self
        size = own.cache_config.block_size
        self._keeper: PromptKeeper | None = None
        if len(own.kv_cache_config.kv_cache_groups) == 1 and own.block_size == size:
            self._keeper = PromptKeeper(own.kv_cache_manager, size)
        else:
            _log.warning("prompts cannot be pinned: this model has several groups of layers with separate caches")

    def add_request(self, request: Any) -> None:
        """Add a request, and register the prefixes it wants pinned."""
        super().add_request(request)  # type: ignore[misc]  # vLLM is not installed where types are checked
        if self._keeper is not None:
            self._keeper.expect(request)

    def schedule(self, *parts: Any, **options: Any) -> Any:
        """Unpin expired prefixes, then schedule a step."""
        if self._keeper is not None:
            self._keeper.expire()
        return super().schedule(*parts, **options)  # type: ignore[misc]

    def update_from_output(self, *parts: Any, **options: Any) -> Any:
        """Process a step's output, and pin the prefixes of prompts that it completed."""
        outputs = super().update_from_output(*parts, **options)  # type: ignore[misc]
        if self._keeper is not None:
            self._keeper.answer(outputs)
        return outputs

    def reset_prefix_cache(self, *parts: Any, **options: Any) -> Any:
        """Unpin everything, then empty the cache: vLLM refuses to empty it while blocks are referenced."""
        if self._keeper is not None:
            self._keeper.let_go()
        return super().reset_prefix_cache(*parts, **options)  # type: ignore[misc]


class KeepingScheduler(_Keeping, Scheduler):  # type: ignore[misc]
    """vLLM's synchronous scheduler with prefix pinning."""


class KeepingAsyncScheduler(_Keeping, AsyncScheduler):  # type: ignore[misc]
    """vLLM's asynchronous scheduler, which schedules a step while the one before runs, with prefix pinning."""


def make_scheduler(*, vllm_config: Any, **options: Any) -> Any:
    """Create the scheduler that vLLM would have chosen for this configuration, with prefix pinning."""
    kind = KeepingAsyncScheduler if vllm_config.scheduler_config.async_scheduling else KeepingScheduler
    return kind(vllm_config=vllm_config, **options)
