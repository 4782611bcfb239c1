"""vLLM behind our host and gateway against vLLM alone, and the metering of it, on one GPU with random weights.

Both models are served by a bare AsyncLLM with our worker in it, by an engine host of its own and by a gateway before
that host, all loaded at once, and asked in alternating rounds. Without a GPU and vLLM every row says so.
"""

import argparse
import asyncio
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvloop

from algorithms.gpu_time.ledger import LedgerLines, ledger_lines
from algorithms.gpu_time.step_fit import fit
from algorithms.gpu_time.step_model import COEFFICIENTS, StepModel
from bench.gpu_attribution import Mix, add_coalitions, add_prediction, add_tenants, calibration, recorded_mixes
from bench.gpu_engine import BareEngine
from bench.gpu_figures import FigureFile, Promise, report_figures
from bench.gpu_gateway import GatewayProcess
from bench.gpu_host import HostLine, HostProcess, connect
from bench.gpu_models import write_model
from bench.gpu_pairs import add_absolute, add_comparison, alternate
from bench.gpu_runs import Run
from bench.gpu_steps import FOLDER, read_runs, write_steps, write_windows
from bench.gpu_toggling import BLOCK_STEPS, add_toggled, pairs_of
from bench.gpu_workloads import Workload, coalition_batches, uniform
from bench.report import Report, run_bench

PROMISES: Final = (
    Promise("host_8b_256_throughput", "ratio", 0.98, 0.99),
    Promise("host_8b_256_itl_p50", "ratio", 1.02, 1.01, "lower"),
    Promise("host_8b_single_throughput", "ratio", 0.98, 0.99),
    Promise("host_8b_single_itl_p50", "ratio", 1.02, 1.01, "lower"),
    Promise("gateway_8b_256_throughput", "ratio", 0.97, 0.99),
    Promise("gateway_1b_256_throughput", "ratio", 0.85, 0.95),
    Promise("metering_8b_256_throughput", "ratio", 0.99, 1.0),
    Promise("metering_8b_256_itl_p99", "ratio", 1.01, 1.0, "lower"),
    Promise("metering_1b_single_throughput", "ratio", 0.99, 1.0),
    Promise("metering_1b_single_itl_p99", "ratio", 1.01, 1.0, "lower"),
    Promise("ledger_unexplained", "%", 0.5, 0.1, "lower"),
    Promise("step_model_mape", "%", 3.0, 1.5, "lower"),
    Promise("step_model_p90", "%", 6.0, 3.0, "lower"),
    Promise("gain_prefill_p90", "times", 2.5, 5.0),
    Promise("gain_prefill_p99", "times", 3.3, 6.6),
    Promise("gain_decode_p90", "times", 3.5, 7.0),
    Promise("gain_decode_p99", "times", 4.4, 8.8),
    Promise("tenants_short_long_outside", "%", 0.0, None, "lower"),
    Promise("tenants_prefix_outside", "%", 0.0, None, "lower"),
    Promise("tenants_bursty_outside", "%", 0.0, None, "lower"),
    Promise("coalition_five_distance", "%", None, None, "lower"),
    Promise("coalition_six_distance", "%", None, None, "lower"),
)
PHASES: Final = {"8b": 560.0, "1b": 300.0}  # seconds each may take

_ARGUMENTS: Final = {
    "max_model_len": 16_384,
    "max_num_seqs": 256,
    "max_num_batched_tokens": 8_192,
    "gpu_memory_utilization": 0.42,
}
_KV_BYTES: Final = {"8b": 40 << 30, "1b": 16 << 30}
_STEPS: Final = FOLDER / "steps_mixes_8b.jsonl.gz"
_RUNS: Final = FOLDER / "runs_mixes_8b.jsonl"
_LOAD_SECONDS: Final = 240.0
_PORT: Final = 18_080

