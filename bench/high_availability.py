"""Whether limits, budgets and changes hold while Redis' and PostgreSQL's primaries are lost, and for how long it shows.

Real servers on loopback: a Redis Cluster of three primaries, Sentinels with a primary and two replicas, a PostgreSQL
primary with a synchronous standby, and such a pair under Patroni with etcd. Each primary is killed and frozen under
load, round after round; so is each part of an installation of four gateways, two control planes and two collectors. A
run that was interrupted goes on where it was with `--state FILE`.
"""

import argparse
import asyncio
import json
import random
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import psycopg
from sqlalchemy import text

from backends.control.database import ControlDatabase
from backends.counters.address import CountersAddress
from bench.fleet.doubled import Doubled
from bench.fleet.failover import FailoverLoad, How
from bench.fleet.losses import PARTS, lose_each_part
from bench.fleet.patroni import PatroniPair, running_patroni
from bench.fleet.patroni import is_installed as is_patroni_installed
from bench.report import Report, run_bench
from contracts.errors import ControlUnavailable
from tests.backends.counters.redis_fleet import RedisCluster, RedisFleet, WatchedRedis, folder_of_fleet, running
from tests.backends.counters.redis_server import RedisServer
from tests.conftest import PostgresPair

Round = dict[str, float]

_NAMESPACE: Final = "failover"
_GATEWAYS: Final = 4
_AMOUNT: Final = 4000
_QUICK_AMOUNT: Final = 1500
_ROUNDS: Final = 5
_KINDS: Final = ("redis", "postgresql", "patroni", "doubled")
_WAYS: Final[tuple[How, ...]] = ("killed", "frozen")
_STATEMENT_SECONDS: Final = 60
_POSTGRES: Final = Path("/usr/lib/postgresql")
_DOUBLED_ZERO: Final = {
    "lost": "acknowledged requests without a record",
    "doubled": "rows",
    "different": "answers' tokens",
    "rollup_difference": "requests and tokens",
    "budget_exceeded": "pico-USD",
    "outside_policy": "answers of 5xx",
    "changes_lost": "acknowledged changes",
}
_DOUBLED_SHOWN: Final = {
    "refused_by_policy": "answers of 503 while Redis was away",
    "broken": "connections of callers",
    "changes_refused": "changes to be repeated",
    "shared_batches": "batches at two collectors",
}


def measure(report: Report) -> None:
    """Kill and freeze each primary under load."""
    rounds = 1 if report.quick else report.options.rounds
    state = Rounds(report.options.state)
    has_redis, binaries = RedisServer.is_installed(), sorted(_POSTGRES.glob("*/bin/postgres"))
    missing = {
        "redis": "" if has_redis else "there is no redis-server: apt-get install redis-server",
        "postgresql": "" if binaries else "there is no PostgreSQL: apt-get install postgresql",
        "patroni": ""
        if is_patroni_installed()
        else "there is no Patroni or no etcd: apt-get install patroni etcd-server",
    }
    needs = {"redis": ("redis",), "postgresql": ("postgresql",), "patroni": ("postgresql", "patroni")}
    needs["doubled"] = ("redis", "postgresql")
    for kind in [report.options.only] if report.options.only else _KINDS:
        if reasons := [missing[each] for each in needs[kind] if missing[each]]:
            report.add_absent(kind, "", "; ".join(reasons))
        elif kind == "redis":
            for name, made in (("redis_cluster", _cluster), ("sentinel", WatchedRedis)):
                _measure_redis(report, state, name, made, rounds)
        else:
            measured = {"postgresql": _measure_postgres, "patroni": _measure_patroni, "doubled": _measure_doubled}
            measured[kind](report, state, binaries[-1].parent, rounds)
    report.add_absent("clickhouse_replicas", "", "the embedded engine has no Keeper, so no replicas")


