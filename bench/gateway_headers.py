"""What a caller's headers cost: a trace, tags, a class, a conversation, against the request that has none of them."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.gateway_audit import Audit
from bench.gateway_plan import Plan
from bench.gateway_rows import chunk_rate_of, quantile_of, rate_of, start_rivals
from bench.load.gateway_process import MeasuredGateway, configuration
from bench.load.peers import MODEL, Peer
from bench.load.processes import free_ports
from bench.load.rig import Rig
from bench.load.sample import Sample
from bench.report import Report

_NAME: Final = "gateway_headers"
_LABELS: Final = {
    "x-tollkeeper-tags": "feature=search, release=eu-42",
    "x-tollkeeper-priority": "standard",
    "x-tollkeeper-run-id": "run-7f3a",
    "x-tollkeeper-conversation-id": "conversation-51",
}
_CLOSED: Final = 64
_STREAMS: Final = 200
# By what the headers are: must and stretch, of the rate without them.
_BOUNDS: Final[dict[str, tuple[float | None, float | None]]] = {
    "traceparent": (0.70, 0.85),
    "labels": (0.65, 0.80),
    "traceparent_and_labels": (None, None),
}
_MUST_FIRST_TOKEN: Final = 1.25
_STRETCH_FIRST_TOKEN: Final = 1.1
_MUST_CHUNKS: Final = 0.90
_STRETCH_CHUNKS: Final = 0.97
_RIVAL: Final = "vllm-router"
_MUST_RIVAL: Final = 1.3
_STRETCH_RIVAL: Final = 1.8


def measure_headers(report: Report, plan: Plan, rig: Rig, home: Path, audit: Audit) -> None:
    """One gateway, asked with and without headers in turn: whole answers, streams as they come and flat out."""
    with ExitStack() as stack:
        gateway = MeasuredGateway(_NAME, rig.cores.measured, home, configuration(MODEL, rig.mock_target), free_ports())
        stack.callback(gateway.stop)
        audit.open(gateway)
        plain = gateway.peer
        traced = replace(plain, name="traceparent", is_traced=True, counts_as=_NAME)
        labels = replace(plain, name="labels", headers={**plain.headers, **_LABELS}, counts_as=_NAME)
        both = replace(labels, name="traceparent_and_labels", is_traced=True)
        series = rig.alternate([plain, traced, labels, both], plan.load("closed", _CLOSED), plan.rounds)
        n = len(series.of(_NAME))
        report.add("headers_none", series.median(_NAME, rate_of), "requests/s", n=n)
        for name, (must, stretch) in _BOUNDS.items():
            ratio = series.ratio(name, _NAME, rate_of)
            report.add(f"headers_{name}", ratio, "x the requests/s without", must=must, stretch=stretch, n=n)
        _measure_rival(report, plan, rig, home, [traced, labels])
        paced = rig.alternate([plain, traced], plan.load("stream", _STREAMS), plan.slow_rounds)
        report.add(
            "headers_traceparent_ttft_p50",
            paced.ratio("traceparent", _NAME, _first),
            "x the first token without",
            must=_MUST_FIRST_TOKEN,
            stretch=_STRETCH_FIRST_TOKEN,
            better="lower",
            n=len(paced.of(_NAME)),
        )
        flat_out = rig.alternate([plain, traced], plan.load("stream", _CLOSED, gap_us=0), plan.slow_rounds)
        report.add(
            "headers_traceparent_chunks",
            flat_out.ratio("traceparent", _NAME, chunk_rate_of),
            "x the chunks/s without",
            must=_MUST_CHUNKS,
            stretch=_STRETCH_CHUNKS,
            n=len(flat_out.of(_NAME)),
        )
        audit.close(gateway)


def _measure_rival(report: Report, plan: Plan, rig: Rig, home: Path, ours: list[Peer]) -> None:
    """The same requests through vLLM's router, which reads none of these headers."""
    metrics = {peer.name: f"headers_{peer.name}_to_{_RIVAL.replace('-', '_')}" for peer in ours}
    folder = home / "headers"
    folder.mkdir()
    with ExitStack() as stack:
        rival = start_rivals(plan, rig, folder, stack, [_RIVAL])[_RIVAL]
        if isinstance(rival, str):
            for metric in metrics.values():
                report.add_absent(metric, f"x {_RIVAL}", rival, must=_MUST_RIVAL)
            return
        for peer in ours:
            beside = replace(peer, name=f"{_RIVAL}_{peer.name}", port=rival.port, pid=rival.pid, counts_as="")
            series = rig.alternate([peer, beside], plan.load("closed", _CLOSED), plan.rounds)
            ratio, n = series.ratio(peer.name, beside.name, rate_of), len(series.of(peer.name))
            report.add(metrics[peer.name], ratio, f"x {_RIVAL}", must=_MUST_RIVAL, stretch=_STRETCH_RIVAL, n=n)


def _first(sample: Sample) -> float:
    return quantile_of(sample.result.ttft_us, "p50")
