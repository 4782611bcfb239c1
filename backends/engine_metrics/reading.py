"""Metric names of inference servers by meaning, newer names first.

Supports vLLM 0.8 to 0.33, SGLang 0.4 to 0.5, TGI 2 and 3, TensorRT-LLM 1 (`trtllm-serve`, Triton, and behind Dynamo,
which writes `trtllm:`), and llama.cpp since 2024. A metric that a server lacks is `None`. Data-parallel ranks inside
one server are summed, their ratios averaged; tensor and pipeline parallel ranks all report the same, so the first is
used. Ollama has no metrics page; `read_gauges` accepts its list of loaded models instead.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from prometheus_client.samples import Sample

from backends.engine_metrics.gauges import EngineKind, ServerGauges
from backends.engine_metrics.ollama import read_loaded_models
from backends.telemetry.prometheus_text import read_samples
from contracts.errors import UpstreamBroken

Part = Literal[
    "running",
    "waiting",
    "kv_usage",
    "prompt_tokens",
    "generated_tokens",
    "cached_tokens",
    "looked_up_tokens",
    "preemptions",
    "drafted_tokens",
    "accepted_tokens",
    "computed_tokens",
    "recent_hit_ratio",
    "first_token_seconds",
    "first_tokens",
    "queue_seconds",
    "queued",
    "prefill_seconds",
    "prefilled",
]
_STAGES: Final[tuple[tuple[Part, Part], ...]] = (
    ("first_token_seconds", "first_tokens"),
    ("queue_seconds", "queued"),
    ("prefill_seconds", "prefilled"),
)
_REASONS: Final = "vllm:num_requests_waiting_by_reason"
_SLEEP_STATE: Final = "vllm:engine_sleep_state"


@dataclass(frozen=True, slots=True)
class _Name:
    """A metric, and the labels that its series must have."""

    name: str
    labels: Mapping[str, str] | None = None

    def fits(self, sample: Sample) -> bool:
        return sample.name == self.name and all(
            sample.labels.get(label) == value for label, value in (self.labels or {}).items()
        )


_Table: TypeAlias = Mapping[Part, tuple[_Name, ...]]


def _names(*names: str) -> tuple[_Name, ...]:
    return tuple(_Name(name) for name in names)


def _triton(name: str, label: str, value: str) -> _Name:
    return _Name(f"nv_trt_llm_{name}_metrics", {label: value})


_VLLM: Final[_Table] = {
    "running": _names("vllm:num_requests_running"),
    "waiting": _names("vllm:num_requests_waiting"),
    "kv_usage": _names("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    "prompt_tokens": _names("vllm:prompt_tokens_total"),
    "generated_tokens": _names("vllm:generation_tokens_total"),
    "cached_tokens": _names("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "looked_up_tokens": _names("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "preemptions": _names("vllm:num_preemptions_total"),
    "drafted_tokens": _names("vllm:spec_decode_num_draft_tokens_total"),
    "accepted_tokens": _names("vllm:spec_decode_num_accepted_tokens_total"),
    "first_token_seconds": _names("vllm:time_to_first_token_seconds_sum"),
    "first_tokens": _names("vllm:time_to_first_token_seconds_count"),
}
_SGLANG: Final[_Table] = {
    "running": _names("sglang:num_running_reqs"),
    "waiting": _names("sglang:num_queue_reqs"),
    "kv_usage": _names("sglang:token_usage"),
    "prompt_tokens": _names("sglang:prompt_tokens_total"),
    "generated_tokens": _names("sglang:generation_tokens_total"),
    "cached_tokens": _names("sglang:cached_tokens_total"),
    "preemptions": _names("sglang:num_retracted_requests_total", "sglang:num_retracted_reqs_total"),
    "recent_hit_ratio": _names("sglang:cache_hit_rate"),
    "first_token_seconds": _names("sglang:time_to_first_token_seconds_sum"),
    "first_tokens": _names("sglang:time_to_first_token_seconds_count"),
}
_TGI: Final[_Table] = {
    "running": _names("tgi_batch_current_size"),
    "waiting": _names("tgi_queue_size"),
    "prompt_tokens": _names("tgi_request_input_length_sum"),
    "generated_tokens": _names("tgi_request_generated_tokens_sum"),
    # TGI has no metric of the time to first token, which is the time in the queue plus that of the prefill.
    "queue_seconds": _names("tgi_request_queue_duration_sum"),
    "queued": _names("tgi_request_queue_duration_count"),
    "prefill_seconds": (_Name("tgi_batch_inference_duration_sum", {"method": "prefill"}),),
    "prefilled": (_Name("tgi_batch_inference_duration_count", {"method": "prefill"}),),
}
_TENSORRT: Final[_Table] = {
    "running": (
        *_names("trtllm_num_requests_running", "trtllm:num_requests_running"),
        _triton("request", "request_type", "scheduled"),
    ),
    "waiting": (
        *_names("trtllm_num_requests_waiting", "trtllm:num_requests_waiting"),
        _triton("request", "request_type", "waiting"),
    ),
    "kv_usage": (
        *_names("trtllm_kv_cache_utilization", "trtllm:kv_cache_utilization"),
        _triton("kv_cache_block", "kv_cache_block_type", "fraction"),
    ),
}
# llama.cpp's counter of prompt tokens excludes cached ones, which builds before mid-2026 do not count at all.
_LLAMACPP: Final[_Table] = {
    "running": _names("llamacpp:requests_processing"),
    "waiting": _names("llamacpp:requests_deferred"),
    "kv_usage": _names("llamacpp:kv_cache_usage_ratio"),
    "generated_tokens": _names("llamacpp:tokens_predicted_total"),
    "cached_tokens": _names("llamacpp:prompt_tokens_cached_total"),
    "computed_tokens": _names("llamacpp:prompt_tokens_total"),
    "drafted_tokens": _names("llamacpp:spec_decode_num_draft_tokens_total"),
    "accepted_tokens": _names("llamacpp:spec_decode_num_accepted_tokens_total"),
}
_TABLES: Final[tuple[tuple[tuple[str, ...], EngineKind, _Table], ...]] = (
    (("vllm:",), "vllm", _VLLM),
    (("sglang:",), "sglang", _SGLANG),
    (("tgi_",), "tgi", _TGI),
    (("trtllm_", "trtllm:", "nv_trt_llm_"), "tensorrt_llm", _TENSORRT),
    (("llamacpp:",), "llamacpp", _LLAMACPP),
)
# Other metrics of a page are not parsed: the gateway's event loop waits for it, and most of a page is histograms.
_WANTED: Final = (
    _REASONS,
    _SLEEP_STATE,
    *(one.name for _, _, table in _TABLES for names in table.values() for one in names),
)


def read_gauges(text: str) -> ServerGauges:
    """Parse a page of metrics, or Ollama's list of models. Raises UpstreamBroken if it is of no supported server."""
    if text.lstrip().startswith("{"):
        return read_loaded_models(text)
    samples = [one for one in read_samples(text, _WANTED) if math.isfinite(one.value) and _is_first_rank(one)]
    for prefixes, engine, table in _TABLES:
        if any(line.startswith(prefixes) for line in text.split("\n")):
            return _gauges(engine, table, samples)
    raise UpstreamBroken(
        "its page holds no metric of vLLM, SGLang, TGI, TensorRT-LLM or llama.cpp; is metrics_url that of one?"
    )


