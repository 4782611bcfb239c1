"""Generates the demo's records of three tenants, reproducible by seed.

They are of two models: a self-hosted one on two replicas, and one of a provider, whose account fails occasionally and
for most of the last 40 minutes. A new version of the self-hosted model gets a tenth of a route.
"""

import json
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from contracts.access.identity import Identity
from contracts.metering.gaps import pack_gaps
from contracts.metering.usage import Usage
from contracts.recording.ids import uuid7
from contracts.recording.records import Arm, AttemptRecord, DeviceRecord, GpuShare, RequestRecord, StepRecord
from tollkeeper.showcase.agents import agent_turns
from tollkeeper.showcase.gpus import GPU_SECONDS, charged, device_looks, engine_steps

OWN, HOSTED, NEXT, ROUTE = "chat-8b", "hosted-large", "chat-8b-next", "assistant"
# USD per million tokens (input, cached input, output), as in the demo's price cards.
RATES: Final = {OWN: ("0.20", "0.05", "0.60"), HOSTED: ("2.50", "1.25", "10.00"), NEXT: ("0.20", "0.05", "0.60")}
PICO_PER_TOKEN: Final = {
    OWN: (200_000, 50_000, 600_000),
    HOSTED: (2_500_000, 1_250_000, 10_000_000),
    NEXT: (200_000, 50_000, 600_000),
}
POOLS: Final = {
    OWN: ("chat", ("gpu-0", "gpu-1")),
    HOSTED: ("hosted", ("eu-west", "eu-north")),
    NEXT: ("chat-next", ("gpu-2",)),
}
ROLLOUT: Final = "chat-8b-to-next"
# The outage: an account of the provider answers 503 to most requests.
OUTAGE_SECONDS: Final = 2_400
OUTAGE_TARGET: Final = "eu-west"
_OUTAGE_REQUESTS: Final = 110
TENANTS: Final = {"acme": ("search", "support"), "globex": ("research",), "initech": ("apps",)}
_SHARES: Final = (("acme", 0.55), ("globex", 0.3), ("initech", 0.15))
_FEATURES: Final = ("summary", "chat", "extraction")
_SECOND: Final = 10**9
_MS: Final = 10**6
HISTORY_DAYS: Final = 30
_LAST_SECONDS: Final = 60  # requests start at least this long before now, so that they have ended


@dataclass(frozen=True, slots=True)
class ShowcaseRows:
    """All rows, ready for the store."""

    requests: list[RequestRecord]
    attempts: list[AttemptRecord]
    steps: list[StepRecord]
    devices: list[DeviceRecord]


def showcase_rows(
    now: datetime, keys: Mapping[tuple[str, str], str], *, prefix: str = "", seed: int = 7
) -> ShowcaseRows:
    """Return the rows of the 30 days before `now`; the last hour has as many as an early day, and engine steps.

    `keys`: key id by (tenant, team); `prefix` is prepended to tenants' names.
    """
    source = random.Random(seed)
    recent, until = _ns(now - timedelta(seconds=GPU_SECONDS)), _ns(now)
    moments = sorted(_moments(source, now))
    made = [_request(source, at, keys, prefix, is_recent=at >= recent) for at in moments]
    begun = _ns(now - timedelta(seconds=OUTAGE_SECONDS))
    last = _ns(now - timedelta(seconds=_LAST_SECONDS))
    made += [_failing(source, source.randrange(begun, last), keys, prefix) for _ in range(_OUTAGE_REQUESTS)]
    requests = [request for request, _ in made] + agent_turns(source, now, keys, prefix)
    attempts = [attempt for _, tries in made for attempt in tries]
    replicas = POOLS[OWN][1]
    steps = engine_steps(source, until, replicas, requests)
    return ShowcaseRows(charged(requests, steps), attempts, steps, device_looks(source, until, replicas, steps))


def _moments(source: random.Random, now: datetime) -> Iterator[int]:
    for day in range(HISTORY_DAYS, 0, -1):
        busy = 0.5 if (now - timedelta(days=day)).weekday() >= 5 else 1.0
        for _ in range(int(150 * busy * (1 + 0.06 * (HISTORY_DAYS - day)))):
            yield _ns(now - timedelta(days=day, seconds=-source.random() * (86_400 - _LAST_SECONDS)))
    for hour in range(1, 24):  # the last day is as busy as its last hour, from which engine steps are generated
        busy = 0.65 + 0.35 * math.sin((now - timedelta(hours=hour)).hour / 24 * 2 * math.pi - 2.0)
        for _ in range(int(60 * busy)):
            yield _ns(now - timedelta(hours=hour, seconds=source.random() * 3_600))
    for _ in range(160):
        yield _ns(now - timedelta(seconds=_LAST_SECONDS + source.random() * (GPU_SECONDS - _LAST_SECONDS)))


def _ns(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000) * _MS


