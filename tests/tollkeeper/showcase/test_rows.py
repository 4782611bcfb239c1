"""The showcase's rows are records that a gateway could have written, and are the same each time."""

from collections import Counter
from datetime import UTC, datetime

import pytest

from contracts.recording.records import decode_record, encode_record
from tollkeeper.showcase.gpus import GPU_SECONDS
from tollkeeper.showcase.rows import HISTORY_DAYS, RATES, ShowcaseRows, showcase_rows

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def rows() -> ShowcaseRows:
    return showcase_rows(NOW, {})


def test_rows_are_sound_and_the_same_for_the_same_moment(rows: ShowcaseRows) -> None:
    for records in (rows.requests, rows.attempts, rows.steps, rows.devices):
        assert records
        assert [decode_record(encode_record(one)) for one in records] == records
    assert [one.started_at_ns for one in showcase_rows(NOW, {}).requests] == [
        one.started_at_ns for one in rows.requests
    ]


def test_costs_are_what_the_price_cards_say(rows: ShowcaseRows) -> None:
    (one,) = [row for row in rows.requests if row.cost_pico_usd is not None][:1]
    rates = [int(float(rate) * 1_000_000) for rate in RATES[one.model]]
    used = (one.usage.input_text, one.usage.cache_read_text, one.usage.output_text)
    assert one.cost_pico_usd == sum(rate * (tokens or 0) for rate, tokens in zip(rates, used, strict=True))


def test_a_request_that_was_tried_twice_has_both_tries(rows: ShowcaseRows) -> None:
    tried = {row.request_id for row in rows.requests if row.attempts > 1}
    assert tried and {row.request_id for row in rows.attempts} == tried
    asked = {row.request_id: row for row in rows.requests}
    for row in rows.attempts:  # the attempt that answered has the request's usage and cost, the failed one was free
        answered = asked[row.request_id]
        is_answer = row.outcome == "ok"
        assert (row.usage == answered.usage, row.cost_pico_usd) == (
            is_answer,
            answered.cost_pico_usd if is_answer else None,
        )
    oldest = min(row.started_at_ns for row in rows.requests)
    assert NOW.timestamp() - oldest / 1e9 <= HISTORY_DAYS * 86_400


def test_each_engine_tells_of_every_nanosecond_of_the_hour_once(rows: ShowcaseRows) -> None:
    until = int(NOW.timestamp()) * 10**9
    for engine in {one.engine for one in rows.steps}:
        steps = [one for one in rows.steps if one.engine == engine]
        assert [one.sequence for one in steps] == list(range(1, len(steps) + 1))
        begins = [one.started_at_ns - one.gap_ns for one in steps]
        ends = [one.started_at_ns + one.busy_ns for one in steps]
        assert begins[0] == until - GPU_SECONDS * 10**9 and begins[1:] == ends[:-1] and ends[-1] == until
        assert all(sum(one.gpu_ns) == one.busy_ns for one in steps if one.kind == "step")


def test_engines_compute_the_tokens_that_requests_are_billed_for(rows: ShowcaseRows) -> None:
    asked = {row.request_id: row.usage for row in rows.requests}
    computed: Counter[bytes] = Counter()
    for step in rows.steps:
        computed.update(dict(zip(step.request_ids, step.scheduled, strict=True)))
    assert computed
    for request_id, tokens in computed.items():
        used = asked[request_id]
        assert used.input_text is not None and used.output_text is not None
        assert tokens == used.input_text + used.output_text - 1  # nothing follows an answer's last token


def test_requests_of_the_hour_are_charged_with_what_the_steps_took(rows: ShowcaseRows) -> None:
    begin = (NOW.timestamp() - GPU_SECONDS) * 1e9
    shares = [one.gpu for one in rows.requests if one.gpu is not None and one.started_at_ns >= begin]
    useful = sum(one.busy_ns for one in rows.steps if one.kind == "step")
    assert sum(one.prefill_ns + one.decode_ns for one in shares) == useful
    assert 0.2 < useful / (2 * GPU_SECONDS * 10**9) < 0.9
    assert all(one.prefill_ns > 0 for one in shares)
