"""Bills of five providers with injected faults, and the requests that they are about; run by `bench.reconcile`.

A process of its own draws its seed from the operating system. It writes requests and tries as Arrow files, the bills in
the providers' formats, and the plan: which difference is in which line, for which cause. Whoever matches the bills is
given neither the seed nor the plan.
"""

import argparse
import json
import os
import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.reconcile_bills import WRITERS
from bench.reconcile_lines import (
    DAYS,
    KINDS,
    PICO,
    START,
    TIER_SHARE,
    WITHOUT_WRITES,
    Line,
    ModelPlan,
    ProviderPlan,
    Written,
    day_start,
)


class Requests:
    """Requests and tries, by column."""

    def __init__(self) -> None:
        self.columns: dict[str, list[Any]] = defaultdict(list)
        self.tries: dict[str, list[Any]] = defaultdict(list)

    def add(
        self,
        draw: random.Random,
        day: int,
        model: ModelPlan,
        provider: str,
        target: str,
        tokens: dict[str, int] | None,
        *,
        tenant: int,
        tries: int = 1,
    ) -> bytes:
        """Add a request; `tokens` is `None` if nobody knows its usage."""
        name, at = draw.randbytes(16), _at(day, draw.randrange(86_000 * 10**9))
        cost = None if tokens is None else sum(count * model.rates[kind] for kind, count in tokens.items())
        values = {
            "request_id": name,
            "started_at": at,
            "duration_ns": 10**9,
            "tenant": f"tenant-{tenant}",
            "operation": "chat",
            "api": "chat.completions",
            "outcome": "ok",
            "status": 200,
            "model": model.id,
            "model_version": model.answered,
            "provider": provider,
            "replica": target,
            "count_method": "none" if tokens is None else "reported",
            "cost_usd": None if cost is None else Decimal(cost).scaleb(-12),
            "cost_basis": "unknown_usage" if tokens is None else "price_card",
            "price_version": f"card-{model.id}",
            "attempts": tries,
        }
        for column, value in values.items():
            self.columns[column].append(value)
        for kind in KINDS:
            self.columns[f"tokens_{kind}"].append(None if tokens is None else tokens.get(kind, 0))
        return name

    def add_try(
        self,
        draw: random.Random,
        name: bytes,
        day: int,
        model: ModelPlan,
        provider: str,
        target: str,
        *,
        is_free: bool,
        tenant: int,
    ) -> None:
        """Add a try that failed before the one that answered."""
        values = {
            "request_id": name,
            "number": 1,
            "started_at": _at(day, draw.randrange(86_000 * 10**9)),
            "duration_ns": 10**9,
            "tenant": f"tenant-{tenant}",
            "reason": "first",
            "outcome": "error",
            "status": 503 if is_free else 504,
            "error_code": "upstream_error" if is_free else "upstream_timeout",
            "model": model.id,
            "provider": provider,
            "replica": target,
            "cost_basis": "free" if is_free else "unknown_usage",
            "price_version": f"card-{model.id}",
        }
        for column, value in values.items():
            self.tries[column].append(value)


def _at(day: int, ns: int) -> int:
    return int((START + timedelta(day)).timestamp()) * 10**9 + ns


