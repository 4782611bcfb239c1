"""What the gateway costs on one core: against nginx and two Rust routers in the same run, limits and records on.

The gateway has requests, tokens and money counted at three levels each and writes its journal. Every prompt differs
from every other. `bench/load/README.md` says how it is loaded and what a disturbed sample is.
"""

import argparse
import signal
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final, TypeAlias

from bench.gateway_added import measure_added
from bench.gateway_agents import measure_agents
from bench.gateway_audit import Audit
from bench.gateway_features import measure_features
from bench.gateway_forms import measure_earlier, measure_wheel
from bench.gateway_headers import measure_headers
from bench.gateway_plan import Plan
from bench.gateway_rows import GATEWAY, add_beside, chunk_rate_of, quantile_of, rate_of, start_rivals
from bench.load.gateway_process import MeasuredGateway, configuration, environment
from bench.load.machine import Cores
from bench.load.peers import MODEL, NotInstalled, Peer, start_bare_relay, start_nginx
from bench.load.probed_gateway import STEP_NS, read_beats
from bench.load.processes import PinnedProcess, free_ports
from bench.load.result import Load
from bench.load.rig import Rig
from bench.load.sample import Sample, Series, lag_quantile, slope_per_million
from bench.load.sleeper import Sleeper, jitter_ns
from bench.report import Report, run_bench

_ENGINE_MODEL: Final = "builtin"
_ENGINE_TOKENS: Final = 40  # of an answer, all in one step: the mock's answers are as long
_STREAMS: Final = 200
_MANY_STREAMS: Final = 1000
MUST_SLOPE_MIB: Final = 2.0  # for a million requests
_MUST_JITTER_MS: Final = 2.0
MUST_COALESCED: Final = 0.001  # what the client reads late comes joined out of the kernel, whoever sent it
MUST_KEPT_UP: Final = 0.99  # of the chunks a second that come without anything in between
Bounds: TypeAlias = tuple[float | None, float | None]  # must and stretch
LONG_PROMPT_TOKENS: Final = 100_000
_LONG_PROMPT_BYTES: Final = 400_000


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only", action="append", choices=sorted(_PARTS), help="part to run, repeatable (default: all)"
    )
    parser.add_argument(
        "--earlier", help="checkout of an earlier commit to compare with, compiled, its environment in .venv"
    )
    parser.add_argument("--wheel", help="virtual environment with an installed wheel (make wheel) to compare with")


def measure(report: Report) -> None:
    """Measure throughput, added latency, streams, memory, the loop's lag and the engine path, and check the books."""
    plan = Plan.of(report)
    try:
        cores = Cores.choose()
    except RuntimeError as error:
        report.add_absent("chat_1kb", "requests/s", str(error))
        return
    with tempfile.TemporaryDirectory(prefix="tollkeeper-bench-") as folder:
        home = Path(folder)
        with Rig(cores, home, plan.patience) as rig:
            audit = Audit(report, rig)
            for name, part in _PARTS.items():
                if name not in (getattr(report.options, "only", None) or _PARTS):
                    continue
                try:
                    part(report, plan, rig, home, audit)
                except NotInstalled as error:
                    report.add_absent(f"{name}_measured", "of 1", str(error), must=1)
                except RuntimeError as error:  # what was measured before is not lost
                    print(f"gateway, {name}: {error}", file=sys.stderr)
                    report.add(f"{name}_measured", 0, "of 1; what went wrong is on standard error", must=1)
            audit.add_rows()
            report.add("disturbed_samples", rig.disturbed, "samples", better="lower")


