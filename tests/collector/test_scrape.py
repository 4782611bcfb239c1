"""Prometheus pages, as dcgm-exporter and vLLM write them, on their way to rows."""

import math
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from backends.segment_log.segments import SegmentLog
from backends.telemetry.prometheus_metrics import metrics_request
from collector.counters import Counters
from collector.pipeline import Pipeline
from collector.processors.metrics import MetricsProcessor
from collector.receivers.prometheus import PrometheusReceiver
from collector.spool import Spool
from contracts.recording.telemetry import MetricRow

NOW = 1_795_000_000_000_000_000
TARGET = "http://gpu-1:9400/metrics"
DCGM = """
# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",device="nvidia0",modelName="NVIDIA H200",Hostname="h"} 88
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-1"} 2
# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-1"} 5000
# TYPE DCGM_FI_PROF_SM_ACTIVE gauge
DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-1"} 0.75
"""
VLLM = """
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 3.0
# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{model_name="tiny"} 0.5
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="tiny"} 120.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{le="0.1",model_name="tiny"} 1.0
vllm:time_to_first_token_seconds_bucket{le="1.0",model_name="tiny"} 4.0
vllm:time_to_first_token_seconds_bucket{le="+Inf",model_name="tiny"} 5.0
vllm:time_to_first_token_seconds_count{model_name="tiny"} 5.0
vllm:time_to_first_token_seconds_sum{model_name="tiny"} 2.5
# TYPE go_gc_duration_seconds summary
go_gc_duration_seconds{quantile="0.5"} 0.01
go_gc_duration_seconds_sum 0.3
go_gc_duration_seconds_count 7
a line that is none
vllm:nan{model_name="tiny"} NaN
"""


@pytest.fixture
def counters() -> Counters:
    return Counters()


class Scraping:
    """A receiver in front of a spool, and pages by their URL."""

    def __init__(self, directory: Path, counters: Counters) -> None:
        self.spool = Spool(SegmentLog(directory / "spool", max_bytes=1 << 20))
        pipeline = Pipeline({"metrics": MetricsProcessor()}, self.spool, counters, lambda: NOW)
        self.pages: dict[str, str | Exception] = {}
        self.receiver = PrometheusReceiver(
            [TARGET], pipeline, counters, every_seconds=1.0, fetch=self._fetch, clock_ns=lambda: NOW
        )

    def _fetch(self, url: str) -> str:
        page = self.pages[url]
        if isinstance(page, Exception):
            raise page
        return page

    def rows(self) -> dict[str, MetricRow]:
        return {
            row.name: row
            for entry in self.spool.read(self.spool.cursor, max_bytes=1 << 20)
            if entry.batch is not None
            for row in MetricsProcessor().process(entry.batch).tables["metrics"].rows
        }


@pytest.fixture
def scraping(tmp_path: Path, counters: Counters) -> Scraping:
    return Scraping(tmp_path, counters)


def test_dcgms_names_become_those_of_the_conventions_in_their_units(scraping: Scraping) -> None:
    scraping.pages[TARGET] = DCGM
    assert scraping.receiver.scrape(TARGET) == 4
    rows = scraping.rows()
    assert rows["hw.gpu.utilization"].value == pytest.approx(0.88)
    assert rows["hw.gpu.utilization"].attributes == {
        "gpu": "0",
        "hw.id": "GPU-1",
        "device": "nvidia0",
        "hw.model": "NVIDIA H200",
        "host.name": "h",
    }
    assert (rows["hw.gpu.memory.usage"].value, rows["hw.gpu.memory.usage"].unit) == (2 << 20, "By")
    assert (rows["hw.energy"].value, rows["hw.energy"].is_monotonic) == (5.0, True)
    assert rows["DCGM_FI_PROF_SM_ACTIVE"].value == 0.75
    assert rows["hw.energy"].resource_attributes["service.instance.id"] == "gpu-1:9400"


