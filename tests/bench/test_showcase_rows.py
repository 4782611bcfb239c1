"""The showcase's rows are records that a gateway could have written, and are the same each time."""

from datetime import UTC, datetime

from bench.showcase_rows import HISTORY_DAYS, RATES, showcase_rows
from contracts.records import decode_record, encode_record

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def test_rows_are_sound_and_the_same_for_the_same_moment() -> None:
    rows = showcase_rows(NOW, {})
    for records in (rows.requests, rows.attempts, rows.steps, rows.devices):
        assert records
        assert [decode_record(encode_record(one)) for one in records] == records
    assert [one.started_at_ns for one in showcase_rows(NOW, {}).requests] == [
        one.started_at_ns for one in rows.requests
    ]


def test_costs_are_what_the_price_cards_say() -> None:
    (one,) = [row for row in showcase_rows(NOW, {}).requests if row.cost_pico_usd is not None][:1]
    rates = [int(float(rate) * 1_000_000) for rate in RATES[one.model]]
    used = (one.usage.input_text, one.usage.cache_read_text, one.usage.output_text)
    assert one.cost_pico_usd == sum(rate * (tokens or 0) for rate, tokens in zip(rates, used, strict=True))


def test_a_request_that_was_tried_twice_has_both_tries() -> None:
    rows = showcase_rows(NOW, {})
    tried = {row.request_id for row in rows.requests if row.attempts > 1}
    assert tried and {row.request_id for row in rows.attempts} == tried
    oldest = min(row.started_at_ns for row in rows.requests)
    assert NOW.timestamp() - oldest / 1e9 <= HISTORY_DAYS * 86_400
