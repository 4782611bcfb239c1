"""Checks before the start that the installed vLLM can be metered: the meter hooks into internals of vLLM."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

_METHODS: Final[Mapping[str, tuple[str, ...]]] = {
    "load_model": (),
    "compile_or_warm_up_model": (),
    "execute_model": ("scheduler_output",),
    "sample_tokens": ("grammar_output",),
    "execute_dummy_batch": (),
    "sleep": ("level",),
    "wake_up": ("tags",),
    "shutdown": (),
}
_BATCH_FIELDS: Final = (
    "scheduled_new_reqs",
    "scheduled_cached_reqs",
    "num_scheduled_tokens",
    "total_num_scheduled_tokens",
    "scheduled_spec_decode_tokens",
    "scheduled_encoder_inputs",
    "finished_req_ids",
)
_NEW_FIELDS: Final = ("req_id", "prompt_token_ids", "num_computed_tokens", "sampling_params", "mm_features")
_CACHED_FIELDS: Final = ("req_ids", "resumed_req_ids", "num_computed_tokens")


def missing_hooks() -> list[str]:
    """Return the names of what the installed vLLM lacks for metering; empty if it has all. Imports vLLM,
    which is slow.
    """
    try:
        from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput
        from vllm.v1.outputs import AsyncModelRunnerOutput
        from vllm.v1.worker.gpu_worker import Worker
    except ImportError as error:
        return [str(error.name or "vllm")]
    return [
        *missing_methods(Worker, _METHODS),
        *missing_methods(AsyncModelRunnerOutput, {"get_output": ()}),
        *missing_fields(SchedulerOutput, _BATCH_FIELDS),
        *missing_fields(NewRequestData, _NEW_FIELDS),
        *missing_fields(CachedRequestData, _CACHED_FIELDS),
    ]


def missing_methods(kind: type, methods: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return the names of the methods and parameters that a class lacks."""
    found: list[str] = []
    for name, parameters in methods.items():
        method: Callable[..., Any] | None = getattr(kind, name, None)
        if method is None:
            found.append(f"{kind.__name__}.{name}")
            continue
        known = inspect.signature(method).parameters
        found += [f"{kind.__name__}.{name}({one})" for one in parameters if one not in known]
    return found


def missing_fields(kind: Any, names: tuple[str, ...]) -> list[str]:
    """Return the names of the fields that a dataclass lacks."""
    known = {one.name for one in fields(kind)} if is_dataclass(kind) else set()
    return [f"{kind.__name__}.{name}" for name in names if name not in known]