Part = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class Bench:
    """One model, served three ways, and where its figures go. `host` and `gateway` are `None` if they failed."""

    shape: str
    figures: FigureFile
    folder: Path
    quick: bool
    bare: BareEngine
    model: Path
    line: HostLine | None = None
    gateway: GatewayProcess | None = None
    step_model: StepModel | None = None

    @property
    def rounds(self) -> int:
        """How many alternating rounds to measure."""
        return 2 if self.quick else 5

    async def serve_bare(self, workload: Workload) -> Run:
        """Serve with vLLM alone, its meter off."""
        await self.bare.set_metering(False)
        return await self.bare.run(workload)

    async def serve_metered(self, workload: Workload) -> Run:
        """Serve with vLLM alone, its meter on."""
        await self.bare.set_metering(True)
        return await self.bare.run(workload)

    async def serve_host(self, workload: Workload) -> Run:
        """Serve with the engine host. Raises RuntimeError if it does not run."""
        if self.line is None:
            raise RuntimeError("the engine host does not run")
        return await self.line.run(workload, self.model.name)

    async def serve_gateway(self, workload: Workload) -> Run:
        """Serve with the gateway. Raises RuntimeError if it does not run."""
        if self.gateway is None:
            raise RuntimeError("the gateway does not run")
        return await self.gateway.run(workload)


async def serve_phase(shape: str, figures: FigureFile, folder: Path, *, quick: bool) -> None:
    """Start everything for one model, measure part by part, stop everything. What fails is kept as failed."""
    model = write_model(folder, shape)
    host = HostProcess(model, folder / "host", _words(shape))
    line: HostLine | None = None
    gateway: GatewayProcess | None = None
    bare: BareEngine | None = None
    try:
        began = time.monotonic()  # both load at once: the host in its own process
        arguments = _ARGUMENTS | {"kv_cache_memory_bytes": _KV_BYTES[shape]}
        bare = BareEngine(model, folder, metered=True, arguments=arguments)
        figures.add(f"bare_{shape}_start", time.monotonic() - began, unit="s")
        try:
            line = await connect(host)
            await line.ready(model.name, host, _LOAD_SECONDS)
            figures.add(f"host_{shape}_start", time.monotonic() - began, unit="s")
        except RuntimeError as error:
            figures.fail(f"host_{shape}", str(error))
            line = None
        bench = Bench(shape, figures, folder, quick, bare, model, line)
        if line is not None:
            gateway = GatewayProcess(model.name, host.socket, folder / "gateway", _PORT)
            try:
                await gateway.ready()
                bench.gateway = gateway
            except RuntimeError as error:
                figures.fail(f"gateway_{shape}", str(error))
        for name, part, seconds in _parts(bench):
            await _try(figures, f"{name}_{shape}", part, seconds)
        write_windows(figures.path.with_name(f"runs_mixes_{shape}.jsonl"), bench.bare.windows)
        write_steps(figures.path.with_name(f"steps_mixes_{shape}.jsonl.gz"), bench.bare.recorded_steps())
    finally:
        for one in (gateway, host):
            if one is not None:
                one.stop()
        if bare is not None:
            bare.close()


def _parts(bench: Bench) -> list[tuple[str, Part, float]]:
    """Return what is measured of a model, the most telling first, each with the seconds it may take."""
    parts: list[tuple[str, Part, float]] = [("warm", partial(_warm, bench), 60.0)]
    if bench.shape == "8b":
        parts += [
            ("attribution", partial(_attribution, bench), 150.0),
            ("ways", partial(_compare_ways, bench), 150.0),
            ("single", partial(_compare_single, bench), 40.0),
            ("metering", partial(_compare_metering, bench), 90.0),
            ("coalitions", partial(_coalitions, bench), 120.0),
        ]
    else:
        parts += [
            ("metering", partial(_toggle_metering, bench), 120.0),
            ("ways", partial(_compare_ways, bench), 120.0),
        ]
    return parts


async def _try(figures: FigureFile, name: str, part: Part, seconds: float) -> None:
    began = time.monotonic()
    try:
        await asyncio.wait_for(part(), seconds)
    except Exception as error:  # the edge of a part: the others' figures are worth as much without it
        traceback.print_exc()
        figures.fail(name, f"{type(error).__name__}: {error}"[:500])
    print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)


async def _warm(bench: Bench) -> None:
    """Compile what is compiled at first use, for every size that will be measured."""
    for seed, serve in enumerate((bench.serve_bare, bench.serve_host, bench.serve_gateway)):
        for workload in (uniform("warm", 256, 512, 8, seed=90 + seed), uniform("warm", 1, 64, 32, seed=95 + seed)):
            try:
                await serve(workload)
            except RuntimeError as error:
                bench.figures.fail(f"warm_{bench.shape}", str(error))


async def _attribution(bench: Bench) -> None:
    """Fit to some mixes, predict others, split tenants' runs; and close the ledger over all of it."""

    async def fresh(workload: Workload) -> Run:
        await bench.bare.forget_prefixes()
        return await bench.serve_metered(workload)

    known = [step for workload in calibration(1) for step in (await fresh(workload)).recorded()]
    model = fit([one.sample() for one in known])
    mixes = await add_tenants(bench.figures, fresh, model, seed=20, rounds=1 if bench.quick else 2)
    unseen = (await fresh(uniform("unseen", 256, 512, 128, seed=30))).recorded()
    add_prediction(bench.figures, {"calibration": Mix(known), **mixes, "unseen": Mix(unseen, unseen)})
    bench.step_model = model
    _keep_model(bench, model)
    _add_ledger(bench)


def _keep_model(bench: Bench, model: StepModel) -> None:
    for name in (*COEFFICIENTS, "ridge_tokens", "ridge_softness"):
        unit = {"ridge_tokens": "tokens", "ridge_softness": "1"}.get(name, "ns")
        bench.figures.add(f"step_model_{name}", getattr(model, name), n=model.samples, unit=unit)


def _add_ledger(bench: Bench) -> None:
    """Close the books over the engine's whole life so far: loading, warm-up, every run and the idleness between."""
    records = bench.bare.take_steps()
    ended_ns = max(one.started_at_ns + one.busy_ns for one in records)
    lines = ledger_lines(records, bench.bare.began_ns, ended_ns)[bench.bare.book.engine]
    figures = bench.figures
    figures.add("ledger_unexplained", 100 * abs(lines.unexplained_ns) / lines.wall_ns, n=len(records))
    for name in ("attributed_ns", "host_gap_ns", "idle_ns", "load_ns", "warmup_ns", "unattributed_ns"):
        share = 100 * getattr(lines, name) / lines.wall_ns
        figures.add(f"ledger_{name.removesuffix('_ns')}", share, n=len(records), unit="%")
    _add_conservation(bench, lines)


def _add_conservation(bench: Bench, lines: LedgerLines) -> None:
    steps = [one for one in bench.bare.take_steps() if one.method]
    wrong = sum(sum(one.gpu_ns) != one.busy_ns for one in steps)
    bench.figures.add("steps_not_conserved", float(wrong), n=len(steps), unit="steps")
    bench.figures.add("steps_lost", float(bench.bare.facts().get("meter_lost_steps") or 0), n=len(steps), unit="steps")


async def _compare_ways(bench: Bench) -> None:
    """Compare bare, host and gateway at 256 requests at once."""
    ways = {"bare": bench.serve_bare}
    if bench.line is not None:
        ways["host"] = bench.serve_host
    if bench.gateway is not None:
        ways["gateway"] = bench.serve_gateway
    output_tokens = 128 if bench.shape == "8b" else 512
    runs = await alternate(
        ways, lambda seed: uniform("bulk", 256, 512, output_tokens, seed=seed), bench.rounds, seed=200
    )
    for name, found in runs.items():
        add_absolute(bench.figures, f"{name}_{bench.shape}_256_absolute", found)
        if name != "bare":
            add_comparison(
                bench.figures, f"{name}_{bench.shape}_256", found, runs["bare"], quantiles={"p50": 0.5, "p99": 0.99}
            )


async def _compare_single(bench: Bench) -> None:
    """Compare bare and host with one stream."""
    ways = {"bare": bench.serve_bare, "host": bench.serve_host}
    runs = await alternate(ways, lambda seed: uniform("single", 1, 64, 400, seed=seed), bench.rounds, seed=300)
    for name, found in runs.items():
        add_absolute(bench.figures, f"{name}_{bench.shape}_single_absolute", found)
    add_comparison(
        bench.figures, f"host_{bench.shape}_single", runs["host"], runs["bare"], quantiles={"p50": 0.5, "p99": 0.99}
    )


async def _compare_metering(bench: Bench) -> None:
    """Compare the same engine with its meter on and off, at 256 requests at once."""
    ways = {"off": bench.serve_bare, "on": bench.serve_metered}
    name = f"metering_{bench.shape}_256"
    runs = await alternate(ways, lambda seed: uniform(name, 256, 512, 128, seed=seed), bench.rounds + 2, seed=400)
    for arm, found in runs.items():
        add_absolute(bench.figures, f"{name}_{arm}", found)
    add_comparison(bench.figures, name, runs["on"], runs["off"], quantiles={"p50": 0.5, "p99": 0.99})


