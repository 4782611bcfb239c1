"""What is computed for the screen, and how it is written."""

from decimal import Decimal

from tests.tollkeeper.top.pages import histogram, pair
from tollkeeper.top.picture import picture
from tollkeeper.top.spend import TenantSpend
from tollkeeper.top.tables import UNKNOWN, count, duration, money, rate, ratio, tables, tiles

_TTFT = "gen_ai_server_time_to_first_token_seconds"
_EARLIER = "\n".join(
    [
        'tollkeeper_requests_total{model="a",outcome="ok"} 10',
        'tollkeeper_requests_total{model="a",outcome="error"} 1',
        'tollkeeper_tokens_total{model="a",direction="output"} 100',
        'tollkeeper_cost_usd_total{model="a"} 1',
        'tollkeeper_engine_prefix_queried_tokens_total{host="h",model="a"} 100',
        'tollkeeper_engine_prefix_hit_tokens_total{host="h",model="a"} 100',
    ]
)
_LATER = "\n".join(
    [
        'tollkeeper_requests_total{model="a",outcome="ok"} 30',
        'tollkeeper_requests_total{model="a",outcome="error"} 3',
        'tollkeeper_requests_total{model="b",outcome="ok"} 2',
        'tollkeeper_requests_total{model="",outcome="rejected"} 4',
        'tollkeeper_tokens_total{model="a",direction="output"} 500',
        'tollkeeper_tokens_total{model="a",direction="input"} 40',
        'tollkeeper_cost_usd_total{model="a"} 1.002',
        histogram(_TTFT, {"0.1": 20, "+Inf": 20}, 'gen_ai_request_model="a"'),
        "tollkeeper_requests_in_flight 7",
        'tollkeeper_queue_waiting{pool="p",class="batch"} 3',
        'tollkeeper_queue_waiting{pool="p",class="standard"} 0',
        'tollkeeper_target_available{pool="p",target="t"} 0',
        'tollkeeper_target_available{pool="p",target="u"} 1',
        'tollkeeper_engine_running{host="h",model="a"} 5',
        'tollkeeper_engine_awake{host="h",model="a"} 1',
        'tollkeeper_engine_kv_blocks{host="h",model="a"} 200',
        'tollkeeper_engine_kv_blocks_held{host="h",model="a"} 50',
        'tollkeeper_engine_prefix_queried_tokens_total{host="h",model="a"} 300',
        'tollkeeper_engine_prefix_hit_tokens_total{host="h",model="a"} 250',
        'tollkeeper_gpu_memory_used_bytes{host="h",gpu="GPU-1"} 1073741824',
        'tollkeeper_gpu_throttled{host="h",gpu="GPU-1",reason="power"} 1',
    ]
)


def test_traffic_is_what_came_between_both_readings() -> None:
    traffic = picture(pair(_EARLIER, _LATER)).traffic
    assert traffic.requests_per_s == 14.0
    assert (traffic.failed_per_s, traffic.refused_per_s) == (1.0, 2.0)
    assert (traffic.input_tokens_per_s, traffic.output_tokens_per_s) == (20.0, 200.0)
    assert round(traffic.usd_per_hour, 6) == 3.6
    assert (traffic.in_flight, traffic.waiting) == (7.0, 3.0)
    assert traffic.ttft_p50_s == 0.05


def test_models_stand_with_the_busiest_first() -> None:
    lines = picture(pair(_EARLIER, _LATER)).models
    assert [(line.model, line.requests_per_s) for line in lines] == [("a", 11.0), ("", 2.0), ("b", 1.0)]
    assert lines[0].ttft_p50_s == 0.05
    assert lines[2].ttft_p50_s is None


def test_an_engines_ratios_are_of_what_it_tells_and_unknown_where_it_does_not() -> None:
    (engine,) = picture(pair(_EARLIER, _LATER)).engines
    assert (engine.kv_ratio, engine.prefix_hit_ratio, engine.is_awake) == (0.25, 0.75, True)
    assert engine.preemptions_per_s is None
    assert engine.waiting is None


def test_a_gpu_that_tells_little_is_shown_with_what_it_tells() -> None:
    (gpu,) = picture(pair(_EARLIER, _LATER)).gpus
    assert gpu.throttled == ("power",)
    assert gpu.sm_ratio is None and gpu.power_watts is None


def test_only_those_who_wait_and_those_left_alone_are_listed() -> None:
    found = picture(pair(_EARLIER, _LATER))
    assert [(line.pool, line.priority, line.waiting) for line in found.queues] == [("p", "batch", 3.0)]
    assert [line.target for line in found.left_alone] == ["t"]


def test_a_gateway_without_requests_has_empty_tables_that_say_so() -> None:
    shown = tables(picture(pair("", "")), None, "the store does not answer")
    assert [table.rows for table in shown] == [()] * 6
    assert shown[1].empty == "the store does not answer"
    assert dict(tiles(picture(pair("", "")).traffic))["TTFT p95"] == UNKNOWN


def test_a_tenant_whose_cost_is_unknown_is_not_shown_as_free() -> None:
    spend = [TenantSpend("acme", 3, 1_200, None, Decimal("0.000012"), 3)]
    shown = tables(picture(pair("", "")), spend)[1]
    assert shown.rows == (("acme", "3", "1,200", UNKNOWN, "0.000012", "3", "0", "0"),)


def test_figures_are_written_in_the_unit_that_is_read() -> None:
    assert [rate(0), rate(0.25), rate(7.25), rate(99.9), rate(1234.4)] == ["0.0", "0.25", "7.2", "99.9", "1,234"]
    assert [duration(None), duration(0.0994), duration(1.0)] == [UNKNOWN, "99 ms", "1.00 s"]
    assert [count(None), count(12345.0)] == [UNKNOWN, "12,345"]
    assert [money(None), money(Decimal(0)), money(Decimal("0.5")), money(Decimal("1234.567"))] == [
        UNKNOWN,
        "0.00",
        "0.500000",
        "1,234.57",
    ]
    assert [ratio(None), ratio(0.256)] == [UNKNOWN, "26 %"]