def _gauges(engine: EngineKind, table: _Table, samples: list[Sample]) -> ServerGauges:
    def values(part: Part) -> list[float]:
        for name in table.get(part, ()):
            found = [one.value for one in samples if name.fits(one)]
            if found:
                return found
        return []

    cached, computed, prompt = (_sum(values(part)) for part in ("cached_tokens", "computed_tokens", "prompt_tokens"))
    if prompt is None and cached is not None and computed is not None:
        prompt = cached + computed
    looked_up = _sum(values("looked_up_tokens"))
    return ServerGauges(
        engine=engine,
        running=_sum(values("running")),
        waiting=_sum(values("waiting")),
        waiting_by_reason=_by_reason(samples),
        kv_usage=_mean_ratio(values("kv_usage")),
        prompt_tokens=prompt,
        generated_tokens=_sum(values("generated_tokens")),
        cached_tokens=cached,
        looked_up_tokens=prompt if looked_up is None and cached is not None else looked_up,
        preemptions=_sum(values("preemptions")),
        drafted_tokens=_sum(values("drafted_tokens")),
        accepted_tokens=_sum(values("accepted_tokens")),
        is_asleep=_is_asleep(samples),
        computed_tokens=computed,
        recent_hit_ratio=_mean_ratio(values("recent_hit_ratio")),
        first_token_stages=tuple(
            (sum(seconds), round(sum(times)))
            for took, passed in _STAGES
            if (seconds := values(took)) and (times := values(passed))
        ),
    )


def _mean_ratio(found: list[float]) -> float | None:
    return min(max(sum(found) / len(found), 0.0), 1.0) if found else None


def _sum(values: Iterable[float]) -> int | None:
    found = list(values)
    return round(sum(found)) if found else None


def _by_reason(samples: list[Sample]) -> dict[str, int]:
    reasons: dict[str, int] = {}
    for one in samples:
        if one.name == _REASONS and (reason := one.labels.get("reason")):
            reasons[reason] = reasons.get(reason, 0) + round(one.value)
    return reasons


def _is_asleep(samples: list[Sample]) -> bool | None:
    """Return whether vLLM sleeps. It has a series per state, which is 1 for the current one."""
    awake = [one.value for one in samples if one.name == _SLEEP_STATE and one.labels.get("sleep_state") == "awake"]
    return not all(awake) if awake else None


def _is_first_rank(sample: Sample) -> bool:
    return sample.labels.get("tp_rank", "0") == "0" and sample.labels.get("pp_rank", "0") == "0"
