"""Bills in the providers' formats become lines; what is wrong with a file is refused with line and column."""

import json
from copy import deepcopy
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analytics.reconciliation.formats.reading import UnreadableBill
from analytics.reconciliation.formats.table import read_bill
from analytics.reconciliation.formats.words import Counted, counted_by, describe
from analytics.reconciliation.lines import ReadBill

MONTH = "2026-11"
THIRD = 1_793_664_000  # 2026-11-03 00:00 UTC
PICO = 10**12


def page(*results: dict[str, Any], start: int = THIRD, **more: Any) -> str:
    bucket = {"object": "bucket", "start_time": start, "end_time": start + 86_400, "results": list(results)}
    return json.dumps({"object": "page", "data": [bucket], "has_more": False, "next_page": None, **more})


def cost(value: float, item: str | None, currency: str = "usd", **more: Any) -> dict[str, Any]:
    amount = {"value": value, "currency": currency}
    return {"object": "organization.costs.result", "amount": amount, "line_item": item, "project_id": "proj_1", **more}


def usage(**more: Any) -> dict[str, Any]:
    return {
        "object": "organization.usage.completions.result",
        "input_tokens": 1_000,
        "input_cached_tokens": 800,
        "output_tokens": 500,
        "num_model_requests": 5,
        "project_id": "proj_1",
        "api_key_id": "key_1",
        "model": "gpt-4o-2024-08-06",
        "batch": None,
        "service_tier": None,
        **more,
    }


def anthropic(path: str, *results: dict[str, Any], day: str = "2026-11-03", **more: Any) -> str:
    del path
    bucket = {"starting_at": f"{day}T00:00:00Z", "ending_at": f"{day}T23:59:59Z", "results": list(results)}
    return json.dumps({"data": [bucket], "has_more": False, "next_page": None, **more})


FOCUS = (
    "BilledCost,BillingCurrency,BillingPeriodStart,ChargeCategory,ChargePeriodStart,ConsumedQuantity,ConsumedUnit,"
    "ContractedUnitPrice,PricingUnit,ResourceId,ServiceCategory,ProviderName,SkuMeter,ChargeDescription\n"
)
CUR = (
    "identity/LineItemId,bill/BillingPeriodStartDate,lineItem/LineItemType,lineItem/UsageStartDate,lineItem/ProductCode,"
    "lineItem/UsageType,lineItem/ResourceId,lineItem/UsageAmount,lineItem/CurrencyCode,lineItem/UnblendedRate,"
    "lineItem/UnblendedCost,pricing/unit\n"
)


def focus(*rows: str) -> str:
    return FOCUS + "".join(f"{row}\n" for row in rows)


def focus_row(cost: str = "0.0025", category: str = "Usage", currency: str = "USD", day: str = "2026-11-03") -> str:
    return (
        f"{cost},{currency},2026-11-01T00:00:00Z,{category},{day}T00:00:00Z,1000,Tokens,0.0025,1K Tokens,acc1,"
        "AI and Machine Learning,Microsoft,gpt 4o Inp glbl Tokens,"
    )


def cur_row(number: int = 1, sort: str = "Usage", cost: str = "0.003", product: str = "AmazonBedrock") -> str:
    return (
        f"line{number},2026-11-01T00:00:00Z,{sort},2026-11-03T05:00:00Z,{product},"
        f"USE1-Claude3.7Sonnet-input-tokens,arn:1,1,USD,0.003,{cost},1K tokens"
    )


def google(**more: Any) -> dict[str, Any]:
    return {
        "service": {"description": "Vertex AI"},
        "sku": {"id": "A", "description": "Gemini 2.5 Pro Text Input - Predictions"},
        "usage_start_time": "2026-11-03 00:00:00 UTC",
        "project": {"id": "prod"},
        "cost": 0.00125,
        "currency": "USD",
        "invoice": {"month": "202611"},
        "cost_type": "regular",
        "usage": {"amount": 1_000, "unit": "count"},
        "price": {"effective_price": 1.25, "pricing_unit_quantity": 1_000_000},
        "credits": [{"name": "Promotion", "amount": -0.001}],
        **more,
    }


def lines(bill: ReadBill) -> list[tuple[Any, ...]]:
    return [(one.day, one.model, one.keys, one.tier, one.kind, one.tokens, one.amount) for one in bill.lines]


