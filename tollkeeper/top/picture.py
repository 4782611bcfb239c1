"""Computes the figures of `tollkeeper top` from two readings of the gateway's metrics. Unknown values are `None`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tollkeeper.top.page import Key, MetricsPage, PagePair

_TTFT: Final = "gen_ai_server_time_to_first_token_seconds"
_DURATION: Final = "gen_ai_server_request_duration_seconds"
_MODEL: Final = "gen_ai_request_model"
_HOUR_SECONDS: Final = 3_600


@dataclass(frozen=True, slots=True)
class Traffic:
    """Figures over all requests: rates per second, times in seconds, current counts."""

    requests_per_s: float
    failed_per_s: float
    refused_per_s: float
    input_tokens_per_s: float
    output_tokens_per_s: float
    usd_per_hour: float
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    duration_p95_s: float | None
    in_flight: float | None
    waiting: float | None


@dataclass(frozen=True, slots=True)
class ModelLine:
    """One model's figures. `unpriced_per_s`: answers per second without a complete price."""

    model: str
    requests_per_s: float
    failed_per_s: float
    input_tokens_per_s: float
    output_tokens_per_s: float
    usd_per_hour: float
    unpriced_per_s: float
    ttft_p50_s: float | None
    ttft_p95_s: float | None


@dataclass(frozen=True, slots=True)
class EngineLine:
    """One model on one engine host. Ratios are 0 to 1."""

    host: str
    model: str
    is_awake: bool | None
    running: float | None
    waiting: float | None
    kv_ratio: float | None
    prefix_hit_ratio: float | None
    preemptions_per_s: float | None


@dataclass(frozen=True, slots=True)
class GpuLine:
    """One GPU of one engine host."""

    host: str
    gpu: str
    sm_ratio: float | None
    dram_ratio: float | None
    memory_used_bytes: float | None
    memory_total_bytes: float | None
    power_watts: float | None
    temperature_celsius: float | None
    throttled: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueueLine:
    """Queued requests of one pool and priority class."""

    pool: str
    priority: str
    waiting: float


@dataclass(frozen=True, slots=True)
class TargetLine:
    """A target whose circuit is open."""

    pool: str
    target: str


@dataclass(frozen=True, slots=True)
class Picture:
    """All figures at one time, over the `seconds` before it; busiest lines first."""

    seconds: float
    traffic: Traffic
    models: tuple[ModelLine, ...]
    engines: tuple[EngineLine, ...]
    gpus: tuple[GpuLine, ...]
    queues: tuple[QueueLine, ...]
    left_alone: tuple[TargetLine, ...]


def picture(pair: PagePair) -> Picture:
    """Return the figures from two readings, which must be of different times."""
    later = pair.later
    left_alone = (key for key, value in later.by("tollkeeper_target_available", "pool", "target").items() if not value)
    return Picture(
        pair.seconds,
        _traffic(pair),
        _models(pair),
        _engines(pair),
        _gpus(later),
        tuple(
            QueueLine(key[0], key[1], value)
            for key, value in sorted(later.by("tollkeeper_queue_waiting", "pool", "class").items())
            if value
        ),
        tuple(TargetLine(key[0], key[1]) for key in sorted(left_alone)),
    )


def _traffic(pair: PagePair) -> Traffic:
    outcomes = pair.rate("tollkeeper_requests_total", "outcome")
    directions = pair.rate("tollkeeper_tokens_total", "direction")
    return Traffic(
        requests_per_s=sum(outcomes.values()),
        failed_per_s=outcomes.get(("error",), 0.0),
        refused_per_s=outcomes.get(("rejected",), 0.0),
        input_tokens_per_s=directions.get(("input",), 0.0),
        output_tokens_per_s=directions.get(("output",), 0.0),
        usd_per_hour=sum(pair.rate("tollkeeper_cost_usd_total").values()) * _HOUR_SECONDS,
        ttft_p50_s=pair.quantile(_TTFT, 0.5),
        ttft_p95_s=pair.quantile(_TTFT, 0.95),
        duration_p95_s=pair.quantile(_DURATION, 0.95),
        in_flight=pair.later.total("tollkeeper_requests_in_flight"),
        waiting=pair.later.total("tollkeeper_queue_waiting"),
    )


def _models(pair: PagePair) -> tuple[ModelLine, ...]:
    requests = pair.rate("tollkeeper_requests_total", "model", "outcome")
    tokens = pair.rate("tollkeeper_tokens_total", "model", "direction")
    cost = pair.rate("tollkeeper_cost_usd_total", "model")
    unpriced = pair.rate("tollkeeper_requests_without_price_total", "model")
    lines = [
        ModelLine(
            model=model,
            requests_per_s=sum(rate for key, rate in requests.items() if key[0] == model),
            failed_per_s=requests.get((model, "error"), 0.0),
            input_tokens_per_s=tokens.get((model, "input"), 0.0),
            output_tokens_per_s=tokens.get((model, "output"), 0.0),
            usd_per_hour=cost.get((model,), 0.0) * _HOUR_SECONDS,
            unpriced_per_s=unpriced.get((model,), 0.0),
            ttft_p50_s=pair.quantile(_TTFT, 0.5, _MODEL, model),
            ttft_p95_s=pair.quantile(_TTFT, 0.95, _MODEL, model),
        )
        for model in {model for model, _ in requests}
    ]
    return tuple(sorted(lines, key=lambda line: (-line.requests_per_s, line.model)))


def _engines(pair: PagePair) -> tuple[EngineLine, ...]:
    # All workers of the gateway report the same engines, so their values are not summed.
    def now(name: str) -> dict[Key, float]:
        return pair.later.by(f"tollkeeper_engine_{name}", "host", "model", join=max)

    running, waiting, awake = now("running"), now("waiting"), now("awake")
    blocks, held = now("kv_blocks"), now("kv_blocks_held")
    asked = pair.growth("tollkeeper_engine_prefix_queried_tokens_total", "host", "model")
    hit = pair.growth("tollkeeper_engine_prefix_hit_tokens_total", "host", "model")
    preempted = pair.rate("tollkeeper_engine_preemptions_total", "host", "model")
    return tuple(
        EngineLine(
            host=key[0],
            model=key[1],
            is_awake=bool(awake[key]) if key in awake else None,
            running=running.get(key),
            waiting=waiting.get(key),
            kv_ratio=_ratio(held.get(key), blocks.get(key)),
            prefix_hit_ratio=_ratio(hit.get(key), asked.get(key)),
            preemptions_per_s=preempted.get(key),
        )
        for key in sorted({*running, *awake})
    )


def _gpus(page: MetricsPage) -> tuple[GpuLine, ...]:
    def now(name: str) -> Mapping[Key, float]:
        return page.by(f"tollkeeper_gpu_{name}", "host", "gpu", join=max)

    used, total = now("memory_used_bytes"), now("memory_total_bytes")
    sm, dram = now("sm_activity_ratio"), now("dram_activity_ratio")
    power, temperature = now("power_watts"), now("temperature_celsius")
    reasons = page.by("tollkeeper_gpu_throttled", "host", "gpu", "reason")
    return tuple(
        GpuLine(
            host=key[0],
            gpu=key[1],
            sm_ratio=sm.get(key),
            dram_ratio=dram.get(key),
            memory_used_bytes=used.get(key),
            memory_total_bytes=total.get(key),
            power_watts=power.get(key),
            temperature_celsius=temperature.get(key),
            throttled=tuple(sorted(reason for *place, reason in reasons if tuple(place) == key)),
        )
        for key in sorted({*used, *total, *sm, *power})
    )


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole
