"""Holds travel to gateways as rules do: with a revision, read when they moved, left out if they cannot be read."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import select

from backends.control.database import ControlDatabase
from backends.control.slos import Hold, list_holds, write_holds
from backends.control.snapshot import read_snapshot
from contracts.control import AuditEntry, PolicyHold
from contracts.recording.moments import unix_ns
from contracts.rules.holds import HoldSpec

NOON = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)
SHED = Hold("up", "shed_batch", "acme", "", "it burns")
FREEZE = Hold("up", "freeze_canaries", "", "small", "it burns", "support")
END = NOON + timedelta(minutes=15)


def test_a_hold_is_in_the_next_snapshot_and_gone_after_its_end(control_database: ControlDatabase) -> None:
    with control_database.session() as session:
        before = read_snapshot(session)
        assert before.snapshot.holds == ()
        assert write_holds(session, [SHED, FREEZE], NOON) == 2
    with control_database.session() as session:
        during = read_snapshot(session, before)
        assert during.snapshot.revision > before.snapshot.revision
        assert set(during.snapshot.holds) == {
            HoldSpec("up", "shed_batch", "acme", until_ns=unix_ns(END)),
            HoldSpec("up", "freeze_canaries", "", "small", "support", until_ns=unix_ns(END)),
        }
        assert write_holds(session, [SHED, FREEZE], NOON) == 0
    with control_database.session() as session:
        unmoved = read_snapshot(session, during)
        assert unmoved.snapshot.revision == during.snapshot.revision, "nothing changed, nobody is told"
        assert unmoved.snapshot.holds is during.snapshot.holds
        write_holds(session, [], NOON)
    with control_database.session() as session:
        assert read_snapshot(session, during).snapshot.holds == ()
        said = session.scalars(select(AuditEntry.action).where(AuditEntry.actor == "alerts")).all()
        assert list(said) == ["policy_hold.change"] * 2


def test_a_hold_that_cannot_be_read_is_left_out_and_named(control_database: ControlDatabase) -> None:
    with control_database.session() as session:
        write_holds(session, [SHED], NOON)
        session.add(PolicyHold(slo_id="odd", hook="explode", is_active=True, since=NOON, until=END))
    with control_database.session() as session:
        snapshot = read_snapshot(session).snapshot
    assert [hold.slo for hold in snapshot.holds] == ["up"]
    assert any("policy hold" in fault and "explode" in fault for fault in snapshot.misconfigured)


def test_a_hold_is_prolonged_once_less_than_ten_minutes_are_left_and_ends_without(
    control_database: ControlDatabase,
) -> None:
    second = timedelta(seconds=1)

    def revision() -> int:
        return read_snapshot(session).snapshot.revision

    with control_database.session() as session:
        write_holds(session, [SHED], NOON)
        first = revision()
        for at in (NOON + timedelta(minutes=5) - second, NOON + timedelta(minutes=5)):
            assert write_holds(session, [SHED], at) == 0
        assert revision() == first, "gateways are not told at each look"
        assert write_holds(session, [SHED], NOON + timedelta(minutes=5) + second) == 1
        assert revision() > first
        end = END + timedelta(minutes=5) + second
        assert [hold.until_ns for hold in read_snapshot(session).snapshot.holds] == [unix_ns(end)]
        assert [(hold.since, hold.until) for hold in list_holds(session, end - second)] == [(NOON, end)]
        assert list_holds(session, end) == list_holds(session, end + second) == []
        assert write_holds(session, [SHED], end + timedelta(hours=1)) == 1, "it is asked for again"
        assert len(list_holds(session, end + timedelta(hours=1))) == 1