def test_openai_usage_and_costs() -> None:
    bill = read_bill(page(usage(), usage(batch=True, model="o4-mini", input_cached_tokens=0)).encode(), month=MONTH)
    keys = ("key_1", "proj_1")
    assert (bill.format, bill.provider, bill.currency) == ("openai_usage", "openai", "")
    assert lines(bill) == [
        ("2026-11-03", "gpt-4o-2024-08-06", keys, "", "input_text", 200, None),
        ("2026-11-03", "gpt-4o-2024-08-06", keys, "", "cache_read_text", 800, None),
        ("2026-11-03", "gpt-4o-2024-08-06", keys, "", "output_text", 500, None),
        ("2026-11-03", "o4-mini", keys, "batch", "input_text", 1_000, None),
        ("2026-11-03", "o4-mini", keys, "batch", "output_text", 500, None),
    ]
    bill = read_bill(
        page(
            cost(0.0005, "gpt-4o-2024-08-06, cached input", quantity=400, api_key_id="key_1"),
            cost(-2, "Credit grant"),
            cost(1.5, "file search storage"),
            cost(0.4, "VAT"),
        ).encode(),
        month=MONTH,
    )
    assert (bill.format, bill.currency) == ("openai_costs", "USD")
    assert lines(bill) == [
        ("2026-11-03", "gpt-4o-2024-08-06", ("key_1", "proj_1"), "", "cache_read_text", 400, PICO // 2_000),
        ("2026-11-03", "", ("proj_1",), "", "credit", None, -2 * PICO),
        ("2026-11-03", "", ("proj_1",), "", "fee", None, 3 * PICO // 2),
        ("2026-11-03", "", ("proj_1",), "", "tax", None, 2 * PICO // 5),
    ]


def test_openai_as_csv() -> None:
    header = "start_time,amount_value,amount_currency,line_item,project_id"
    text = f'{header}\n{THIRD},0.06,usd,"gpt-4o, output",proj_1\n'
    assert lines(read_bill(text.encode())) == [
        ("2026-11-03", "gpt-4o", ("proj_1",), "", "output_text", None, 6 * PICO // 100)
    ]
    text = f"start_time,input_tokens,output_tokens,num_model_requests,model,batch\n{THIRD},10,5,1,gpt-4o,true\n"
    assert [one[3:6] for one in lines(read_bill(text.encode()))] == [
        ("batch", "input_text", 10),
        ("batch", "output_text", 5),
    ]


def test_anthropic_usage_and_costs_in_cents() -> None:
    row = {
        "uncached_input_tokens": 15,
        "cache_creation": {"ephemeral_1h_input_tokens": 10, "ephemeral_5m_input_tokens": 5},
        "cache_read_input_tokens": 2,
        "output_tokens": 7,
        "server_tool_use": {"web_search_requests": 1},
        "api_key_id": "apikey_1",
        "workspace_id": "wrkspc_1",
        "model": "claude-opus-4-1-20250805",
        "service_tier": "standard",
        "context_window": "0-200k",
    }
    bill = read_bill(anthropic("usage", row).encode(), month=MONTH)
    assert bill.format == "anthropic_usage"
    assert [one[4:6] for one in lines(bill)] == [
        ("input_text", 15),
        ("cache_read_text", 2),
        ("output_text", 7),
        ("cache_write_5m", 5),
        ("cache_write_1h", 10),
    ]
    token = {
        "currency": "USD",
        "amount": "123.78912",
        "workspace_id": "wrkspc_1",
        "model": "claude-opus-4-1",
        "description": "Claude Opus 4.1 Usage",
        "cost_type": "tokens",
        "service_tier": "batch",
        "token_type": "cache_creation.ephemeral_1h_input_tokens",
    }
    search = {
        "currency": "USD",
        "amount": "10",
        "workspace_id": None,
        "description": "Web Search",
        "model": None,
        "cost_type": "web_search",
        "token_type": None,
    }
    bill = read_bill(anthropic("costs", token, search).encode(), month=MONTH)
    assert lines(bill) == [
        ("2026-11-03", "claude-opus-4-1", ("wrkspc_1",), "batch", "cache_write_1h", None, 1_237_891_200_000),
        ("2026-11-03", "Web-Search", (), "", "fee", None, PICO // 10),
    ]


def test_focus_cur_and_google_skip_other_services() -> None:
    other = focus_row().replace("AI and Machine Learning", "Compute")
    bill = read_bill(focus(focus_row(), other, focus_row("-1", "Credit"), focus_row("0.5", "Tax")).encode())
    assert (bill.format, bill.provider, bill.skipped, bill.month) == ("focus", "azure", 1, MONTH)
    assert [(one.kind, one.tokens, one.amount, one.unit_price) for one in bill.lines] == [
        ("input_text", 1_000, 2_500_000_000, 2_500_000),
        ("credit", None, -PICO, None),
        ("tax", None, PICO // 2, None),
    ]
    rows = [cur_row(), cur_row(2, product="AmazonEC2"), cur_row(3, "EdpDiscount", "-0.001"), cur_row(4, "Tax", "0.1")]
    bill = read_bill((CUR + "\n".join(rows) + "\n").encode(), month=MONTH)
    assert (bill.format, bill.provider, bill.skipped) == ("aws_cur", "bedrock", 1)
    assert [(one.model, one.kind, one.tokens, one.amount, one.unit_price) for one in bill.lines] == [
        ("Claude3.7Sonnet", "input_text", 1_000, 3_000_000_000, 3_000_000),
        ("Claude3.7Sonnet", "credit", None, -1_000_000_000, None),
        ("Claude3.7Sonnet", "tax", None, 100_000_000_000, None),
    ]
    other_google = google(service={"description": "BigQuery"})
    text = "\n".join(json.dumps(row) for row in (google(), other_google, google(cost_type="tax", cost=0.2, credits=[])))
    bill = read_bill(text.encode())
    assert (bill.format, bill.provider, bill.skipped) == ("vertex", "vertex_ai", 1)
    assert [(one.model, one.kind, one.tokens, one.amount, one.unit_price) for one in bill.lines] == [
        ("Gemini-2.5-Pro", "input_text", 1_000, 1_250_000_000, 1_250_000),
        ("Gemini-2.5-Pro", "credit", None, -1_000_000_000, None),
        ("Gemini-2.5-Pro", "tax", None, 200_000_000_000, None),
    ]


@pytest.mark.parametrize(
    ("text", "model", "kind", "tier"),
    [
        ("gpt-4o-mini, cached input", "gpt-4o-mini", "cache_read_text", ""),
        ("gpt-4.1, batch output", "gpt-4.1", "output_text", "batch"),
        ("gpt 4.1 mini cached Inp glbl Tokens", "gpt-4.1-mini", "cache_read_text", ""),
        ("USE1-Claude3.7Sonnet-cache-write-1h-input-token-count", "Claude3.7Sonnet", "cache_write_1h", ""),
        ("USW2-NovaPro-output-tokens-batch", "NovaPro", "output_text", "batch"),
        ("Gemini 2.5 Flash Audio Input - Predictions", "Gemini-2.5-Flash", "input_audio", ""),
        ("file search storage", "file-search-storage", "", ""),
        ("dall-e-3, images", "dall-e-3", "images", ""),
        ("tts-1, characters", "tts-1", "characters", ""),
        ("whisper-1, seconds", "whisper-1", "milliseconds", ""),
    ],
)
def test_a_description_names_model_kind_and_tier(text: str, model: str, kind: str, tier: str) -> None:
    found = describe(text)
    assert (found.model, found.kind, found.tier) == (model, kind, tier)


@pytest.mark.parametrize(
    ("unit", "kind", "count"),
    [
        ("1K tokens", "", 1_000),
        ("Images", "images", 1),
        ("1 Seconds", "milliseconds", 1_000),
        ("Minute", "milliseconds", 60_000),
        ("Hours", "milliseconds", 3_600_000),
        ("1M Characters", "characters", 1_000_000),
    ],
)
def test_a_unit_names_what_it_counts(unit: str, kind: str, count: int) -> None:
    assert counted_by(unit) == Counted(kind, Decimal(count))


@pytest.mark.parametrize("unit", ["", "GB-Months", "Requests", "1..2K tokens"])
def test_other_units_count_nothing_that_is_recorded(unit: str) -> None:
    assert counted_by(unit) is None


def test_units_in_cost_exports() -> None:
    images = (
        focus_row("0.08").replace("1000,Tokens,0.0025,1K Tokens", "2,Images,0.04,Images").replace("gpt 4o Inp", "x")
    )
    sound = CUR + cur_row().replace("input-tokens", "speech").replace("1K tokens", "Minutes") + "\n"
    text = google(
        sku={"description": "Imagen 4 Generation"}, usage={"amount": 3, "unit": "images"}, cost=0.12, credits=[]
    )
    found = [read_bill(each.encode()).lines[0] for each in (focus(images), sound, json.dumps(text))]
    assert [(one.kind, one.tokens) for one in found] == [("images", 2), ("milliseconds", 60_000), ("images", 3)]
    assert found[0].unit_price == 4 * PICO // 100
    assert found[1].unit_price == 50_000  # 0.003 USD a minute


def test_a_usage_report_as_csv_may_count_another_unit_than_tokens() -> None:
    text = f"start_time,seconds,num_model_requests,model\n{THIRD},12.5,1,whisper-1\n"
    assert [one[4:6] for one in lines(read_bill(text.encode()))] == [("milliseconds", 12_500)]
    with pytest.raises(UnreadableBill, match="column input_tokens: the column is missing"):
        read_bill(text.replace("seconds", "days").encode(), form="openai_usage")


TWO = focus(focus_row(), focus_row("0.7"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file is empty"),
        ("hello", "format is unknown"),
        ("[1, 2", "line 1, column 6"),
        (page(usage())[:-40], "the file may be cut short"),
        (page(usage(), has_more=True), "column has_more: the API has further pages"),
        (page(usage(), start=THIRD + 40 * 86_400), "line 1, column start_time: 2026-12-13 is not in 2026-11"),
        (page(usage(input_tokens=-1)), "line 1, column input_tokens: '-1' is not a count of tokens"),
        (page(usage(input_tokens=1.5)), "line 1, column input_tokens"),
        (page(usage(input_cached_tokens=2_000)), "more tokens are cached than there are"),
        (page(usage(model=None)), "column model: it is empty"),
        (page(usage(magic_tokens=5)), "column magic_tokens: the field is unknown"),
        (page(usage(object="organization.usage.vector_stores.result")), "has no usage that is recorded"),
        (
            page(usage(object="organization.usage.images.result", images=-1)),
            "column images: '-1' is not a count of images",
        ),
        (page(usage(object="organization.usage.images.result")), "column images: 'None' is not a count of images"),
        (page(usage(), usage()), "line 2, column all: it repeats line 1"),
        (
            page(cost(1, "gpt-4o, input"), cost(1, "gpt-4o, output", "eur")),
            "line 2, column amount.currency: EUR, but line",
        ),
        (page(cost(-1, "gpt-4o, input")), "line 1, column amount.value: '-1' is below 0"),
        (page(cost(1, None)), "grouped by line_item"),
        (page(cost("much", "gpt-4o, input")), "'much' is not an amount of money"),  # type: ignore[arg-type]
        (
            anthropic("costs", {"amount": "1", "currency": "USD", "token_type": "magic", "cost_type": "tokens"}),
            "'magic'",
        ),
        (focus(focus_row(), focus_row(currency="EUR")), "line 3, column BillingCurrency: EUR, but line 2 is in USD"),
        (focus(focus_row("-0.1")), "line 2, column BilledCost: '-0.1' is below 0 on a charge of Usage"),
        (focus(focus_row("x")), "line 2, column BilledCost: 'x' is not an amount"),
        (focus(focus_row(day="2026-12-03")), "line 2, column ChargePeriodStart: 2026-12-03 is not in 2026-11"),
        (focus(focus_row(), focus_row()), "line 3, column all: it repeats line 2"),
        (focus(focus_row(), focus_row()[:60]), "line 3, column 7: the row has 6 columns, the header has 14"),
        (focus(focus_row()).replace("SkuMeter", "MyTokens"), "column 13 (MyTokens): the column is unknown"),
        (focus(focus_row()).replace("ChargePeriodStart", "When"), "column ChargePeriodStart: the column is missing"),
        (focus(focus_row().replace("1000,Tokens", "10.5,Tokens")), "line 2, column ConsumedQuantity"),
        (focus(focus_row("1e999999")), "line 2, column BilledCost"),
        (CUR + cur_row(cost="-1") + "\n", "column line_item_unblended_cost: '-1' is below 0"),
        (CUR + cur_row(sort="Magic") + "\n", "column line_item_line_item_type: 'Magic' is unknown"),
        (CUR + cur_row() + "\n" + cur_row() + "\n", "line 3, column all: it repeats line 2"),
        (CUR.replace("pricing/unit", "secret") + cur_row() + "\n", "column pricing_unit: the column is missing"),
        (CUR + cur_row(product="AmazonEC2") + "\n", "no line of a model's usage; 1 lines are of other services"),
        (json.dumps(google(cost=-1)), "column cost: '-1' is below 0"),
        (json.dumps(google(currency="usdollar")), "is not a currency code"),
        (json.dumps(google(invoice={"month": "202612"})), "column invoice.month"),
        (json.dumps(google(usage={"amount": -5, "unit": "count"})), "column usage.amount"),
    ],
)
def test_a_bad_file_is_refused_with_line_and_column(text: str, words: str) -> None:
    with pytest.raises(UnreadableBill) as refused:
        read_bill(text.encode(), month=MONTH)
    assert words in refused.value.message
    assert refused.value.param == "file"


def test_files_that_are_no_text_or_of_an_unknown_format_are_refused() -> None:
    with pytest.raises(UnreadableBill, match="not text in UTF-8"):
        read_bill(b"\x1f\x8b\x08\x00")
    with pytest.raises(UnreadableBill, match="the format 'excel' is unknown"):
        read_bill(TWO.encode(), form="excel")
    deep = "[" * 100_000
    with pytest.raises(UnreadableBill, match="nested too deeply|this is not JSON"):
        read_bill(deep.encode())
    many = focus(*(focus_row(f"{number}x") for number in range(100)))
    with pytest.raises(UnreadableBill, match="and 97 more") as refused:
        read_bill(many.encode())
    assert len(refused.value.problems) == 21


GOOD = {
    "openai_usage": page(usage(), usage(object="organization.usage.audio_transcriptions.result", seconds=12.5)),
    "openai_costs": page(cost(0.0005, "gpt-4o, cached input", quantity=400), cost(-2, "Credit grant")),
    "anthropic_usage": anthropic(
        "usage",
        {
            "uncached_input_tokens": 7,
            "cache_creation": {"ephemeral_1h_input_tokens": 3},
            "output_tokens": 9,
            "model": "claude-x",
            "service_tier": "batch",
        },
    ),
    "anthropic_costs": anthropic(
        "costs",
        {"amount": "123.45", "currency": "USD", "token_type": "output_tokens", "cost_type": "tokens", "model": "c"},
        {"amount": "5", "currency": "USD", "description": "Claude X Usage - Input Tokens", "cost_type": "tokens"},
    ),
    "focus": TWO,
    "aws_cur": CUR + cur_row() + "\n" + cur_row(2, "Tax", "1") + "\n",
    "vertex": "\n".join(json.dumps(google(sku={"description": text})) for text in ("Gemini Input", "Gemini Output")),
}
# What stands in no bill, and what a number, a date, a list or a name of one may be replaced by.
ODD = st.one_of(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    st.sampled_from(["1e999999", "-1e-999999", "NaN", "Infinity", "1E+400", "9" * 50, "0 tokens", "0x", "2026-02-30"]),
    st.sampled_from([[], {}, [[]], {"a": 1}, 10**400, 1e300, -0.0]),
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every place of a JSON value that holds another, as its container and its name or number in it."""
    names = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for name in names for place in ((value, name), *places(value[name]))]


def changed_json(draw: Any, text: str) -> str:
    """Replace some values of a file of JSON by odd ones, or take them away."""
    values = [json.loads(line) for line in text.splitlines()]
    for _ in range(draw(st.integers(1, 3))):
        everywhere = [place for value in values for place in places(value)]
        if not everywhere:
            break
        container, name = draw(st.sampled_from(everywhere))
        if isinstance(container, dict) and draw(st.booleans()):
            del container[name]
        else:
            container[name] = deepcopy(draw(ODD))  # what is drawn is one object for all examples
    return "\n".join(map(json.dumps, values))


def changed_csv(draw: Any, text: str) -> str:
    """Replace some cells of a CSV file, its header's too, by odd ones."""
    rows = [line.split(",") for line in text.splitlines()]
    for _ in range(draw(st.integers(1, 3))):
        row = draw(st.sampled_from(rows))
        row[draw(st.integers(0, len(row) - 1))] = str(draw(ODD))
    return "\n".join(",".join(row) for row in rows)


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(data=st.data(), form=st.sampled_from(sorted(GOOD)))
def test_whatever_stands_in_a_file_it_is_read_or_refused(data: st.DataObject, form: str) -> None:
    """Nothing else may come of it: a bill that breaks its reader says nothing of what is wrong with it."""
    change = changed_csv if GOOD[form].startswith((FOCUS[:9], CUR[:9])) else changed_json
    text = change(data.draw, GOOD[form])
    if data.draw(st.booleans()):
        text = text[: data.draw(st.integers(0, len(text)))]
    named = data.draw(st.sampled_from(["", form]))
    month = data.draw(st.sampled_from(["", MONTH]))
    try:
        bill = read_bill(text.encode("utf-8", "surrogatepass"), month=month, form=named)
    except UnreadableBill as refused:
        assert refused.message
    else:
        msgspec.msgpack.encode(bill.lines)  # as it is kept
        assert all(line.tokens is None or 0 <= line.tokens <= 10**15 for line in bill.lines)


def test_every_file_that_is_changed_above_is_good_itself() -> None:
    for form, text in GOOD.items():
        assert read_bill(text.encode(), month=MONTH).format == form
