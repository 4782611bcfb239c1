"""What an OpenTelemetry Collector passes on: several senders' resources in one request, as protobuf and as JSON."""

import json
from pathlib import Path
from typing import Any

import pytest

from backends.segment_log.segments import SegmentLog
from collector.counters import Counters
from collector.pipeline import Pipeline
from collector.processors.logs import LogsProcessor
from collector.processors.metrics import MetricsProcessor
from collector.processors.signal import SignalProcessor
from collector.processors.spans import SpansProcessor
from collector.spool import Signal, Spool

NOW = 1_795_000_000_000_000_000


def text(value: str) -> dict[str, str]:
    return {"stringValue": value}


def resource(service: str) -> dict[str, Any]:
    return {
        "attributes": [
            {"key": "service.name", "value": text(service)},
            {"key": "host.name", "value": text("node-1")},
            {"key": "process.command_args", "value": {"arrayValue": {"values": [text("python"), text("-m")]}}},
        ]
    }


TRACES: dict[str, Any] = {
    "resourceSpans": [
        {
            "resource": resource(service),
            "schemaUrl": "https://opentelemetry.io/schemas/1.40.0",
            "scopeSpans": [
                {
                    "scope": {"name": "vllm.llm_engine", "version": "0.33.0"},
                    "spans": [
                        {
                            "traceId": "5b8efff798038103d269b633813fc60c",
                            "spanId": span_id,
                            "parentSpanId": "",
                            "flags": 256,
                            "name": "llm_request",
                            "kind": 2,
                            "startTimeUnixNano": str(NOW - 900_000_000),
                            "endTimeUnixNano": str(NOW),
                            "attributes": [
                                {"key": "gen_ai.usage.prompt_tokens", "value": {"intValue": "120"}},
                                {"key": "gen_ai.latency.e2e", "value": {"doubleValue": 0.9}},
                            ],
                            "events": [{"timeUnixNano": str(NOW), "name": "first token"}],
                            "status": {},
                        }
                    ],
                }
            ],
        }
        for service, span_id in (("vllm-1", "eee19b7ec3c1b174"), ("vllm-2", "eee19b7ec3c1b175"))
    ]
}
METRICS: dict[str, Any] = {
    "resourceMetrics": [
        {
            "resource": resource("otelcol"),
            "scopeMetrics": [
                {
                    "scope": {"name": "hostmetricsreceiver/memory", "version": "0.140.0"},
                    "metrics": [
                        {
                            "name": "system.memory.usage",
                            "unit": "By",
                            "sum": {
                                "aggregationTemporality": 2,
                                "dataPoints": [
                                    {
                                        "attributes": [{"key": "state", "value": text("used")}],
                                        "startTimeUnixNano": str(NOW - 1),
                                        "timeUnixNano": str(NOW),
                                        "asInt": "8589934592",
                                    }
                                ],
                            },
                        }
                    ],
                }
            ],
        }
    ]
}
LOGS: dict[str, Any] = {
    "resourceLogs": [
        {
            "resource": resource("otelcol"),
            "scopeLogs": [
                {
                    "logRecords": [
                        {
                            "timeUnixNano": str(NOW),
                            "observedTimeUnixNano": str(NOW),
                            "severityNumber": 13,
                            "severityText": "WARN",
                            "body": text("queue is full"),
                            "attributes": [{"key": "log.file.name", "value": text("app.log")}],
                        }
                    ]
                }
            ],
        }
    ]
}
PROCESSORS: dict[Signal, SignalProcessor[Any]] = {
    "logs": LogsProcessor(),
    "traces": SpansProcessor(),
    "metrics": MetricsProcessor(),
}


def rows(directory: Path, signal: Signal, payload: dict[str, Any], is_json: bool) -> list[Any]:
    """Send a payload down the road and give its rows."""
    spool = Spool(SegmentLog(directory / "spool", max_bytes=1 << 20))
    pipeline = Pipeline(PROCESSORS, spool, Counters(), lambda: NOW)
    body = json.dumps(payload).encode()
    if not is_json:
        body = PROCESSORS[signal].parse_json(body).SerializeToString()
    assert pipeline.accept(signal, body, is_json=is_json).rejected == 0
    (entry,) = spool.read(spool.cursor, max_bytes=1 << 20)
    assert entry.batch is not None
    (table,) = pipeline.process(entry.batch).tables.values()
    return table.rows


@pytest.mark.parametrize("is_json", [True, False])
def test_spans_of_two_engines_keep_their_own_resource(tmp_path: Path, is_json: bool) -> None:
    first, second = rows(tmp_path, "traces", TRACES, is_json)
    assert (first.service, second.service, first.kind, first.status) == ("vllm-1", "vllm-2", "server", "unset")
    assert first.span_id.hex() == "eee19b7ec3c1b174"
    assert first.attributes == {"gen_ai.usage.input_tokens": "120", "gen_ai.latency.e2e": "0.9"}
    assert first.resource_attributes["process.command_args"] == '["python","-m"]'
    assert (first.duration_ns, first.event_names, first.parent_span_id) == (900_000_000, ["first token"], b"")


@pytest.mark.parametrize("is_json", [True, False])
def test_host_metrics_and_files_lines_are_read(tmp_path: Path, is_json: bool) -> None:
    (point,) = rows(tmp_path / "metrics", "metrics", METRICS, is_json)
    assert (point.name, point.value, point.unit, point.attributes) == (
        "system.memory.usage",
        8589934592.0,
        "By",
        {"state": "used"},
    )
    assert (point.scope_name, point.scope_version) == ("hostmetricsreceiver/memory", "0.140.0")
    (line,) = rows(tmp_path / "logs", "logs", LOGS, is_json)
    assert (line.body, line.severity, line.severity_number, line.at_ns) == ("queue is full", "WARN", 13, NOW)
