"""Writes made bills in the formats of five providers, with rows of other services between."""

import csv
import json
from collections import defaultdict
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from bench.reconcile_lines import PICO, Line, ProviderPlan, Written, amount_text, day_start, keys_of


def write_openai(provider: ProviderPlan, written: Written, folder: Path) -> int:
    """Write a costs report with quantities as JSON pages; taxes and credits as line items."""
    words = {"input_text": "input", "cache_read_text": "cached input", "output_text": "output"}
    buckets: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for line in written.lines:
        keys = keys_of(provider, line)
        tier = f"{line.tier} " if line.tier else ""
        item = f"{line.model.billed}, {tier}{words[line.kind]}"
        buckets[line.day].append(_cost(amount_text(line.amount), item, keys, line.tokens))
    for number, (kind, day, amount) in enumerate(written.charges):
        item = "Tax" if kind == "tax" else f"Credit grant {number}"
        buckets[day].append(_cost(amount_text(amount), item, (), None))
    data = [
        {
            "object": "bucket",
            "start_time": int(day_start(day).timestamp()),
            "end_time": int(day_start(day + 1).timestamp()),
            "results": results,
        }
        for day, results in sorted(buckets.items())
    ]
    half = len(data) // 2
    pages = [
        {"object": "page", "data": part, "has_more": place == 0, "next_page": None}
        for place, part in enumerate((data[:half], data[half:]))
    ]
    text = json.dumps(pages)
    # Numbers as the API has them, not rounded by a float on the way.
    (folder / "openai_costs.json").write_text(_unquoted(text))
    return len(written.lines) + len(written.charges)


def _cost(value: str, item: str, keys: tuple[str, ...], quantity: int | None) -> dict[str, Any]:
    return {
        "object": "organization.costs.result",
        "amount": {"value": f"@{value}@", "currency": "usd"},
        "line_item": item,
        "api_key_id": keys[0] if keys else None,
        "project_id": keys[-1] if keys else None,
        "quantity": quantity,
    }


def _unquoted(text: str) -> str:
    return text.replace('"@', "").replace('@"', "")


def write_anthropic(provider: ProviderPlan, written: Written, folder: Path) -> int:
    """Write a usage report and a cost report, which is in cents."""
    usage: dict[int, dict[tuple[Any, ...], dict[str, Any]]] = defaultdict(dict)
    costs: dict[int, list[dict[str, Any]]] = defaultdict(list)
    names = {
        "input_text": "uncached_input_tokens",
        "cache_read_text": "cache_read_input_tokens",
        "output_text": "output_tokens",
        "cache_write_5m": "cache_creation.ephemeral_5m_input_tokens",
        "cache_write_1h": "cache_creation.ephemeral_1h_input_tokens",
    }
    for line in written.lines:
        keys = keys_of(provider, line)
        tier = line.tier or "standard"
        row = usage[line.day].setdefault(
            (line.model.billed, keys, tier),
            {
                "uncached_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": 0,
                "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
                "api_key_id": keys[0],
                "workspace_id": keys[-1],
                "model": line.model.billed,
                "service_tier": tier,
                "context_window": "0-200k",
            },
        )
        name = names[line.kind]
        if name.startswith("cache_creation."):
            row["cache_creation"][name.partition(".")[2]] += line.tokens
        else:
            row[name] += line.tokens
        costs[line.day].append(
            {
                "currency": "USD",
                "amount": amount_text(line.amount, scale=100),
                "workspace_id": keys[-1],
                "description": f"{line.model.billed} Usage",
                "cost_type": "tokens",
                "context_window": "0-200k",
                "model": line.model.billed,
                "service_tier": tier,
                "token_type": name,
            }
        )
    for number, (kind, day, amount) in enumerate(written.charges):
        if kind == "credit":
            costs[day].append(
                {
                    "currency": "USD",
                    "amount": amount_text(amount, scale=100),
                    "workspace_id": None,
                    "description": f"Credit {number}",
                    "cost_type": "tokens",
                    "token_type": None,
                    "model": None,
                }
            )
    for name, by_day in (("usage", {day: list(rows.values()) for day, rows in usage.items()}), ("costs", costs)):
        data = [
            {
                "starting_at": day_start(day).isoformat().replace("+00:00", "Z"),
                "ending_at": day_start(day + 1).isoformat().replace("+00:00", "Z"),
                "results": rows,
            }
            for day, rows in sorted(by_day.items())
        ]
        (folder / f"anthropic_{name}.json").write_text(json.dumps({"data": data, "has_more": False, "next_page": None}))
    return len(written.lines) + sum(len(rows) for rows in usage.values()) + len(written.charges) // 2


