"""From rows in the store to one call at a Slack-shaped receiver, and one when it is over, by a clock of the test's."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from ipaddress import ip_network
from secrets import token_urlsafe
from typing import Any
from uuid import uuid4

from analytics.alerts.dispatcher import Dispatcher
from analytics.alerts.evaluator import Evaluator
from analytics.alerts.sources import GpuHour
from backends.channels.base import ChannelSettings
from backends.channels.table import open_senders
from backends.control.alert_log import list_alerts
from backends.control.alert_rules import NewRule, create_channel, create_rule
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.organisation import create_tenant
from backends.control.sealer import Sealer
from backends.control.slos import NewSlo, list_holds, put_slo
from backends.store.client import StoreClient
from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.metering.usage import Usage
from contracts.recording.ids import uuid7
from contracts.recording.names import ENGINE_STEPS, GPU_SAMPLES
from contracts.recording.records import DeviceRecord, RequestRecord, StepRecord
from tests.receivers import HttpReceiver

Record = Callable[[Sequence[RequestRecord]], None]
INWARD = (ip_network("127.0.0.0/8"),)
SEALER = Sealer(token_urlsafe(32))


def requests_at(at: datetime, tenant: str, count: int, **changes: Any) -> list[RequestRecord]:
    at_ns = int(at.timestamp() * 1000) * 1_000_000
    facts: dict[str, Any] = {
        **{"outcome": "ok", "status": 200, "model": "small", "usage": Usage(input_text=5)},
        **{"started_at_ns": at_ns, "duration_ns": 1, "who": Identity(tenant)},
        **changes,
    }
    return [RequestRecord(request_id=uuid7(at_ns).bytes, **facts) for _ in range(count)]


async def test_a_burn_is_told_once_and_so_is_its_end(
    control_database: ControlDatabase, reader: StoreClient, record: Record
) -> None:
    tenant, now = f"tenant-{uuid4()}", datetime.now(UTC)
    author = Author("test", now)
    clock = [now]
    async with HttpReceiver() as receiver:
        with control_database.session() as session:
            create_tenant(session, author, tenant, "Acme")
            create_channel(session, author, "to", "", "slack", receiver.url, SEALER)
            create_rule(session, author, NewRule("promises", "slo_burn", tenant, {}, ["to"]))
            new = NewSlo("up", "availability", Decimal("99.9"), tenant=tenant, hooks=["shed_batch"])
            put_slo(session, author, new, replaces=False)
        record(requests_at(now - timedelta(minutes=2), tenant, 60))
        record(requests_at(now - timedelta(minutes=2), tenant, 40, outcome="error", status=502))
        evaluator = Evaluator(control_database, reader, "test")
        async with open_senders(ChannelSettings(10, INWARD)) as senders:
            dispatcher = Dispatcher(control_database, senders, lambda: clock[0], SEALER)

            async def look(after: timedelta) -> list[str]:
                clock[0] += after
                assert evaluator.look(clock[0]) is not None
                await dispatcher.send_due()
                return [call.json["text"].partition(" burns")[0] for call in receiver.calls]

            told = "Alert: SLO up: error budget"
            assert await look(timedelta(0)) == [told]
            assert await look(timedelta(seconds=15)) == [told]
            with control_database.session() as session:
                assert [hold.hook for hold in list_holds(session, clock[0])] == ["shed_batch"]
            assert await look(timedelta(hours=7)) == [told, told.replace("Alert", "Resolved")]
            assert await look(timedelta(seconds=15)) == [told, told.replace("Alert", "Resolved")]
    with control_database.session() as session:
        assert list_holds(session, clock[0]) == []
        (alert,) = list_alerts(session)
        assert (alert.severity, alert.facts["pair"]) == ("page", "14.4x 1h/5m")


def step(engine: str, sequence: int, at: datetime, **changes: Any) -> StepRecord:
    facts: dict[str, Any] = {"busy_ns": 10**6, "gap_ns": 0, "model": f"model-{engine}", **changes}
    return StepRecord(engine=engine, sequence=sequence, started_at_ns=int(at.timestamp()) * 10**9, **facts)


def test_machines_and_books_are_found_by_name(control_database: ControlDatabase, store: Any, record: Record) -> None:
    """Each kind that is about machines, from rows as collectors write them, with a healthy neighbour beside it."""
    client: StoreClient = store.client("writer")
    now, run = datetime.now(UTC).replace(microsecond=0), uuid4().hex[:8]
    full, fine, lossy = f"full-{run}", f"fine-{run}", f"lossy-{run}"
    minutes = [now.replace(second=1) - timedelta(minutes=number) for number in (2, 3, 4, 5)]
    steps = [
        step(engine, number, at, kv_blocks_used=used, kv_blocks_total=100, waiting=1, running=1)
        for engine, used in ((full, 95), (fine, 89))
        for number, at in enumerate(reversed(minutes))
    ]
    # Full once, and silent since: also where another rule looks at more minutes.
    steps += [
        step(f"past-{run}", number, now - timedelta(minutes=30 - number), kv_blocks_used=99, kv_blocks_total=100)
        for number in range(8)
    ]
    steps += [step(lossy, number, now - timedelta(minutes=30)) for number in (1, 2, 5)]
    client.insert_arrow("engine_steps", arrow_batch(ENGINE_STEPS, steps), deduplication_token=f"steps-{run}")
    samples = [
        DeviceRecord(
            host=f"host-{run}",
            sequence=number,
            at_ns=int((now - timedelta(minutes=5 - number)).timestamp()) * 10**9,
            device=f"{name}-{run}",
            device_model="H200",
            device_index=index,
            temperature_celsius=heat,
            ecc_uncorrected=7 + (number if name == "memory" else 0),
            xid=79 if name == "fallen" and number else None,
        )
        for number in range(2)
        for index, (name, heat) in enumerate((("cool", 89.9), ("hot", 90.0), ("memory", 40.0), ("fallen", None)))
    ]
    client.insert_arrow("gpu_samples", arrow_batch(GPU_SAMPLES, samples), deduplication_token=f"samples-{run}")
    an_hour_ago = (now - timedelta(minutes=10)).replace(minute=0, second=0) - timedelta(minutes=30)
    made = {"engine_output_tokens": 10, "usage": Usage(output_text=8), "overrun_tokens": 1, "cost_pico_usd": 1}
    record(requests_at(an_hour_ago, f"t-{run}", 1, replica=f"short-{run}", **made))
    record(requests_at(an_hour_ago, f"t-{run}", 1, replica=f"closed-{run}", **made, wasted_tokens=1))
    usage = Usage(input_text=4, output_text=2)
    record(requests_at(now, f"unpriced-{run}", 3, model="free", usage=usage))
    priced = {"cost_pico_usd": 5, "cost_basis": "price_card"}
    record(requests_at(now, f"partly-{run}", 2, model="sound", unpriced_leaves=["input_audio"], **priced))
    record(requests_at(now, f"partly-{run}", 4, model="sound", **priced))
    record(requests_at(now, f"tier-{run}", 2, model="fast", service_tier="scale", usage=usage))
    kinds = ("saturation", "gpu_fault", "telemetry_loss", "ledger_mismatch", "unpriced_usage")
    with control_database.session() as session:
        for kind in kinds:
            create_rule(session, Author("test", now), NewRule(kind.replace("_", "-"), kind))
        create_rule(session, Author("test", now), NewRule("long", "saturation", "", {"minutes": 40}))
    hours = [GpuHour("even", 10**12, 4_999_999_999), GpuHour("odd", 10**12, 5_000_000_000), GpuHour("off", 0, 0)]
    looked = Evaluator(control_database, client, "test", gpu_hours=lambda hour: hours).look(now)
    assert looked is not None and looked.skipped == {}
    with control_database.session() as session:
        found = {(alert.kind, alert.fingerprint): alert for alert in list_alerts(session, limit=1000)}
    mine = {key for key in found if run in key[1] or key[1].startswith(("even", "odd", "off"))}
    named = {(kind, fingerprint.partition("/20")[0]) for kind, fingerprint in mine}
    assert named == {
        ("saturation", full),
        ("telemetry_loss", f"steps/{lossy}"),
        ("gpu_fault", f"hot-{run}/heat"),
        ("gpu_fault", f"memory-{run}/memory"),
        ("gpu_fault", f"fallen-{run}/xid"),
        ("ledger_mismatch", f"short-{run}"),
        ("ledger_mismatch", "odd"),
        ("unpriced_usage", f"unpriced-{run}/free"),
        ("unpriced_usage", f"partly-{run}/sound"),
        ("unpriced_usage", f"tier-{run}/fast"),
    }
    assert found["gpu_fault", f"fallen-{run}/xid"].severity == "page"
    assert "2 of 5 steps" in found["telemetry_loss", f"steps/{lossy}"].summary
    assert "3 requests of unpriced" in found["unpriced_usage", f"unpriced-{run}/free"].summary
    assert "add a price card" in found["unpriced_usage", f"unpriced-{run}/free"].summary
    partly = found["unpriced_usage", f"partly-{run}/sound"].summary
    assert partly.startswith("2 requests of partly") and "no price for input_audio" in partly
    assert "service tiers without one: scale" in found["unpriced_usage", f"tier-{run}/fast"].summary
    client.close()