def test_a_target_that_speaks_no_http_is_counted_and_the_scraper_lives(tmp_path: Path, counters: Counters) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"\x00\x00\x12\x04 no HTTP\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        pipeline = Pipeline({}, Spool(SegmentLog(tmp_path / "spool", max_bytes=1 << 20)), counters)
        target = f"http://127.0.0.1:{server.getsockname()[1]}/metrics"
        assert PrometheusReceiver([target], pipeline, counters, every_seconds=1.0).scrape(target) == 0
        thread.join()
    assert counters.snapshot()["rejected"] == {"scrape_failed": 1}


def test_vllms_counters_histograms_and_summaries_keep_their_meaning(scraping: Scraping) -> None:
    scraping.pages[TARGET] = VLLM
    scraping.receiver.scrape(TARGET)
    rows = scraping.rows()
    assert rows["vllm:num_requests_running"].value == 3.0
    assert rows["vllm:kv_cache_usage_perc"].value == 0.5
    tokens = rows["vllm:prompt_tokens_total"]
    assert (tokens.kind, tokens.value, tokens.temporality) == ("sum", 120.0, "cumulative")
    first = rows["vllm:time_to_first_token_seconds"]
    assert (first.count, first.sum, first.bucket_counts, first.bucket_bounds) == (5, 2.5, [1, 3, 1], [0.1, 1.0])
    assert first.attributes == {"model_name": "tiny"}
    pauses = rows["go_gc_duration_seconds"]
    assert (pauses.kind, pauses.count, pauses.quantiles, pauses.quantile_values) == ("summary", 7, [0.5], [0.01])
    assert rows["vllm:nan"].value is None


@pytest.mark.parametrize("failure", [OSError("refused"), ValueError("too large")])
def test_a_target_that_fails_is_counted_and_tried_again(
    scraping: Scraping, counters: Counters, failure: Exception
) -> None:
    scraping.pages[TARGET] = failure
    assert [scraping.receiver.scrape(TARGET) for _ in range(2)] == [0, 0]
    assert counters.snapshot()["rejected"] == {"scrape_failed": 2}
    scraping.pages[TARGET] = VLLM
    assert scraping.receiver.scrape(TARGET) > 0


@pytest.mark.parametrize(
    "page", ["", '# TYPE a histogram\na_bucket{le="x"} 1\n', "# TYPE a counter\na -Inf\n", "# TYPE\n", 'a{b="\\"} 1\n']
)
def test_odd_pages_break_nothing(page: str) -> None:
    request = metrics_request(page, TARGET, NOW, NOW - 1)
    survey: Any = MetricsProcessor().survey(request)
    assert survey.unreadable == 0


def test_a_histogram_without_its_last_bucket_counts_the_rest_there() -> None:
    page = '# TYPE a histogram\na_bucket{le="1"} 2\na_count 5\n'
    (metric,) = metrics_request(page, TARGET, NOW, NOW).resource_metrics[0].scope_metrics[0].metrics
    (point,) = metric.histogram.data_points
    assert (list(point.bucket_counts), list(point.explicit_bounds), point.count) == ([2, 3], [1.0], 5)
    assert not math.isnan(point.sum)


def test_a_counter_keeps_the_name_that_its_page_gives_it() -> None:
    page = "# TYPE a counter\na 1\n# TYPE b_total counter\nb_total 2\n# TYPE c counter\nc_total 3\nd_total 4\n"
    metrics = metrics_request(page, TARGET, NOW, NOW).resource_metrics[0].scope_metrics[0].metrics
    found = {metric.name: (metric.sum.is_monotonic, metric.sum.data_points[0].as_double) for metric in metrics}
    assert found == {"a": (True, 1.0), "b_total": (True, 2.0), "c_total": (True, 3.0), "d_total": (True, 4.0)}


def test_series_without_a_type_are_points_of_one_metric() -> None:
    (metric,) = (
        metrics_request('a{b="1"} 1\na{b="2"} 2\n', TARGET, NOW, NOW).resource_metrics[0].scope_metrics[0].metrics
    )
    assert [point.as_double for point in metric.gauge.data_points] == [1.0, 2.0]