async def _toggle_metering(bench: Bench) -> None:
    """Compare the meter on and off within a lone stream, which waits for a CPU whose pace changes by the second."""
    name, runs = f"metering_{bench.shape}_single", []
    await bench.bare.set_metering(True)
    try:
        for number in range(4 * bench.rounds):
            await bench.bare.toggle_metering(BLOCK_STEPS, begins_metered=number % 2 == 0)
            runs.append(await bench.bare.run(uniform(name, 1, 64, 16 * BLOCK_STEPS, seed=400 + number)))
    finally:
        await bench.bare.toggle_metering(0, begins_metered=True)
        await bench.bare.set_metering(True)
    add_toggled(bench.figures, name, pairs_of(runs, BLOCK_STEPS))


async def _coalitions(bench: Bench) -> None:
    """Time every subset of two batches."""
    await bench.bare.set_metering(True)
    model = bench.step_model or fit([one.sample() for one in bench.bare.recorded_steps()])
    rounds = 1 if bench.quick else 2
    for name, asks in coalition_batches(40):
        await add_coalitions(
            bench.figures, name, asks, partial(bench.bare.run, held_back=True), model, seed=50, rounds=rounds
        )


def _words(shape: str) -> str:
    """Return the host the same arguments as the bare engine, as words of vLLM's command line."""
    arguments: dict[str, Any] = _ARGUMENTS | {"kv_cache_memory_bytes": _KV_BYTES[shape], "load_format": "dummy"}
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in arguments.items())


def measure(report: Report) -> None:
    """Measure vLLM bare, behind the host and behind the gateway, with 8B and 1B shapes; each model in a process."""
    reason = _missing()
    with tempfile.TemporaryDirectory(prefix="gpu-") as home:
        kept = report.options.keep or Path(home)
        figures = FigureFile(kept / "figures.jsonl")
        if report.options.recorded is not None:
            folder = report.options.recorded
            add_prediction(figures, recorded_mixes(read_runs(folder / _STEPS.name, folder / _RUNS.name)))
            reason = "predicted from a recording; all else needs a GPU"
        elif not reason:
            for shape in report.options.phases.split(","):
                _run_phase(shape, kept, quick=report.quick)
            reason = "; ".join(f"{part}: {why}" for part, why in figures.failures().items()) or "not measured"
        report_figures(report, PROMISES, figures.figures(), reason[:2_000])


def _missing() -> str:
    if shutil.which("nvidia-smi") is None:
        return "no GPU"
    return "" if importlib.util.find_spec("vllm") is not None else "vLLM is not installed in this environment"


def _run_phase(shape: str, kept: Path, *, quick: bool) -> None:
    """A process for each model: what it holds of the GPU is free when it ends, however it ends."""
    command = [sys.executable, "-m", "bench.engine_gpu", "--phase", shape, "--keep", str(kept)]
    with (kept / f"phase-{shape}.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, *(["--quick"] if quick else [])], stdout=log, stderr=log, start_new_session=True
        )
        try:
            process.wait(PHASES[shape])
        except subprocess.TimeoutExpired:
            FigureFile(kept / "figures.jsonl").fail(f"phase_{shape}", f"took more than {PHASES[shape]:g} s")
            os.killpg(process.pid, signal.SIGKILL)  # with all that it started
            process.wait()


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keep", type=Path, help="a folder for figures and logs, as they come")
    parser.add_argument("--recorded", type=Path, help="predict the steps that lie recorded in this folder, no others")
    parser.add_argument("--phases", default=",".join(PHASES), help="the models to measure, with commas between them")


def _phase_main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--phase", required=True, choices=PHASES)
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="g"))  # short: sockets lie in it
    uvloop.run(serve_phase(options.phase, FigureFile(options.keep / "figures.jsonl"), folder, quick=options.quick))
    return 0


if __name__ == "__main__":
    if "--phase" in sys.argv[1:]:
        sys.exit(_phase_main(sys.argv[1:]))
    sys.exit(run_bench("engine_gpu", measure, add_options=_add_options))
