"""The state of an inference server in one vocabulary, whichever of six engines it runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

EngineKind = Literal["vllm", "sglang", "tgi", "tensorrt_llm", "llamacpp", "ollama"]


@dataclass(frozen=True, slots=True)
class ServerGauges:
    """What a server said at one moment. `None`: it does not say. Counters are since its start, over all its models.

    `kv_usage` is the used part of the KV cache, 0 to 1. `cached_tokens` are prompt tokens that a prefix cache
    answered; `looked_up_tokens` those it was asked for, where the server counts them (else the prompt's are).
    `accepted_tokens` of `drafted_tokens` speculative ones were right. `computed_tokens` are prompt tokens that no cache
    answered. `recent_hit_ratio` is the prefix cache's hit rate as the server computes it itself, 0 to 1.
    `first_token_stages` are those that a request passes until its first token, each with the seconds that it took and
    how many requests passed it. `loaded_models` are those in memory now, which occupy `model_bytes`,
    `model_gpu_bytes` of them on GPUs.
    """

    engine: EngineKind
    running: int | None = None
    waiting: int | None = None
    waiting_by_reason: Mapping[str, int] = field(default_factory=dict)
    kv_usage: float | None = None
    prompt_tokens: int | None = None
    generated_tokens: int | None = None
    cached_tokens: int | None = None
    looked_up_tokens: int | None = None
    preemptions: int | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    is_asleep: bool | None = None
    computed_tokens: int | None = None
    recent_hit_ratio: float | None = None
    loaded_models: int | None = None
    model_bytes: int | None = None
    model_gpu_bytes: int | None = None
    first_token_stages: tuple[tuple[float, int], ...] = ()
