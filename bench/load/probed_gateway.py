"""`python -m bench.load.probed_gateway FILE`: the gateway, and beside it in its event loop a beat that notes its lag.

At the end the file holds the beats as JSON: when each was due and when it came, in nanoseconds of the monotonic clock.
"""

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import uvloop

from backends.processes.compiled import use_compiled
from backends.processes.process import run_process

if TYPE_CHECKING:
    from gateway.process.settings import GatewaySettings

STEP_NS: Final = 2_000_000  # uvloop's timers count milliseconds

Beat = tuple[int, int]


async def _beat(beats: list[Beat]) -> None:
    due = time.monotonic_ns() + STEP_NS
    while True:
        await asyncio.sleep(max(due - time.monotonic_ns(), 0) / 1e9)
        came = time.monotonic_ns()
        beats.append((due, came))
        due += STEP_NS * (1 + max(came - due, 0) // STEP_NS)


async def _run(settings: "GatewaySettings", file: Path) -> None:
    from gateway.process.app import run

    beats: list[Beat] = []
    beating = asyncio.create_task(_beat(beats), name="beats")
    try:
        await run(settings)
    finally:
        beating.cancel()
        file.write_bytes(msgspec.json.encode(beats))


def read_beats(file: Path, from_ns: int, until_ns: int) -> list[Beat]:
    """Return the beats due between the two moments."""
    beats = msgspec.json.decode(file.read_bytes(), type=list[Beat])
    return [beat for beat in beats if from_ns <= beat[0] < until_ns]


if __name__ == "__main__":
    use_compiled()  # before anything of the gateway is imported
    from gateway.process.settings import GatewaySettings

    path = Path(sys.argv[1])
    sys.exit(run_process("gateway", GatewaySettings, lambda settings: uvloop.run(_run(settings, path))))
