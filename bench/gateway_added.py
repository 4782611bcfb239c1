"""What the gateway adds to the way of a whole chat, against what nginx adds.

One process tells little: of one build, some add half as much again as others, all their lives. So several of each are
started, one after another, and each is measured in both orders.
"""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.gateway_audit import Audit
from bench.gateway_plan import Plan
from bench.gateway_rows import GATEWAY, add_beside, quantile_of
from bench.load.gateway_process import MeasuredGateway, configuration
from bench.load.peers import BARE_RELAY, LEAST_GATEWAY, MODEL, start_bare_relay, start_least_gateway, start_nginx
from bench.load.processes import free_ports
from bench.load.rig import Rig
from bench.load.sample import Sample, Series
from bench.report import Report

_DIRECT: Final = "direct"
_NGINX: Final = "nginx"
_ADDING: Final = (_NGINX, BARE_RELAY, LEAST_GATEWAY, GATEWAY)


def measure_added(report: Report, plan: Plan, rig: Rig, home: Path, audit: Audit) -> None:
    """Measure, at 100 requests a second, what each of them adds to the way without anything in between."""
    series = Series([_DIRECT, *_ADDING])
    for number in range(plan.processes):
        of_these = _measure_processes(plan, rig, home / f"added_{number}", audit)
        series.extend(of_these)
        added = {name: of_these.added(name, _DIRECT, _latency("p50")) for name in _ADDING}
        said = ", ".join(f"{name} {us:.0f} us" for name, us in added.items())
        print(f"added median, processes {number + 1} of {plan.processes}: {said}", file=sys.stderr)
    n = sum(sample.result.lat_us.n for sample in series.of(GATEWAY))
    for quantile, must, stretch in (("p50", 1.5, 1.2), ("p99", 2.0, 1.5)):
        added = {name: series.added(name, _DIRECT, _latency(quantile)) for name in _ADDING}
        add_beside(report, f"added_{quantile}", added, "us", n)
        _add_to_nginx(report, quantile, added, n, (must, stretch))


def _measure_processes(plan: Plan, rig: Rig, home: Path, audit: Audit) -> Series:
    """Start one process of each, and return their samples."""
    home.mkdir()
    with ExitStack() as stack:
        peers = []
        for start in (start_nginx, start_bare_relay, start_least_gateway):
            process, peer = start(rig.cores.measured, home, rig.mock_port)
            stack.callback(process.stop)
            peers.append(peer)
        gateway = MeasuredGateway(
            GATEWAY, rig.cores.measured, home, configuration(MODEL, rig.mock_target), free_ports()
        )
        stack.callback(gateway.stop)
        audit.open(gateway)
        found = rig.alternate([rig.direct, *peers, gateway.peer], plan.load("rate", 64), plan.rounds_each)
        audit.close(gateway)
    return found


def _add_to_nginx(report: Report, quantile: str, added: dict[str, float], n: int, bounds: tuple[float, float]) -> None:
    nginxs = added[_NGINX]
    for name in (BARE_RELAY, LEAST_GATEWAY, GATEWAY):
        is_ours = name == GATEWAY
        metric, unit = f"added_{quantile}{'' if is_ours else '_' + name}_to_nginx", "x nginx"
        must, stretch = bounds if is_ours else (None, None)
        if nginxs <= 0:
            report.add_absent(metric, unit, f"nginx adds nothing that can be measured: {nginxs:.1f} us", must=must)
            continue
        others = [other for other in _ADDING if other != name and added[other] > 0] if is_ours else [_NGINX]
        ratios = {other: added[name] / added[other] for other in others}
        report.add(metric, ratios[_NGINX], unit, must=must, stretch=stretch, better="lower", ratio_to=ratios, n=n)


def _latency(quantile: str) -> Callable[[Sample], float]:
    return lambda sample: quantile_of(sample.result.lat_us, quantile)