def _request(
    source: random.Random, at: int, keys: Mapping[tuple[str, str], str], prefix: str, *, is_recent: bool
) -> tuple[RequestRecord, list[AttemptRecord]]:
    who = _payer(source, keys, prefix)
    model = OWN if source.random() < 0.7 else HOSTED
    routed = source.random() < 0.4
    arm: Arm = ""
    if is_recent and routed and model == OWN:
        arm = "candidate" if source.random() < 0.15 else "incumbent"
        model = NEXT if arm == "candidate" else OWN
    fresh, cached = int(source.lognormvariate(6.3, 0.7)) + 5, int(source.lognormvariate(5.5, 0.9))
    is_long = is_recent and model == OWN  # long, so that few requests keep two GPUs busy
    produced = _produced(source, is_long=is_long)
    gaps = _gaps(source, model, produced)
    pool, targets = POOLS[model]
    fate = source.random()
    outcome = "rejected" if fate < 0.02 else "error" if fate < 0.03 else "cancelled" if fate < 0.04 else "ok"
    tries, ttft = [], int((60 + fresh * (0.05 if model == OWN else 0.2)) * source.lognormvariate(0, 0.3) * _MS)
    request_id = uuid7(at).bytes
    chosen = targets[min(source.random() < 0.45, len(targets) - 1)]
    rate = PICO_PER_TOKEN[model]
    is_served = outcome in ("ok", "cancelled")
    usage = Usage(input_text=fresh, cache_read_text=cached, output_text=produced) if is_served else Usage()
    cost = fresh * rate[0] + cached * rate[1] + produced * rate[2] if is_served else None
    if outcome == "ok" and model == HOSTED and source.random() < 0.12:
        tries, chosen = _tries(source, request_id, at, who, model, pool, targets, usage, cost), targets[1]
        ttft += 400 * _MS
    return RequestRecord(
        request_id=request_id,
        started_at_ns=at,
        duration_ns=ttft + sum(gaps) * 10_000 if is_served else 5 * _MS,
        who=who,
        api="chat.completions",
        outcome=outcome,  # type: ignore[arg-type]  # one of its names
        status={"rejected": 429, "error": 502, "cancelled": 499}.get(outcome, 200),
        error_code={"rejected": "rate_limit_exceeded", "error": "upstream_error"}.get(outcome, ""),
        finish_reason="stop" if outcome == "ok" else "",
        stream=True,
        requested_model=ROUTE if routed else model,
        route=ROUTE if routed else "",
        model="" if outcome == "rejected" else model,
        provider="" if outcome == "rejected" else ("openai" if model == HOSTED else "tollkeeper"),
        pool="" if outcome == "rejected" else pool,
        replica="" if outcome == "rejected" else chosen,
        gateway="gw-1",
        ttft_ns=ttft if is_served else None,
        admission_ns=source.randrange(30_000, 90_000),
        wait_ns=int(source.expovariate(1 / 4) * _MS) if model == OWN else None,
        queue_ns=int(source.expovariate(1 / 9) * _MS) if model == OWN else None,
        gaps=pack_gaps(gaps) if is_served else b"",
        gap_clock="engine" if model == OWN else "gateway",
        usage=usage,
        count_method="exact" if model == OWN else "reported",
        engine_output_tokens=produced if model == OWN and is_served else None,
        cost_pico_usd=cost,
        cost_basis="price_card" if is_served else "unpriced",
        price_version=f"{model}/showcase" if is_served else "",
        charged_pico_usd=cost,
        gpu=_gpu(fresh, produced) if model == OWN and is_served else None,
        attempts=len(tries) or 1,
        max_tokens=2_048 if is_long else 512,
        request_bytes=fresh * 4,
        response_bytes=produced * 240,
        route_decision=_decision(source, model, targets, chosen, fresh + cached, cached, ttft) if is_served else "",
        conversation_id=f"talk-{source.randrange(40)}" if source.random() < 0.5 else "",
        priority="interactive" if source.random() < 0.6 else "standard",
        arm=arm,
        rollout=ROLLOUT if arm else "",
    ), tries


