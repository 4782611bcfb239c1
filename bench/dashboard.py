"""How fast the dashboard is for one viewer and for twenty, by a real client, on one core, over ten million requests.

A page is drawn when its numbers stand: what it finds in the background is waited for, as a browser would. No page waits
for forecasts, which a process of their own makes; they are counted. The store and the clients have the other core.
`--requests` fills a smaller store instead of the kept month.
"""

import argparse
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from bench.load.machine import Cores, pinned_to, spent_by
from bench.load.processes import free_ports
from bench.page_failures import failure_of
from bench.report import Report, run_bench
from bench.store import Month, compact, fill
from bench.store_process import StoreProcess
from bench.streamlit_client import Drawn, StreamlitViewer
from migrations.database import migrate_database

REQUESTS: Final = 10_000_000
VIEWERS: Final = 20
MUST_PAINT_SECONDS: Final = 1.5
MUST_SWITCH_SECONDS: Final = 0.6
MUST_DETAIL_SECONDS: Final = 0.4
MUST_VIEWER_MIB: Final = 250
MUST_CROWD_SECONDS: Final = 2.5
_ACTS_EVERY_SECONDS: Final = 10.0
_START_SECONDS: Final = 60.0
_QUICK_REQUESTS: Final = 200_000
_RANGES: Final = ("24h", "7d", "30d")
_DETAIL_PAGE: Final = "requests"
_LATE: Final = "forecast is being computed"  # as the overview says
_WAITS_BELOW_SECONDS: Final = 2.0  # of the measured ranges none draws itself again so soon, but a page that waits does


@dataclass(frozen=True, slots=True)
class _Dashboard:
    port: int
    pid: int
    paths: tuple[str, ...]


def measure(report: Report) -> None:
    """Measure what issue 10 bounds: paint, page switch, filter change, one request, memory, twenty viewers."""
    rows: int = report.options.requests or (_QUICK_REQUESTS if report.quick else REQUESTS)
    short = "" if rows >= REQUESTS else f"{rows:,} requests in the store, where the bound is for 10 million"
    cores = Cores.choose()
    with pinned_to(cores.load), _filled(rows, report) as (store, month), _running(store, cores.measured) as running:
        rounds = 4 if report.quick else 12
        one = _one_viewer(report, running, rounds, short)
        _detail(report, running, store, month, rounds * 4, short)
        _crowd(report, running, 30.0 if report.quick else 90.0, one, short)


@contextmanager
def _filled(rows: int, report: Report) -> Iterator[tuple[StoreProcess, Month]]:
    if rows >= REQUESTS:
        from bench.kept_month import kept_month  # here: a smaller store needs none

        with kept_month() as kept:
            yield kept
        return
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    month = Month(rows, 30, midnight, 3)
    with StoreProcess() as store:
        fill(store, month, 1)
        compact(store.client("writer"), store.client("supervisor"))
        yield store, month


@contextmanager
def _running(store: StoreProcess, core: int) -> Iterator[_Dashboard]:
    """Run a control plane, and the dashboard on one core, until its first page has been drawn once."""
    port = free_ports(2)
    environment = {
        **os.environ,
        **store.environment,
        "TOLLKEEPER_DASHBOARD_PORT": str(port),
        "TOLLKEEPER_CONTROL_PORT": str(port + 1),
        "TOLLKEEPER_CONTROL_URL": f"http://127.0.0.1:{port + 1}",
    }
    migrate_database(f"sqlite:///{store.data / 'control.db'}", say=lambda line: None)
    with ExitStack() as until_the_end, (store.data / "dashboard.log").open("ab") as log:

        def start(module: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen([sys.executable, "-m", module], env=environment, stdout=log, stderr=log)
            until_the_end.callback(_stop, process)
            return process

        _wait_until_well(f"http://127.0.0.1:{port + 1}/health", start("gateway.control"))
        with pinned_to(core):
            process = start("dashboard")
        _wait_until_well(f"http://127.0.0.1:{port}/_stcore/health", process)
        with StreamlitViewer(port) as viewer:
            viewer.open()
            yield _Dashboard(port, process.pid, tuple(viewer.paths))


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(timeout=30)


def _wait_until_well(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"a process ended with status {process.returncode}; see dashboard.log of the store")
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"{url} did not answer within {_START_SECONDS:.0f} s")


