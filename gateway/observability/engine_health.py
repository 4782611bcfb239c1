"""The state of engine hosts for GET /ready."""

from collections.abc import Mapping

from backends.llm.host.engine_host import HostStatus
from gateway.records.engine_records import JournalledEngineRecords


def engine_health(hosts: Mapping[str, HostStatus], records: JournalledEngineRecords) -> dict[str, object]:
    """Return how the engine hosts are. One that is away keeps only its own models from being served."""
    return {
        "engines": {
            name: {
                "state": host.state,
                "detail": host.detail,
                "latency_ms": None if host.latency_ns is None else round(host.latency_ns / 1e6, 3),
                "engine": host.engine,
                "models": host.models,
                "requests": host.requests,
                "unreadable_step_records": host.unreadable_step_records,
            }
            for name, host in hosts.items()
        },
        "step_records": records.step_records,
        "kv_records": records.kv_records,
        "dropped_kv_records": records.dropped_kv_records,
    }
