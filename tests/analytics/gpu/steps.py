"""Step records of an engine whose every minute is the same, so that its ledger can be written down beforehand."""

from datetime import datetime
from typing import Any
from uuid import UUID

from contracts.recording.records import StepRecord

_SECOND = 10**9


def steps_of_minutes(engine: str, device: str, start: datetime, minutes: int) -> list[StepRecord]:
    """Return minutes of 10 s idle, 5 s host gap, a step of 30 s and 15 s idle.

    The step: acme 15 s useful; globex 12 s, of which a quarter was computed before; and 3 s of a request of globex
    whose client had left.
    """
    records: list[StepRecord] = []
    for minute in range(minutes):
        begin = (int(start.timestamp()) + 60 * minute) * _SECOND
        common: dict[str, Any] = {"engine": engine, "model": "m", "replica": "r", "devices": [device]}
        idle = StepRecord(
            **common,
            sequence=3 * minute + 1,
            started_at_ns=begin,
            busy_ns=10 * _SECOND,
            kind="idle",
        )
        step = StepRecord(
            **common,
            sequence=3 * minute + 2,
            started_at_ns=begin + 15 * _SECOND,
            busy_ns=30 * _SECOND,
            gap_ns=5 * _SECOND,
            gap_cause="host",
            method="steptime-as/1",
            request_ids=[UUID(int=minute * 3 + number + 1).bytes for number in range(3)],
            tenants=["acme", "globex", "globex"],
            scheduled=[8, 4, 1],
            recompute=[0, 1, 0],
            aborted=[False, False, True],
            phases=[0, 1, 1],
            gpu_ns=[15 * _SECOND, 12 * _SECOND, 3 * _SECOND],
        )
        rest = StepRecord(
            **common,
            sequence=3 * minute + 3,
            started_at_ns=begin + 45 * _SECOND,
            busy_ns=15 * _SECOND,
            kind="idle",
        )
        records += [idle, step, rest]
    return records
