"""The common fields that metrics of all supported inference servers are parsed into."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

EngineKind = Literal["vllm", "sglang", "tgi", "tensorrt_llm", "llamacpp", "ollama"]


@dataclass(frozen=True, slots=True)
class ServerGauges:
    """An inference server's metrics at one moment. `None`: the server does not report it. Counters count since its
    start, over all its models.

    `kv_usage` is the used part of the KV cache, 0 to 1. `cached_tokens` are prompt tokens found in the prefix cache;
    `looked_up_tokens` those that were looked up there (the number of prompt tokens if the server does not count
    lookups). `accepted_tokens` of `drafted_tokens` speculative tokens were accepted. `computed_tokens` are prompt
    tokens that were not cached. `recent_hit_ratio` is the prefix cache's hit rate as the server computes it, 0 to 1.
    `first_token_stages` are the stages of a request until its first token, each with the sum of seconds and the number
    of requests. `loaded_models` is the number of models in memory, which occupy `model_bytes`, of these
    `model_gpu_bytes` on GPUs.
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