def _one_viewer(report: Report, running: _Dashboard, rounds: int, short: str) -> float:
    """Let one viewer arrive, walk all pages and change filters; return the process's memory with that viewer (MiB)."""
    paints, filters = [], []
    switches: list[tuple[float, str]] = []
    waiting = late = 0
    for turn in range(rounds):
        begin = time.perf_counter()
        with urllib.request.urlopen(f"http://127.0.0.1:{running.port}/", timeout=30) as page:
            page.read()
        with StreamlitViewer(running.port) as viewer:
            drawn = _sound(viewer.open(range=_RANGES[turn % len(_RANGES)]))
            paints.append(time.perf_counter() - begin - drawn.seconds + (drawn.first_seconds or drawn.seconds))
            for path in running.paths[1:] or running.paths:
                range_name = _RANGES[turn % len(_RANGES)]
                stands = _stand(viewer, _to_page(path, range_name))
                switches.append((stands.seconds, f"{path} of {range_name}"))
                waiting += stands.looks > 0
            _stand(viewer, _to_page("", "7d"))
            for change in (_to_tenant(turn), _to_range("24h"), _to_range("30d"), _to_tenant(-1)):
                stands = _stand(viewer, change)
                filters.append(stands.seconds)
                late += stands.is_late
    memory = _resident_mib(running.pid)
    report.add("first_paint", _p95(paints), "s, p95, until the first numbers are sent", must=MUST_PAINT_SECONDS,
               better="lower", n=len(paints), unjudged=short)  # fmt: skip
    took = [seconds for seconds, _ in switches]
    report.add("page_switch", _p95(took), f"s, p95, until the numbers of {len(running.paths)} pages stand",
               must=MUST_SWITCH_SECONDS, better="lower", n=len(took), unjudged=short)  # fmt: skip
    longest, name = max(switches)
    report.add("page_switch_median", median(took), "s", better="lower", n=len(took))
    report.add("page_switch_longest", longest, f"s, {name}", better="lower", n=len(took))
    report.add("pages_waiting", waiting, f"of {len(switches)} page switches: drawn before all their numbers were there",
               better="lower", n=len(switches))  # fmt: skip
    report.add("filter_change", _p95(filters), "s, p95, until the overview's numbers stand",
               must=MUST_SWITCH_SECONDS, better="lower", n=len(filters), unjudged=short)  # fmt: skip
    report.add("forecasts_later", late, f"of {len(filters)} filter changes: the forecast was still being made",
               better="lower", n=len(filters))  # fmt: skip
    report.add("memory_one_viewer", memory, "MiB of the process, with one viewer", must=MUST_VIEWER_MIB,
               better="lower", n=1, unjudged=short)  # fmt: skip
    behind = spent_by(running.pid).rss_mib - memory
    report.add("memory_behind_pages", behind, "MiB of processes that compute in the background, now", better="lower")
    return memory


@dataclass(frozen=True, slots=True)
class _Stands:
    """A page whose numbers stand: after how long, looked at again how often, and whether its forecast came later."""

    seconds: float
    looks: int
    is_late: bool


def _stand(viewer: StreamlitViewer, act: Callable[[StreamlitViewer], Drawn]) -> _Stands:
    """Do something to a page, and look at it until nothing of it is awaited but forecasts."""
    begin, looks = time.perf_counter(), 0
    drawn = _sound(act(viewer))
    while _waits(drawn):
        if time.perf_counter() - begin > _START_SECONDS:
            raise RuntimeError(f"a page still waits after {_START_SECONDS:.0f} s: {drawn.words[:300]}")
        drawn, looks = _sound(viewer.look_again(drawn)), looks + 1
    return _Stands(time.perf_counter() - begin, looks, _LATE in drawn.words)