def write_azure(provider: ProviderPlan, written: Written, folder: Path) -> int:
    """Write a FOCUS export as CSV, with prices per 1K tokens and rows of another service between."""
    words = {"input_text": "Inp glbl", "cache_read_text": "cached Inp glbl", "output_text": "Outp glbl"}
    columns = (
        "BilledCost",
        "BillingAccountId",
        "BillingCurrency",
        "BillingPeriodStart",
        "BillingPeriodEnd",
        "ChargeCategory",
        "ChargeDescription",
        "ChargePeriodStart",
        "ChargePeriodEnd",
        "ConsumedQuantity",
        "ConsumedUnit",
        "ContractedUnitPrice",
        "PricingQuantity",
        "PricingUnit",
        "ResourceId",
        "ServiceCategory",
        "ServiceName",
        "ProviderName",
        "SkuMeter",
        "SkuPriceId",
        "SubAccountId",
        "x_SkuTier",
    )
    with (folder / "azure_focus.csv").open("w", newline="") as file:
        out = csv.DictWriter(file, columns, restval="")
        out.writeheader()
        base = {
            "BillingAccountId": "a",
            "BillingCurrency": "USD",
            "BillingPeriodStart": "2026-03-01T00:00:00Z",
            "BillingPeriodEnd": "2026-04-01T00:00:00Z",
            "ServiceCategory": "AI and Machine Learning",
            "ServiceName": "Azure OpenAI",
            "ProviderName": "Microsoft",
            "SubAccountId": "/subscriptions/s",
        }
        for line in written.lines:
            tier = f"{line.tier} " if line.tier else ""
            out.writerow(
                {
                    **base,
                    "BilledCost": amount_text(line.amount),
                    "ChargeCategory": "Usage",
                    "ChargePeriodStart": _moment(line),
                    "ChargePeriodEnd": day_start(line.day + 1).isoformat(),
                    "ConsumedQuantity": line.tokens,
                    "ConsumedUnit": "Tokens",
                    "ContractedUnitPrice": amount_text(line.price * 1_000),
                    "PricingUnit": "1K Tokens",
                    "PricingQuantity": amount_text(line.tokens * PICO // 1_000),
                    "ResourceId": keys_of(provider, line)[0],
                    "SkuMeter": f"{line.model.billed} {tier}{words[line.kind]} Tokens",
                    "SkuPriceId": f"{line.model.billed}/{line.kind}/{line.tier}/{line.price}",
                }
            )
        for number, (kind, day, amount) in enumerate(written.charges):
            out.writerow(
                {
                    **base,
                    "BilledCost": amount_text(amount),
                    "ChargeCategory": kind.capitalize(),
                    "ChargePeriodStart": day_start(day).isoformat(),
                    "ChargeDescription": f"{kind} {number}",
                }
            )
            out.writerow(
                {
                    **base,
                    "ServiceCategory": "Compute",
                    "BilledCost": "12.5",
                    "ChargeCategory": "Usage",
                    "ChargePeriodStart": day_start(day).isoformat(),
                }
            )
    return len(written.lines) + len(written.charges)


def write_bedrock(provider: ProviderPlan, written: Written, folder: Path) -> int:
    """Write AWS's Cost and Usage Report as CSV, with prices per 1K tokens and rows of another service between."""
    words = {
        "input_text": "input-tokens",
        "cache_read_text": "cache-read-input-token-count",
        "output_text": "output-tokens",
        "cache_write_5m": "cache-write-input-token-count",
        "cache_write_1h": "cache-write-1h-input-token-count",
    }
    columns = (
        "identity/LineItemId",
        "bill/BillingPeriodStartDate",
        "bill/InvoiceId",
        "lineItem/UsageAccountId",
        "lineItem/LineItemType",
        "lineItem/UsageStartDate",
        "lineItem/UsageEndDate",
        "lineItem/ProductCode",
        "lineItem/UsageType",
        "lineItem/ResourceId",
        "lineItem/UsageAmount",
        "lineItem/CurrencyCode",
        "lineItem/UnblendedRate",
        "lineItem/UnblendedCost",
        "lineItem/LineItemDescription",
        "pricing/unit",
    )
    with (folder / "bedrock_cur.csv").open("w", newline="") as file:
        out = csv.DictWriter(file, columns, restval="")
        out.writeheader()
        base = {
            "bill/BillingPeriodStartDate": "2026-03-01T00:00:00Z",
            "lineItem/UsageAccountId": "111122223333",
            "lineItem/ProductCode": "AmazonBedrock",
            "lineItem/CurrencyCode": "USD",
            "pricing/unit": "1K tokens",
        }
        number = 0
        for line in written.lines:
            number += 1
            tier = f"-{line.tier}" if line.tier else ""
            out.writerow(
                {
                    **base,
                    "identity/LineItemId": f"line{number}",
                    "lineItem/LineItemType": "Usage",
                    "lineItem/UsageStartDate": _moment(line),
                    "lineItem/UsageEndDate": day_start(line.day + 1).isoformat(),
                    "lineItem/UsageType": f"USE1-{line.model.billed}-{words[line.kind]}{tier}",
                    "lineItem/ResourceId": keys_of(provider, line)[0],
                    "lineItem/UsageAmount": amount_text(line.tokens * PICO // 1_000),
                    "lineItem/UnblendedRate": amount_text(line.price * 1_000),
                    "lineItem/UnblendedCost": amount_text(line.amount),
                }
            )
        for kind, day, amount in written.charges:
            number += 1
            moment = day_start(day).isoformat()
            out.writerow(
                {
                    **base,
                    "identity/LineItemId": f"line{number}",
                    "lineItem/LineItemType": kind.capitalize(),
                    "lineItem/UsageStartDate": moment,
                    "lineItem/UnblendedCost": amount_text(amount),
                }
            )
            out.writerow(
                {
                    **base,
                    "identity/LineItemId": f"other{number}",
                    "lineItem/LineItemType": "Usage",
                    "lineItem/ProductCode": "AmazonEC2",
                    "lineItem/UnblendedCost": "3.2",
                    "lineItem/UsageStartDate": moment,
                    "lineItem/UsageType": "BoxUsage:t3.small",
                }
            )
    return number


def write_vertex(provider: ProviderPlan, written: Written, folder: Path) -> int:
    """Write Google's billing export as newline-delimited JSON, with credits within the rows."""
    words = {"input_text": "Text Input", "cache_read_text": "Cached Text Input", "output_text": "Text Output"}
    rows: list[str] = []
    credits = [amount for kind, _, amount in written.charges if kind == "credit"]
    credit_day = {amount: day for kind, day, amount in written.charges if kind == "credit"}
    base = {
        "billing_account_id": "B",
        "service": {"id": "C7E2", "description": "Vertex AI"},
        "currency": "USD",
        "invoice": {"month": "202603"},
    }
    for line in written.lines:
        tier = f"{line.tier} " if line.tier else ""
        inside = []
        if credits and credit_day[credits[0]] == line.day:
            inside = [{"name": "Promotion", "amount": f"@{amount_text(credits.pop(0))}@", "type": "PROMOTION"}]
        rows.append(
            _unquoted(
                json.dumps(
                    {
                        **base,
                        "sku": {
                            "id": line.kind,
                            "description": f"{line.model.billed} {tier}{words[line.kind]} - Predictions",
                        },
                        "usage_start_time": _moment(line),
                        "project": {"id": keys_of(provider, line)[0]},
                        "cost": f"@{amount_text(line.amount)}@",
                        "cost_type": "regular",
                        "credits": inside,
                        "usage": {"amount": line.tokens, "unit": "count", "pricing_unit": "count"},
                        "price": {
                            "effective_price": f"@{amount_text(line.price * 1_000_000)}@",
                            "pricing_unit_quantity": 1_000_000,
                        },
                    }
                )
            )
        )
    for number, (kind, day, amount) in enumerate(written.charges):
        if kind == "tax":
            rows.append(
                _unquoted(
                    json.dumps(
                        {
                            **base,
                            "sku": {"id": f"tax{number}", "description": "Tax"},
                            "usage_start_time": day_start(day).isoformat(),
                            "cost": f"@{amount_text(amount)}@",
                            "cost_type": "tax",
                            "credits": [],
                        }
                    )
                )
            )
    (folder / "vertex.jsonl").write_text("\n".join(rows) + "\n")
    return len(rows)


def _moment(line: Line) -> str:
    return (day_start(line.day) + timedelta(hours=12 * line.part)).isoformat()


WRITERS: Final = {
    "openai": write_openai,
    "anthropic": write_anthropic,
    "azure": write_azure,
    "bedrock": write_bedrock,
    "vertex_ai": write_vertex,
}
