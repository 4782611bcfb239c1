"""Holds travel to gateways as rules do: with a revision, read when they moved, left out where they cannot be read."""

from datetime import UTC, datetime

from sqlalchemy import select

from backends.control.database import ControlDatabase
from backends.control.slos import Hold, write_holds
from backends.control.snapshot import read_snapshot
from contracts.control import AuditEntry, PolicyHold
from contracts.holds import HoldSpec

NOON = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)
SHED = Hold("up", "shed_batch", "acme", "", "it burns")
FREEZE = Hold("up", "freeze_canaries", "", "small", "it burns")


def test_a_hold_is_in_the_next_snapshot_and_gone_after_its_end(control_database: ControlDatabase) -> None:
    with control_database.session() as session:
        before = read_snapshot(session)
        assert before.snapshot.holds == ()
        assert write_holds(session, [SHED, FREEZE], NOON) == 2
    with control_database.session() as session:
        during = read_snapshot(session, before)
        assert during.snapshot.revision > before.snapshot.revision
        assert set(during.snapshot.holds) == {
            HoldSpec("up", "shed_batch", "acme"),
            HoldSpec("up", "freeze_canaries", "", "small"),
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
        session.add(PolicyHold(slo_id="odd", hook="explode", is_active=True, since=NOON))
    with control_database.session() as session:
        snapshot = read_snapshot(session).snapshot
    assert [hold.slo for hold in snapshot.holds] == ["up"]
    assert any("policy hold" in fault and "explode" in fault for fault in snapshot.misconfigured)