def _measure_relay(report: Report, plan: Plan, rig: Rig, home: Path, audit: Audit) -> None:
    """Everything that a target behind HTTP answers, the mock: against nginx and the rivals."""
    with ExitStack() as stack:
        process, nginx = start_nginx(rig.cores.measured, home, rig.mock_port)
        stack.callback(process.stop)
        process, relay = start_bare_relay(rig.cores.measured, home, rig.mock_port)
        stack.callback(process.stop)
        gateway = MeasuredGateway(
            GATEWAY, rig.cores.measured, home, configuration(MODEL, rig.mock_target), free_ports()
        )
        stack.callback(gateway.stop)
        audit.open(gateway)
        with ExitStack() as beside:  # what wakes now and then ends where it is no longer measured
            rivals = start_rivals(plan, rig, home, beside)
            peers = [gateway.peer, nginx, relay, *(peer for peer in rivals.values() if isinstance(peer, Peer))]
            loaded = [
                _measure_rate(report, plan, rig, peers, rivals, size, *bounds)
                for size, *bounds in ((1024, (0.45, 0.60), (1.3, 1.8)), (16384, (0.33, 0.50), (1.0, None)))
            ]
        loaded += _measure_streams(report, plan, rig, [nginx, relay, gateway.peer])
        _measure_memory(report, plan, rig, gateway, loaded)
        audit.close(gateway)


def _measure_rate(
    report: Report,
    plan: Plan,
    rig: Rig,
    peers: list[Peer],
    rivals: dict[str, Peer | str],
    size: int,
    to_nginx: Bounds,
    to_rivals: Bounds,
) -> Series:
    """Return the samples of 64 connections that always ask again, prompts of that many bytes."""
    name = f"chat_{size >> 10}kb"
    series = rig.alternate(peers, plan.load("closed", 64, prompt_bytes=size), plan.rounds)
    others = [peer.name for peer in peers if peer.name != GATEWAY]
    ratios = {other: series.ratio(GATEWAY, other, rate_of) for other in others}
    n = len(series.of(GATEWAY))
    report.add(name, series.median(GATEWAY, rate_of), "requests/s", ratio_to=ratios, n=n)
    must, stretch = to_nginx
    report.add(f"{name}_to_nginx", ratios["nginx"], "x nginx", must=must, stretch=stretch, ratio_to=ratios, n=n)
    must, stretch = to_rivals
    for rival, peer in rivals.items():
        metric = f"{name}_to_{rival.replace('-', '_')}"
        if isinstance(peer, str):
            report.add_absent(metric, f"x {rival}", peer, must=must)
        else:
            ratio = {rival: ratios[rival]}
            report.add(metric, ratios[rival], f"x {rival}", must=must, stretch=stretch, ratio_to=ratio, n=n)
    for other in others:
        report.add(f"{name}_{other.replace('-', '_')}", series.median(other, rate_of), "requests/s", n=n)
    return series


def _measure_streams(report: Report, plan: Plan, rig: Rig, peers: list[Peer]) -> list[Series]:
    """200 streams of 64 chunks, 20 ms apart; then 1,000 through the gateway, the last of the peers."""
    series = rig.alternate([rig.direct, *peers], plan.load("stream", _STREAMS), plan.slow_rounds)
    n = sum(sample.result.measured_chunks for sample in series.of(GATEWAY))
    missing = sum(sample.result.bad_streams for sample in series.every(GATEWAY))
    report.add("streams_incomplete", missing, f"of {_STREAMS} at a time", must=0, better="lower", n=n)
    kept_up = series.ratio(GATEWAY, "direct", chunk_rate_of)
    report.add("streams_keep_up", kept_up, "of the chunks/s of direct", must=MUST_KEPT_UP, n=n)
    names = [peer.name for peer in peers]
    for quantile, bounds in (("p50", (0.3, 0.2)), ("p99", (2.0, 1.0))):

        def first(sample: Sample, quantile: str = quantile) -> float:
            return quantile_of(sample.result.ttft_us, quantile) / 1e3

        added = {name: series.added(name, "direct", first) for name in names}
        add_beside(report, f"streams_added_ttft_{quantile}", added, "ms", n, bounds)

    def jitter(sample: Sample) -> float:
        return quantile_of(sample.result.jitter_us, "p99") / 1e3

    seen = {name: series.median(name, jitter) for name in ("direct", *names)}
    floor, wakes = _jitter_of_sleeper(plan, rig)
    is_beyond = floor > _MUST_JITTER_MS
    why = f"a process that only wakes up had {floor:.2f} ms in this run, above the bound" if is_beyond else ""
    add_beside(report, "streams_jitter_p99", seen, "ms", n, (_MUST_JITTER_MS, 1.2), unjudged=why)
    report.add("streams_jitter_p99_sleeper", floor, "ms, of a process that only wakes", better="lower", n=wakes)
    costs = {name: series.median(name, lambda sample: sample.cpu_ms_per_1k_chunks) for name in names}
    add_beside(report, "streams_cpu", costs, "ms CPU per 1,000 chunks", n, (35.0, 25.0))
    joined = series.median(GATEWAY, _coalesced)
    report.add("streams_coalesced", joined, "share of chunks", must=MUST_COALESCED, better="lower", n=n)
    many = rig.alternate([rig.direct, peers[-1]], plan.load("stream", _MANY_STREAMS), 1)
    kept_up = many.ratio(GATEWAY, "direct", chunk_rate_of)
    report.add(f"streams_{_MANY_STREAMS}_keep_up", kept_up, "of the chunks/s of direct", stretch=MUST_KEPT_UP)
    return [series, many]