def providers(draw: random.Random, targets: int) -> list[ProviderPlan]:
    """Return the five providers, with prices that are drawn."""

    def models(prefix: str, names: list[tuple[str, str, str]], kinds: tuple[str, ...]) -> tuple[ModelPlan, ...]:
        found = []
        for upstream, answered, billed in names:
            base = draw.randrange(20, 400) * 10_000
            rates = {"input_text": base, "cache_read_text": base // 10, "output_text": base * 4}
            rates |= {"cache_write_5m": base * 5 // 4, "cache_write_1h": base * 2}
            found.append(ModelPlan(f"{prefix}-{upstream}", upstream, answered, billed, rates))
        return tuple(found)

    def keys(prefix: str, *names: str) -> dict[str, tuple[str, ...]]:
        return {
            f"{prefix}-target-{place}": tuple(f"{name}{draw.randrange(10**9):09}{place}" for name in names)
            for place in range(targets)
        }

    gpt = [
        ("gpt-4.1", "gpt-4.1-2025-04-14"),
        ("gpt-4.1-mini", "gpt-4.1-mini-2025-04-14"),
        ("gpt-4o", "gpt-4o-2024-08-06"),
        ("gpt-4o-mini", "gpt-4o-mini-2024-07-18"),
        ("o4-mini", "o4-mini-2025-04-16"),
    ]
    claude = [
        "claude-sonnet-4-5-20250929",
        "claude-opus-4-1-20250805",
        "claude-haiku-4-5-20251001",
        "claude-opus-4-20250514",
        "claude-3-5-haiku-20241022",
    ]
    bedrock = [
        ("anthropic.claude-3-7-sonnet-20250219-v1:0", "Claude3.7Sonnet"),
        ("amazon.nova-pro-v1:0", "NovaPro"),
        ("anthropic.claude-3-5-haiku-20241022-v1:0", "Claude3.5Haiku"),
        ("amazon.nova-lite-v1:0", "NovaLite"),
        ("meta.llama3-3-70b-instruct-v1:0", "Llama3-3-70b-instruct"),
    ]
    gemini = [
        ("gemini-2.5-pro", "Gemini 2.5 Pro"),
        ("gemini-2.5-flash", "Gemini 2.5 Flash"),
        ("gemini-2.5-flash-lite", "Gemini 2.5 Flash Lite"),
        ("gemini-2.0-flash", "Gemini 2.0 Flash"),
        ("gemini-3-pro", "Gemini 3 Pro"),
    ]
    return [
        ProviderPlan(
            "openai",
            WITHOUT_WRITES,
            models("openai", [(a, b, b) for a, b in gpt], WITHOUT_WRITES),
            keys("openai", "key_", "proj_"),
            False,
        ),
        ProviderPlan(
            "anthropic",
            KINDS,
            models("anthropic", [(a, a, a) for a in claude], KINDS),
            keys("anthropic", "apikey_", "wrkspc_"),
            False,
        ),
        ProviderPlan(
            "azure",
            WITHOUT_WRITES,
            models("azure", [(a, b, a.replace("-", " ")) for a, b in gpt], WITHOUT_WRITES),
            keys("azure", "/subscriptions/s/accounts/"),
            True,
        ),
        ProviderPlan(
            "bedrock",
            KINDS,
            models("bedrock", [(a, a, b) for a, b in bedrock], KINDS),
            keys("bedrock", "arn:aws:bedrock:us-east-1:1:application-inference-profile/"),
            True,
        ),
        ProviderPlan(
            "vertex_ai",
            WITHOUT_WRITES,
            models("vertex", [(a, a, b) for a, b in gemini], WITHOUT_WRITES),
            keys("vertex", "project-"),
            True,
        ),
    ]


def play(draw: random.Random, provider: ProviderPlan, requests: Requests, each: int, share: float) -> Written:
    """Make a provider's requests and its bill. `each` are the requests of a bucket on average, `share` the part of the
    buckets that has faults."""
    written, kinds = Written(), provider.kinds
    missing = draw.randrange(5, DAYS - 5)
    reserved: set[tuple[int, str, str]] = set()
    carried: dict[tuple[int, str, str], list[tuple[str, str, int, int]]] = defaultdict(list)
    for day in range(DAYS):
        for model in provider.models:
            for target in provider.keys:
                here = (day, model.id, target)
                tokens, lost, again = _requests(draw, provider, requests, day, model, target, each)
                faults: list[str] = []
                cell = draw.choice(kinds)
                near_missing = missing - 4 <= day <= missing
                if here not in reserved and not near_missing and draw.random() < share:
                    faults = _choose(draw, provider, day)
                    if "cache_1h" in faults:
                        cell = "cache_write_5m"
                if "late" in faults:
                    reserved.add((day + 1, model.id, target))
                if "lost_usage" in faults:
                    lost = _tokens(draw, kinds)
                    requests.add(draw, day, model, provider.name, target, None, tenant=draw.randrange(50))
                if "retried" in faults:
                    again = _tokens(draw, kinds)
                    name = requests.add(
                        draw, day, model, provider.name, target, again, tenant=draw.randrange(50), tries=2
                    )
                    requests.add_try(draw, name, day, model, provider.name, target, is_free=False, tenant=0)
                    for kind in kinds:
                        tokens[kind] += again[kind]
                elif draw.random() < 0.02:  # a try that failed and that no provider bills: no difference
                    free = _tokens(draw, kinds)
                    name = requests.add(draw, day, model, provider.name, target, free, tenant=1, tries=2)
                    requests.add_try(draw, name, day, model, provider.name, target, is_free=True, tenant=1)
                    for kind in kinds:
                        tokens[kind] += free[kind]
                if day == missing:
                    for kind in kinds:
                        written.expect(day, model, target, kind, "missing_day", -tokens[kind] * model.rates[kind])
                    continue
                _bill(draw, provider, written, carried, here, model, faults, cell, tokens, lost, again)
    _charges(draw, provider, written, missing)
    return written


def _requests(
    draw: random.Random, provider: ProviderPlan, requests: Requests, day: int, model: ModelPlan, target: str, each: int
) -> tuple[dict[str, int], dict[str, int] | None, dict[str, int] | None]:
    tokens = dict.fromkeys(provider.kinds, 0)
    for _ in range(draw.randint(max(each // 2, 1), each + each // 2)):
        one = _tokens(draw, provider.kinds)
        requests.add(draw, day, model, provider.name, target, one, tenant=draw.randrange(50))
        for kind, count in one.items():
            tokens[kind] += count
    return tokens, None, None


def _tokens(draw: random.Random, kinds: tuple[str, ...]) -> dict[str, int]:
    return {kind: int(draw.random() * 3_000) + 1 for kind in kinds}


def _choose(draw: random.Random, provider: ProviderPlan, day: int) -> list[str]:
    """Return one or two faults that can be on one line."""
    allowed = ["lost_usage", "retried", "flex", "batch", "rounding", "price"]
    if "cache_write_5m" in provider.kinds:
        allowed.append("cache_1h")
    if day + 1 < DAYS:
        allowed.append("late")
    first = draw.choice(allowed)
    if draw.random() < 0.5:
        return [first]
    second = draw.choice([one for one in allowed if one != first])
    both = {first, second}
    # One line has one tier. A change of price within a line is told from rounding only if the bill states prices.
    if both == {"flex", "batch"} or (both == {"rounding", "price"} and not provider.states_prices):
        return [first]
    return [first, second]


def _bill(
    draw: random.Random,
    provider: ProviderPlan,
    written: Written,
    carried: dict[tuple[int, str, str], list[tuple[str, str, int, int]]],
    here: tuple[int, str, str],
    model: ModelPlan,
    faults: list[str],
    cell: str,
    tokens: dict[str, int],
    lost: dict[str, int] | None,
    again: dict[str, int] | None,
) -> None:
    day, _, target = here
    tier = next((fault for fault in faults if fault in TIER_SHARE), "")
    share = TIER_SHARE.get(tier, 1)

    def expect(kind: str, cause: str, amount: int, on: int = day) -> None:
        written.expect(on, model, target, kind, cause, amount)

    for kind in provider.kinds:
        recorded, r = tokens[kind], model.rates[kind]
        more = lost[kind] if lost is not None and "lost_usage" in faults else 0
        twice = again[kind] if again is not None and "retried" in faults else 0
        billed_kind = "cache_write_1h" if kind == cell and "cache_1h" in faults else kind
        between = model.rates[billed_kind]  # at the standard tier
        final = between // share
        late = draw.randint(1, recorded - 1) if kind == cell and "late" in faults else 0
        count = recorded + more + twice - late
        moved = recorded - late
        if billed_kind != kind:
            expect(billed_kind, "cache_rule", moved * (between - r))
        if tier:
            expect(billed_kind, "tier", moved * (final - between))
        if more:
            expect(billed_kind, "lost_usage", more * final)
        if twice:
            expect(billed_kind, "retried", twice * final)
        if late:
            expect(kind, "late", -late * r)
            expect(billed_kind, "late", late * r, day + 1)
            if billed_kind != kind:
                expect(billed_kind, "cache_rule", late * (between - r), day + 1)
            if tier:
                expect(billed_kind, "tier", late * (final - between), day + 1)
            carried[day + 1, model.id, target].append((tier, billed_kind, late, final))
        if kind == cell and "price" in faults:
            _price_change(draw, provider, written, here, model, tier, billed_kind, count, final, faults)
            continue
        line = Line(day, model, target, tier, billed_kind, count, count * final, final)
        if kind == cell and "rounding" in faults:
            _round(line, written)
        written.lines.append(line)
    for late_tier, kind, count, rate in carried.pop(here, ()):
        same = next(
            (one for one in written.lines[-len(provider.kinds) - 1 :] if _is_same(one, here, late_tier, kind)), None
        )
        if same is None:
            written.lines.append(Line(day, model, target, late_tier, kind, count, count * rate, rate))
        else:
            same.tokens += count
            same.amount += count * rate


def _is_same(line: Line, here: tuple[int, str, str], tier: str, kind: str) -> bool:
    return (line.day, line.model.id, line.target, line.tier, line.kind) == (*here, tier, kind)


def _price_change(
    draw: random.Random,
    provider: ProviderPlan,
    written: Written,
    here: tuple[int, str, str],
    model: ModelPlan,
    tier: str,
    kind: str,
    count: int,
    rate: int,
    faults: list[str],
) -> None:
    """Bill the second half of a day at another price: as two lines if the bill states prices, else within one."""
    day, _, target = here
    second = count // 2
    first = count - second
    new = rate * draw.choice((2, 3)) if draw.random() < 0.5 else rate * 3 // 2
    parts = [(first, rate), (second, new)] if provider.states_prices else [(count, 0)]
    lines = [
        Line(
            day, model, target, tier, kind, part, part * price if price else first * rate + second * new, price, part=at
        )
        for at, (part, price) in enumerate(parts)
    ]
    if not provider.states_prices and abs(second * (new - rate)) <= PICO // 100:
        new = rate + PICO // 100 // max(second, 1) + rate  # a cent at the least: below is rounding
        lines[0].amount = first * rate + second * new
    written.expect(day, model, target, kind, "price", second * (new - rate))
    if "rounding" in faults:
        _round(lines[0], written)
    written.lines += lines


def _round(line: Line, written: Written) -> None:
    """Round an amount to cents."""
    cents = PICO // 100
    rounded = (line.amount + cents // 2) // cents * cents
    written.expect(line.day, line.model, line.target, line.kind, "rounding", rounded - line.amount)
    line.amount, line.is_rounded = rounded, True


def _charges(draw: random.Random, provider: ProviderPlan, written: Written, missing: int) -> None:
    """Add usage of keys that are not ours, tax and credits."""
    days = [day for day in range(DAYS) if day != missing]
    for number in range(20):
        day, model, kind = draw.choice(days), draw.choice(provider.models), draw.choice(provider.kinds)
        name, count = f"stranger-{number}", draw.randint(1, 10**6)
        line = Line(day, model, name, "", kind, count, count * model.rates[kind], model.rates[kind], keys=(name,))
        written.expect(day, model, name, kind, "not_through_us", line.amount)
        written.lines.append(line)
    for number in range(5):
        day = days[number]
        tax, credit = draw.randint(10**10, 10**13), -draw.randint(10**10, 10**13)
        written.charges += [("tax", day, tax), ("credit", day, credit)]


def _table(columns: dict[str, list[Any]]) -> pa.Table:
    kinds: dict[str, Any] = {
        "request_id": pa.binary(16),
        "started_at": pa.timestamp("ns", "UTC"),
        "cost_usd": pa.decimal128(18, 12),
        "duration_ns": pa.uint64(),
        "status": pa.uint16(),
        "attempts": pa.uint16(),
        "number": pa.uint16(),
    }
    kinds |= {name: pa.uint32() for name in columns if name.startswith("tokens_")}
    return pa.table({name: pa.array(values, kinds.get(name, pa.string())) for name, values in columns.items()})


def _plan(provider: ProviderPlan, written: Written) -> Iterator[dict[str, Any]]:
    for (day, model, target, kind, cause), amount in written.expected.items():
        if amount:
            date = day_start(day).date().isoformat()
            yield {
                "provider": provider.name,
                "day": date,
                "model": model,
                "target": target,
                "kind": kind,
                "cause": cause,
                "pico_usd": amount,
            }


def main() -> None:
    """Write everything into two folders."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bills", type=Path)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--targets", type=int, required=True)
    parser.add_argument("--each", type=int, required=True)
    parser.add_argument("--share", type=float, default=0.15)
    options = parser.parse_args()
    seed = int.from_bytes(os.urandom(8))
    draw = random.Random(seed)
    setup: list[dict[str, Any]] = []
    plan: list[dict[str, Any]] = []
    lines = 0
    requests = Requests()
    for provider in providers(draw, options.targets):
        written = play(draw, provider, requests, options.each, options.share)
        lines += WRITERS[provider.name](provider, written, options.bills)
        plan += _plan(provider, written)
        for kind, day, amount in written.charges:
            if provider.name == "anthropic" and kind == "tax":
                continue  # its reports have none
            date = day_start(day).date().isoformat()
            plan.append(
                {
                    "provider": provider.name,
                    "day": date,
                    "model": "",
                    "target": "",
                    "kind": kind,
                    "cause": kind,
                    "pico_usd": amount,
                }
            )
        setup.append(
            {
                "provider": provider.name,
                "keys": {key: target for target, keys in provider.keys.items() for key in keys},
                "models": [{"id": one.id, "upstream": one.upstream, "rates": one.rates} for one in provider.models],
            }
        )
    for name, columns in (("requests", requests.columns), ("attempts", requests.tries)):
        table = _table(columns)
        with pa.OSFile(str(options.bills / f"{name}.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
            out.write_table(table)
    (options.bills / "setup.json").write_text(json.dumps({"providers": setup, "lines": lines}))
    (options.plan / "plan.json").write_text(json.dumps({"seed": seed, "differences": plan}))


if __name__ == "__main__":
    main()