def _failing(
    source: random.Random, at: int, keys: Mapping[tuple[str, str], str], prefix: str
) -> tuple[RequestRecord, list[AttemptRecord]]:
    """Return a request of globex during the outage, with its attempts: most fail immediately with 503."""
    who = Identity(
        f"{prefix}globex", "research", "", keys.get(("globex", "research"), "key_demo"),
        f"user-{source.randrange(12)}", {"feature": source.choice(_FEATURES)},
    )  # fmt: skip
    fresh, produced = int(source.lognormvariate(6.3, 0.7)) + 5, _produced(source, is_long=False)
    is_lost = source.random() < 0.6
    gaps = [] if is_lost else _gaps(source, HOSTED, produced)
    ttft = int((60 + fresh * 0.2) * source.lognormvariate(0, 0.3) * _MS)
    rate = PICO_PER_TOKEN[HOSTED]
    cost = None if is_lost else fresh * rate[0] + produced * rate[2]
    return RequestRecord(
        request_id=uuid7(at).bytes,
        started_at_ns=at,
        duration_ns=source.randrange(20, 90) * _MS if is_lost else ttft + sum(gaps) * 10_000,
        who=who,
        api="chat.completions",
        outcome="error" if is_lost else "ok",
        status=502 if is_lost else 200,
        error_code="upstream_error" if is_lost else "",
        finish_reason="" if is_lost else "stop",
        stream=True,
        requested_model=HOSTED,
        model=HOSTED,
        provider="openai",
        pool=POOLS[HOSTED][0],
        replica=OUTAGE_TARGET if is_lost else POOLS[HOSTED][1][1],
        gateway="gw-1",
        ttft_ns=None if is_lost else ttft,
        admission_ns=source.randrange(30_000, 90_000),
        gaps=b"" if is_lost else pack_gaps(gaps),
        gap_clock="gateway",
        usage=Usage() if is_lost else Usage(input_text=fresh, output_text=produced),
        count_method="none" if is_lost else "reported",
        cost_pico_usd=cost,
        cost_basis="unpriced" if is_lost else "price_card",
        price_version="" if is_lost else f"{HOSTED}/showcase",
        charged_pico_usd=cost,
        max_tokens=512,
        request_bytes=fresh * 4,
        response_bytes=120 if is_lost else produced * 240,
        upstream_status=503 if is_lost else None,
        upstream_error="server_error" if is_lost else "",
        upstream_message="The engine is currently overloaded, please try again later" if is_lost else "",
    ), []


def _payer(source: random.Random, keys: Mapping[tuple[str, str], str], prefix: str) -> Identity:
    tenant = source.choices([name for name, _ in _SHARES], [share for _, share in _SHARES])[0]
    team = source.choice(TENANTS[tenant])
    return Identity(
        prefix + tenant, team, "web" if team == "search" else "", keys.get((tenant, team), "key_demo"),
        f"user-{source.randrange(12)}", {"feature": source.choice(_FEATURES)},
    )  # fmt: skip


def _produced(source: random.Random, *, is_long: bool) -> int:
    """Return a random number of output tokens; the longest answer takes less than a minute."""
    if is_long:
        return min(int(source.lognormvariate(7.0, 0.35)) + 200, 1_400)
    return min(int(source.lognormvariate(4.2, 0.6)) + 2, 400)


def _gaps(source: random.Random, model: str, produced: int) -> list[int]:
    gap = (2_400 if model == OWN else 1_900) * source.uniform(0.9, 1.2)
    gaps = [max(int(source.lognormvariate(0, 0.25) * gap), 1) for _ in range(produced - 1)]
    if gaps and source.random() < 0.03:
        gaps[len(gaps) // 2] += source.randrange(30_000, 90_000)  # one slow token
    return gaps


def _gpu(fresh: int, produced: int) -> GpuShare:
    return GpuShare(int(fresh * 0.03 * _MS), produced * 3 * _MS, 0, 0, produced / 40, "steptime-as/1", 0.94)


def _tries(
    source: random.Random, request_id: bytes, at: int, who: Identity, model: str, pool: str, targets: tuple[str, ...],
    usage: Usage, cost: int | None,
) -> list[AttemptRecord]:  # fmt: skip
    code = source.choice(("upstream_timeout", "upstream_error", "upstream_rate_limited"))
    first = AttemptRecord(
        request_id=request_id, number=1, started_at_ns=at, duration_ns=400 * _MS, who=who, outcome="error", status=502,
        error_code=code, model=model, provider="openai", pool=pool, replica=targets[0], gateway="gw-1",
        cost_basis="free",
    )  # fmt: skip
    second = AttemptRecord(
        request_id=request_id, number=2, started_at_ns=at + 400 * _MS, duration_ns=900 * _MS, who=who,
        reason="fallback" if source.random() < 0.8 else "retry", status=200, model=model, provider="openai",
        pool=pool, replica=targets[1], gateway="gw-1", usage=usage, count_method="reported", cost_pico_usd=cost,
        cost_basis="price_card", price_version=f"{model}/showcase",
    )  # fmt: skip
    return [first, second]


def _decision(
    source: random.Random, model: str, targets: tuple[str, ...], chosen: str, tokens: int, cached: int, ttft: int
) -> str:
    if model != OWN or source.random() > 0.25:
        return ""
    came = ttft / _MS
    own = round(came * source.uniform(0.7, 1.1), 3)
    other = round(own * source.uniform(0.85, 2.2), 3)
    beside = next(target for target in targets if target != chosen)
    predicted = dict(sorted({chosen: own, beside: other}.items(), key=lambda one: one[1]))
    outcome = {
        "replica": chosen, "ttft_ms": round(came, 3), "cached_tokens": cached, "error_ms": round(came - own, 3),
        "regret_ms": round(max(came - min(predicted.values()), 0.0), 3),
    }  # fmt: skip
    said = {
        "policy": "cost", "chosen": chosen, "prompt_tokens": tokens, "predicted_ms": predicted,
        "cached_tokens": {chosen: cached}, "outcome": outcome,
    }  # fmt: skip
    return json.dumps({"replica": said}, separators=(",", ":"))