def _jitter_of_sleeper(plan: Plan, rig: Rig) -> tuple[float, int]:
    """Return what jitter is left where passing a chunk on costs nothing, while as much goes on beside it: the p99 in
    milliseconds, and how many wake-ups it is of.
    """
    load = plan.load("stream", _STREAMS)
    found, wakes = [], 0
    for _ in range(plan.slow_rounds):
        with Sleeper(rig.cores.measured, load.warm_up_seconds + load.seconds) as sleeper:
            rig.measure_once(Peer("sleeper", rig.mock_port, sleeper.pid), load)  # what it takes is no disturbance
            lates = sleeper.lates_ns()
        found.append(jitter_ns(lates, load.gap_us * 1000, 0.99) / 1e6)
        wakes += len(lates)
    return statistics.median(found), wakes


def _measure_memory(report: Report, plan: Plan, rig: Rig, gateway: MeasuredGateway, loaded: list[Series]) -> None:
    """The most that was resident under all loads, and how it grows over a million requests."""
    rate = loaded[0].median(GATEWAY, rate_of)
    seconds = plan.slope_requests / rate if plan.slope_requests else plan.seconds
    load = Load(mode="closed", connections=64, seconds=seconds, warm_up_seconds=0.0)
    points = rig.trail(gateway.peer, load, lambda: int(gateway.health()["recorded_requests"]))
    samples = [sample for series in loaded for sample in series.every(GATEWAY)]
    most = max([sample.rss_mib for sample in samples] + [mib for _, mib in points]) * (1 << 20) / 1e6
    report.add("memory_loaded", most, "MB", must=110.0, stretch=60.0, better="lower", n=len(samples) + len(points))
    later = points[len(points) // 2 :]
    requests = points[-1][0] - points[0][0]
    # A short run only sees caches fill: it has no bound.
    must = MUST_SLOPE_MIB if plan.slope_requests else None
    slope = slope_per_million(later)
    report.add("memory_slope", slope, f"MiB per 1M, {requests:.0f} requests", must=must, better="lower", n=len(later))


def _measure_lag(report: Report, plan: Plan, rig: Rig, home: Path, audit: Audit) -> None:
    """How late the gateway's loop is while a prompt of 100,000 tokens is always in flight, on both kinds of target."""
    load = Load(
        mode="closed",
        connections=1,
        seconds=plan.lag_seconds,
        warm_up_seconds=plan.warm_up_seconds,
        prompt_bytes=_LONG_PROMPT_BYTES,
        max_tokens=_ENGINE_TOKENS,
    )
    for path in ("relay", "engine"):
        name = f"lag_{path}"
        with ExitStack() as stack:
            target = rig.mock_target if path == "relay" else _start_engine_host(rig, home, name, stack)
            model = MODEL if path == "relay" else _ENGINE_MODEL
            file = home / f"{name}.json"
            gateway = MeasuredGateway(
                name,
                rig.cores.measured,
                home,
                configuration(model, target),
                free_ports(),
                command=("-m", "bench.load.probed_gateway", file),
            )
            stack.callback(gateway.stop)
            audit.open(gateway)
            if path == "engine":
                gateway.wait_until("default")
            began = time.monotonic_ns()
            sample = rig.measure(gateway.peer, load)
            ended = time.monotonic_ns()
            books = audit.close(gateway)
            beats = read_beats(file, began, ended)
        for quantile, must, stretch in ((0.99, 20.0, 5.0), (0.999, None, None)):
            lag = lag_quantile(beats, STEP_NS, quantile) / 1e6
            metric = f"{name}_p{f'{quantile:g}'[2:]}"
            report.add(metric, lag, "ms", must=must, stretch=stretch, better="lower", n=len(beats))
        if path == "engine":  # behind the relay nobody counts: the same prompt is sent
            tokens = books.most_input_tokens
            report.add("lag_prompt", tokens, "tokens", must=LONG_PROMPT_TOKENS, n=sample.result.replies)


def _measure_engine(report: Report, plan: Plan, rig: Rig, home: Path, audit: Audit) -> None:
    """1 KB prompts to an engine host whose engine computes nothing: exact counts, each answer in one step."""
    with ExitStack() as stack:
        target = _start_engine_host(rig, home, "engine", stack)
        core = rig.cores.measured
        gateway = MeasuredGateway("engine", core, home, configuration(_ENGINE_MODEL, target), free_ports())
        stack.callback(gateway.stop)
        audit.open(gateway)
        gateway.wait_until("default")
        series = rig.alternate([gateway.peer], plan.load("closed", 64, max_tokens=_ENGINE_TOKENS), plan.rounds)
        audit.close(gateway)
    n = len(series.of("engine"))
    report.add("engine_chat_1kb", series.median("engine", rate_of), "requests/s", must=2000, stretch=3000, n=n)
    report.add("engine_chat_1kb_cpu", series.median("engine", _rate_of_cpu), "requests/s of CPU", n=n)
    for place, who in enumerate(("gateway", "host_and_load")):  # which of the two cores sets the pace

        def busy(sample: Sample, place: int = place) -> float:
            return sample.busy[place]

        report.add(f"engine_chat_1kb_busy_{who}", series.median("engine", busy), "of a core", better="lower", n=n)


def _start_engine_host(rig: Rig, home: Path, name: str, stack: ExitStack) -> dict[str, str]:
    """Start the scripted engine's host on the load's core, and return it as a target."""
    data = home / name
    data.mkdir(parents=True, exist_ok=True)
    host = PinnedProcess(
        f"{name}_host",
        [sys.executable, "-m", "bench.scripted_host"],
        rig.cores.load,
        data,
        **environment(data),
        TOLLKEEPER_ENGINE_EMBEDDER="false",
        SCRIPT_TOKENS=str(_ENGINE_TOKENS),
    )
    stack.callback(host.stop)
    rig.counts_as_load(host.pid)
    return {"kind": "engine", "url": f"unix://{data}/run/engine-default.sock"}


def _rate_of_cpu(sample: Sample) -> float:
    return sample.result.rps / sample.measured_cores if sample.measured_cores else 0.0


def _coalesced(sample: Sample) -> float:
    result = sample.result
    return 1 - result.measured_reads / result.measured_chunks if result.measured_chunks else 1.0


_PARTS: Final = {
    "added": measure_added,
    "relay": _measure_relay,
    "earlier": measure_earlier,
    "wheel": measure_wheel,
    "features": measure_features,
    "headers": measure_headers,
    "agents": measure_agents,
    "lag": _measure_lag,
    "engine": _measure_engine,
}

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended on the way out
    sys.exit(run_bench("gateway", measure, add_options=add_options))
