"""What a kept answer costs: CPU of the whole gateway process for a hit, over a socket."""

import http.client
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.load.gateway_process import MeasuredGateway, configuration
from bench.load.machine import Cores, pinned_to, spent_by
from bench.load.peers import MODEL, Peer
from bench.load.processes import free_ports
from bench.report import Report, run_bench

HIT_MUST: Final = 150.0  # us
_PROMPT: Final = "word " * 200  # a body of 1 KB
_TOKENS: Final = 100
_US_PER_SECOND: Final = 1e6

_Asked = tuple[str, dict[str, Any], str, float | None]  # metric, fields, Cache-Control, bound


def measure(report: Report) -> None:
    """Measure the CPU time of hits, of whole answers and of streams, beside that of the same answers made again."""
    try:
        cores = Cores.choose()
    except RuntimeError as error:
        report.add_absent("exact_hit_cpu", "us", str(error), must=HIT_MUST)
        return
    with tempfile.TemporaryDirectory(prefix="tollkeeper-bench-") as home:
        cache_rows(report, cores, Path(home))


def cache_rows(report: Report, cores: Cores, home: Path) -> None:
    """Add the rows to a report, with gateways of their own below `home`.

    The bound is for a gateway without rules: what nine counters cost is the same for a hit as for any request.
    """
    plain: list[_Asked] = [
        ("exact_hit_cpu", {}, "", HIT_MUST),
        ("exact_hit_stream_cpu", {"stream": True}, "", None),
        ("made_anew_cpu", {}, "no-store", None),
    ]
    _measure(report, cores, home, plain, has_rules=False)
    _measure(report, cores, home, [("exact_hit_with_rules_cpu", {}, "", None)], has_rules=True)


def _measure(report: Report, cores: Cores, home: Path, rows: Sequence[_Asked], *, has_rules: bool) -> None:
    rounds, requests = (2, 1000) if report.quick else (5, 4000)
    config = configuration(MODEL, {"kind": "scripted", "settings": {"script": {"tokens": _TOKENS}}})
    config["models"][0]["cache"] = {"mode": "exact"}
    if not has_rules:
        del config["limits"], config["budgets"]
    name = "with_rules" if has_rules else "plain"
    gateway = MeasuredGateway(name, cores.measured, home, config, free_ports(1))
    try:
        with pinned_to(cores.load):
            for metric, fields, wish, must in rows:
                count = requests if not wish else requests // 4
                figures = [_cpu_us(gateway.peer, fields, wish, count) for _ in range(rounds)]
                report.add(metric, round(min(figures), 1), "us", must=must, better="lower", n=rounds * count)
    finally:
        gateway.stop()


def _cpu_us(peer: Peer, fields: dict[str, Any], wish: str, count: int) -> float:
    """Return the CPU time that one request takes, of a gateway that has answered it before."""
    connection = http.client.HTTPConnection("127.0.0.1", peer.port)
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": _PROMPT}], **fields})
    headers = {"Content-Type": "application/json", **peer.headers} | ({"Cache-Control": wish} if wish else {})
    expected = "bypass" if wish else "hit"

    def ask() -> str:
        connection.request("POST", "/v1/chat/completions", body, headers)
        response = connection.getresponse()
        response.read()
        return response.getheader("x-cache") or ""

    for _ in range(20):
        ask()
    before = spent_by(peer.pid).cpu_seconds
    found = [ask() for _ in range(count)]
    spent = spent_by(peer.pid).cpu_seconds - before
    connection.close()
    if found != [expected] * count:
        raise RuntimeError(f"a request of {count} was no {expected}")
    return spent / count * _US_PER_SECOND


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    return run_bench("answer_cache", measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