def _resident_mib(pid: int) -> float:
    """Return the memory of a process alone, without those that it has started and that end again."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} has no VmRSS")


def _to_page(path: str, range_name: str, **parameters: str) -> Callable[[StreamlitViewer], Drawn]:
    return lambda viewer: viewer.open(path, range=range_name, **parameters)


def _to_tenant(turn: int) -> Callable[[StreamlitViewer], Drawn]:
    return lambda viewer: viewer.select("Tenant", "" if turn < 0 else f"tenant-{turn % 1_000 + 1:04d}")


def _to_range(name: str) -> Callable[[StreamlitViewer], Drawn]:
    return lambda viewer: viewer.select("Time range", name)


def _detail(report: Report, running: _Dashboard, store: StoreProcess, month: Month, rounds: int, short: str) -> None:
    """Open single requests of the month's last day, each once."""
    if _DETAIL_PAGE not in running.paths:
        report.add_absent("request_detail", "s, p95", "there is no page of requests", must=MUST_DETAIL_SECONDS)
        return
    reader = store.client("reader")
    rows = reader.query(
        "SELECT toString(request_id) AS id FROM requests "
        "WHERE started_at >= toDateTime64({start:UInt32}, 9, 'UTC') ORDER BY cityHash64(request_id) LIMIT {few:UInt32}",
        {"start": int(month.end.timestamp()) - 86_400, "few": rounds},
    )
    reader.close()
    seconds = []
    with StreamlitViewer(running.port) as viewer:
        viewer.open()
        for row in rows:
            seconds.append(_stand(viewer, _to_page(_DETAIL_PAGE, "7d", request=str(row["id"]))).seconds)
    report.add("request_detail", _p95(seconds), "s, p95, its waterfall drawn", must=MUST_DETAIL_SECONDS,
               better="lower", n=len(seconds), unjudged=short)  # fmt: skip


def _crowd(report: Report, running: _Dashboard, seconds: float, memory_of_one: float, short: str) -> None:
    """Let twenty viewers each switch the page every ten seconds, while their pages refresh by themselves."""
    found: list[float] = []
    failures: list[BaseException] = []
    until = time.monotonic() + seconds
    threads = [
        threading.Thread(target=_walk, args=(running, number, until, found, failures)) for number in range(VIEWERS)
    ]
    for thread in threads:
        thread.start()
    time.sleep(seconds * 0.9)
    memory = _resident_mib(running.pid)
    for thread in threads:
        thread.join()
    if failures:
        raise RuntimeError(f"{len(failures)} of {VIEWERS} viewers failed") from failures[0]
    report.add("page_switch_20_viewers", _p95(found), "s, p95, each acting every 10 s", must=MUST_CROWD_SECONDS,
               better="lower", n=len(found), unjudged=short)  # fmt: skip
    each = (memory - memory_of_one) / (VIEWERS - 1)
    report.add("memory_each_further_viewer", each, "MiB", better="lower", n=VIEWERS - 1)


def _walk(running: _Dashboard, number: int, until: float, found: list[float], failures: list[BaseException]) -> None:
    try:
        time.sleep(number * _ACTS_EVERY_SECONDS / VIEWERS)
        with StreamlitViewer(running.port) as viewer:
            viewer.open(range=_RANGES[number % len(_RANGES)])
            turn = number
            due = time.monotonic() + _ACTS_EVERY_SECONDS
            while time.monotonic() < until:
                for drawn in viewer.refresh_due():
                    _sound(drawn)
                if time.monotonic() >= due:
                    due += _ACTS_EVERY_SECONDS
                    turn += 1
                    path = running.paths[turn % len(running.paths)]
                    found.append(_stand(viewer, _to_page(path, _RANGES[number % len(_RANGES)])).seconds)
                time.sleep(0.05)
    except BaseException as error:  # of a thread: told to who waits for it
        failures.append(error)


def _sound(drawn: Drawn) -> Drawn:
    """Return a drawn page back. Raises RuntimeError if it or a part of it says that it failed, which may be quick."""
    failure = failure_of(drawn.words)
    if failure:
        raise RuntimeError(f"a page says {failure!r} in: {drawn.words[:300]}")
    return drawn


def _waits(drawn: Drawn) -> bool:
    """Return whether a page, as it was drawn, waits for an answer that is being found in the background."""
    return drawn.refresh_seconds is not None and drawn.refresh_seconds < _WAITS_BELOW_SECONDS


def _p95(seconds: Sequence[float]) -> float:
    return quantiles(seconds, n=20, method="inclusive")[-1] if len(seconds) > 1 else seconds[0]


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--requests", type=int, default=0, help="how many in the store, instead of 10 million")


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark."""
    return run_bench("dashboard", measure, arguments, _add_options)


if __name__ == "__main__":
    sys.exit(main())
