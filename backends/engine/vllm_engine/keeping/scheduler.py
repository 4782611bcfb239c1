"""vLLM's scheduler with someone beside it who keeps prompts: `scheduler_cls` of the vLLM host.

Imported by vLLM in the process that schedules, never by the host itself.
"""

import logging
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from backends.engine.vllm_engine.keeping.prompt_keeper import PromptKeeper

_log = logging.getLogger(__name__)


class _Keeping:
    """Mixed in before one of vLLM's two schedulers."""

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
        """Record a request."""
        super().add_request(request)  # type: ignore[misc]  # vLLM is not installed where types are checked
        if self._keeper is not None:
            self._keeper.expect(request)

    def schedule(self, *parts: Any, **options: Any) -> Any:
        """Decide a step."""
        if self._keeper is not None:
            self._keeper.expire()
        return super().schedule(*parts, **options)  # type: ignore[misc]

    def update_from_output(self, *parts: Any, **options: Any) -> Any:
        """Record what a step brought."""
        outputs = super().update_from_output(*parts, **options)  # type: ignore[misc]
        if self._keeper is not None:
            self._keeper.answer(outputs)
        return outputs

    def reset_prefix_cache(self, *parts: Any, **options: Any) -> Any:
        """Empty the cache, and of what is kept too: vLLM empties it only while nobody holds a block."""
        if self._keeper is not None:
            self._keeper.let_go()
        return super().reset_prefix_cache(*parts, **options)  # type: ignore[misc]


class KeepingScheduler(_Keeping, Scheduler):  # type: ignore[misc]
    """For steps one after another."""


class KeepingAsyncScheduler(_Keeping, AsyncScheduler):  # type: ignore[misc]
    """Schedule steps while the one before runs, with the changes of the class above as well."""


def make_scheduler(*, vllm_config: Any, **options: Any) -> Any:
    """Create the one that vLLM would have made, and a keeper in it."""
    kind = KeepingAsyncScheduler if vllm_config.scheduler_config.async_scheduling else KeepingScheduler
    return kind(vllm_config=vllm_config, **options)