class Rounds:
    """Rounds that are done, in a file of JSON lines, so that an interrupted run goes on."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._done: dict[str, Round] = {}
        if file is not None and file.exists():
            for line in file.read_text().splitlines():
                kept = json.loads(line)
                self._done[kept["name"]] = kept["round"]

    def done(self, name: str, run: Callable[[], Round]) -> Round:
        """Return a round as it was done, or do it now."""
        if name not in self._done:
            self._done[name] = run()
            if self._file is not None:
                with self._file.open("a") as file:
                    file.write(json.dumps({"name": name, "round": self._done[name]}) + "\n")
        return self._done[name]


def _cluster(folder: Path) -> RedisCluster:
    return RedisCluster(folder, _NAMESPACE)


def _measure_redis(report: Report, state: Rounds, name: str, made: Callable[[Path], RedisFleet], rounds: int) -> None:
    amount = _QUICK_AMOUNT if report.quick else _AMOUNT
    with folder_of_fleet() as folder, running(made(folder)) as fleet:
        for how in _WAYS:
            found = []
            for number in range(rounds):
                run = partial(_redis_round, fleet, f"{how}-{number}", how, amount)
                found.append(state.done(f"{name}-{how}-{number}", run))
            _report_rounds(report, f"{name}_{how}", found)


def _redis_round(fleet: RedisFleet, name: str, how: How, amount: int) -> Round:
    return asyncio.run(_lose_redis(fleet, name, how, amount))


async def _lose_redis(fleet: RedisFleet, name: str, how: How, amount: int) -> Round:
    while len(await asyncio.to_thread(fleet.replicas)) < 2:
        await asyncio.sleep(0.1)
    load = FailoverLoad(CountersAddress(fleet.url), _NAMESPACE, name, amount=amount, gateways=_GATEWAYS)
    await load.start()
    try:
        await load.until(lambda: load.taken >= amount // 6, "a sixth of it being taken")
        lost = await load.lose(fleet, how)
        load.takes_until = 2 * amount
        await load.until(lambda: load.taken >= amount * 0.97, "the rest of it being taken")
        await asyncio.sleep(1.0)
    finally:
        await load.close()
    return {
        "exceeded": max(load.taken - amount, 0),
        "unused": max(amount - load.taken, 0) / amount,
        "promoted": lost.promoted_seconds,
        "recovered": lost.recovered_seconds,
        "gap": lost.longest_gap_seconds,
    }


def _measure_postgres(report: Report, state: Rounds, binaries: Path, rounds: int) -> None:
    for how in _WAYS:
        run = partial(_postgres_round, binaries, how)
        found = [state.done(f"postgresql-{how}-{number}", run) for number in range(rounds)]
        name = f"postgresql_{how}"
        report.add(
            f"{name}_lost", sum(one["lost"] for one in found), "acknowledged changes", must=0, better="lower", n=rounds
        )
        report.add(
            f"{name}_written_to_former",
            sum(one["former"] for one in found),
            "changes",
            must=0,
            better="lower",
            n=rounds,
        )
        report.add(f"{name}_recovered_max", max(one["recovered"] for one in found), "s", n=rounds)


def _postgres_round(binaries: Path, how: How) -> Round:
    pair = PostgresPair(binaries)
    try:
        pair.start()
        with psycopg.connect(pair.primary.url("postgres"), autocommit=True) as connection:
            connection.execute("CREATE TABLE kept (value int PRIMARY KEY)")
        return _lose_postgres(pair, how)
    finally:
        pair.stop()


def _lose_postgres(pair: PostgresPair, how: How) -> Round:
    """Write all the time, lose the primary, and count what was acknowledged and is not there."""
    writer = _Writer(ControlDatabase(pair.url("postgres")))
    try:
        writer.wait_for(20)
        pair.primary.kill() if how == "killed" else pair.primary.freeze()
        began, before = time.monotonic(), writer.count
        pair.promote_standby()
        writer.wait_for(before + 20)
        recovered = time.monotonic() - began
        pair.primary.start() if how == "killed" else pair.primary.go_on()
        writer.wait_for(writer.count + 50)
    finally:
        writer.close()
    kept, former = _kept(pair.standby.url("postgres")), _kept(pair.primary.url("postgres"))
    return {
        "lost": len(writer.acknowledged - kept),
        "former": len(former & writer.acknowledged - kept),
        "recovered": recovered,
    }


def _measure_patroni(report: Report, state: Rounds, binaries: Path, rounds: int) -> None:
    for how in _WAYS:
        run = partial(_patroni_round, binaries, how)
        found = [state.done(f"patroni-{how}-{number}", run) for number in range(rounds)]
        lost = sum(one["lost"] for one in found)
        report.add(f"patroni_{how}_lost", lost, "acknowledged changes", must=0, better="lower", n=rounds)
        report.add(f"patroni_{how}_recovered_max", max(one["recovered"] for one in found), "s", n=rounds)


def _patroni_round(binaries: Path, how: How) -> Round:
    with running_patroni(binaries) as pair:
        leader = pair.leader()
        assert leader is not None
        with psycopg.connect(leader.url("postgres"), autocommit=True) as connection:
            connection.execute("CREATE TABLE kept (value int PRIMARY KEY)")
        return _lose_patroni_leader(pair, how)


def _lose_patroni_leader(pair: PatroniPair, how: How) -> Round:
    """Write all the time, lose the leader with its Patroni, let it come back, and count what is not there."""
    lost = pair.leader()
    assert lost is not None
    writer = _Writer(ControlDatabase(pair.url("postgres")))
    try:
        writer.wait_for(20)
        lost.kill() if how == "killed" else lost.freeze()
        began, before = time.monotonic(), writer.count
        writer.wait_for(before + 20)
        recovered = time.monotonic() - began
        lost.start() if how == "killed" else lost.go_on()
        pair.wait_for_standby()
        writer.wait_for(writer.count + 50)
    finally:
        writer.close()
    leader = pair.leader()
    assert leader is not None and leader is not lost
    return {"lost": len(writer.acknowledged - _kept(leader.url("postgres"))), "recovered": recovered}


def _measure_doubled(report: Report, state: Rounds, binaries: Path, rounds: int) -> None:
    """Lose each part of an installation of which all but the store runs twice or more."""
    for how in _WAYS:
        run = partial(_doubled_round, binaries, how)
        found = [state.done(f"doubled-{how}-{number}", run) for number in range(rounds)]
        name, asked = f"doubled_{how}", int(sum(one["asked"] for one in found))
        for what, unit in _DOUBLED_ZERO.items():
            value = sum(one[what] for one in found)
            report.add(f"{name}_{what}", value, unit, must=0, better="lower", n=asked)
        for what, unit in _DOUBLED_SHOWN.items():
            report.add(f"{name}_{what}", sum(one[what] for one in found), unit, n=asked)
        report.add(f"{name}_budget_used", min(one["budget_used"] for one in found), "of the budget", n=rounds)
        for part in PARTS:
            longest = max(one[f"{part}_recovered"] for one in found)
            report.add(f"{name}_{part}_recovered_max", longest, "s", n=rounds)


def _doubled_round(binaries: Path, how: How) -> Round:
    async def run() -> Round:
        source = random.Random()
        async with Doubled(source, binaries) as installation:
            return await lose_each_part(installation, source, how)

    return asyncio.run(run())


class _Writer:
    """Writes numbers, one transaction each, and keeps which were acknowledged."""

    def __init__(self, database: ControlDatabase) -> None:
        self.acknowledged: set[int] = set()
        self._database = database
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        """Return how many were acknowledged."""
        return len(self.acknowledged)

    def wait_for(self, count: int) -> None:
        """Wait until so many were acknowledged. Raises AssertionError if that takes longer than a minute."""
        deadline = time.monotonic() + _STATEMENT_SECONDS
        while self.count < count:
            assert time.monotonic() < deadline, f"{self.count} of {count} changes were acknowledged within a minute"
            time.sleep(0.02)

    def close(self) -> None:
        """Stop writing."""
        self._stops.set()
        self._thread.join(_STATEMENT_SECONDS)
        self._database.close()

    def _write(self) -> None:
        value = 0
        while not self._stops.is_set():
            value += 1
            try:
                with self._database.session() as session:
                    session.execute(text("INSERT INTO kept VALUES (:value)"), {"value": value})
                self.acknowledged.add(value)
            except ControlUnavailable:
                pass
            self._stops.wait(0.01)


def _kept(url: str) -> set[int]:
    with psycopg.connect(url, connect_timeout=5) as connection:
        return {row[0] for row in connection.execute("SELECT value FROM kept")}


def _report_rounds(report: Report, name: str, found: list[Round]) -> None:
    count = len(found)
    report.add(
        f"{name}_exceeded", sum(one["exceeded"] for one in found), "of an amount", must=0, better="lower", n=count
    )
    report.add(f"{name}_unused_max", max(one["unused"] for one in found), "share", must=0.03, better="lower", n=count)
    for what in ("promoted", "recovered", "gap"):
        report.add(f"{name}_{what}_max", max(one[what] for one in found), "s", n=count)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", choices=_KINDS, default="", help="rehearse one kind alone")
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help=f"rounds of each kind (default {_ROUNDS})")
    parser.add_argument(
        "--state", type=Path, default=None, help="file of finished rounds, to go on after an interruption"
    )


if __name__ == "__main__":
    sys.exit(run_bench("high_availability", measure, add_options=_options))
