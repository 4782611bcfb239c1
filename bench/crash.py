"""Kills gateway, collectors and store at random moments under load, and then looks whether the books still close.

Two collectors stand behind one address that loses answers, so that the gateway sends batches again to another one.
"""

import argparse
import asyncio
import random
import sys
from typing import Final

import uvloop

from bench.crashing.clients import Clients, Counts
from bench.crashing.ledger import Comparison, compare
from bench.crashing.plant import Plant
from bench.report import Report, run_bench

_CLIENTS: Final = 6
_ROUNDS: Final = 20
_QUICK_ROUNDS: Final = 6
_LOST_ANSWERS: Final = 0.1
_UNTIL_KILL_SECONDS: Final = (0.3, 2.0)
_DEAD_SECONDS: Final = (0.0, 1.0)
_DRAIN_SECONDS: Final = 120.0


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rounds", type=int, default=0, help=f"how many kills; {_ROUNDS}, and {_QUICK_ROUNDS} if quick"
    )
    parser.add_argument("--seed", type=int, default=8, help="of the moments and the victims")


def measure(report: Report) -> None:
    """Kill one or two processes a round under load; compare the clients' counts with store, rollups and budget."""
    rounds = report.options.rounds or (_QUICK_ROUNDS if report.quick else _ROUNDS)
    counts, found, plant, spent = uvloop.run(_run(rounds, random.Random(report.options.seed)))
    asked = len(counts.tokens)
    kills = sum(service.kills for service in plant.services)
    for service in plant.services:
        report.add(f"kills_{service.name.replace('-', '_')}", service.kills, "kill -9")
    report.add("kills", kills, "kill -9", must=rounds)
    report.add("answers_lost_by_the_balancer", plant.balancer.lost, "answers of collectors")
    report.add("batches_at_two_collectors", found.shared_batches, "batches")
    report.add("acknowledged", asked, "requests", must=1)
    report.add("unacknowledged_rows", found.unacknowledged, "rows")
    report.add("lost", found.lost, "requests", must=0, better="lower", n=asked)
    report.add("doubled", found.doubled, "rows", must=0, better="lower", n=found.stored)
    report.add("different", found.different, "answers' tokens", must=0, better="lower", n=asked)
    report.add("rollup_difference", found.rollup_difference, "requests and tokens", must=0, better="lower")
    difference = abs(spent - found.charged_pico_usd)
    report.add("budget_difference", difference, "pico-USD", must=0, better="lower", n=found.stored)


async def _run(rounds: int, source: random.Random) -> tuple[Counts, Comparison, Plant, int]:
    async with Plant(source, lost_answers=_LOST_ANSWERS) as plant:
        clients = Clients(plant.gateway_port, _CLIENTS, source)
        load = asyncio.create_task(clients.run())
        for number in range(rounds):
            await _kill_some(plant, source, number)
        await asyncio.sleep(_UNTIL_KILL_SECONDS[1])
        clients.end()
        await load
        # The budget's total is that of a gateway which has read everything back.
        await asyncio.to_thread(plant.gateway.stop)
        await asyncio.to_thread(plant.gateway.start)
        if not await plant.drained(_DRAIN_SECONDS):
            print("crash: journal or spools are not empty after two minutes", file=sys.stderr)
        client = plant.client()
        found = await asyncio.to_thread(compare, client, clients.counts.tokens)
        client.close()
        return clients.counts, found, plant, await asyncio.to_thread(plant.spent_pico_usd)


async def _kill_some(plant: Plant, source: random.Random, number: int) -> None:
    """Kill every process in its turn, with a second one in every third round, at a moment that chance chooses."""
    services = plant.services
    victims = {number % len(services)}
    if number % 3 == 2:
        victims.add(source.randrange(len(services)))
    await asyncio.sleep(source.uniform(*_UNTIL_KILL_SECONDS))
    for victim in victims:
        services[victim].kill()
    await asyncio.sleep(source.uniform(*_DEAD_SECONDS))
    await asyncio.gather(*(asyncio.to_thread(services[victim].start) for victim in victims))


if __name__ == "__main__":
    sys.exit(run_bench("crash", measure, add_options=_add_options))
