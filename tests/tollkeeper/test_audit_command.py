"""`tollkeeper audit`: everything is looked at, the first wrong entry is named, and what is exported can be checked."""

import asyncio
import hashlib
import json
import shutil
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from backends.audit.chain import AuditChain
from backends.audit.copying import copy_chains, restore_chains
from backends.audit.entries import KIND_REQUEST
from backends.audit.options import AuditOptions, audit_root
from backends.audit.places import segment_names
from backends.audit.signing import AuditSigner
from backends.control.audit_chain import read_rows
from backends.control.changes import Author, begin_change
from backends.control.database import ControlDatabase
from backends.secrets.secret_files import SecretFiles
from gateway.control.audit_witness import AuditWitness
from tests.backends.audit.conftest import request_facts
from tests.tollkeeper.conftest import announced
from tollkeeper.cli import app

AUTHOR = Author("ada", datetime(2026, 11, 2, tzinfo=UTC))


@pytest.fixture(scope="module")
def made(migrated_sqlite: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installation that has changed something five times and served three requests of a tenant that asks for it."""
    data = tmp_path_factory.mktemp("audited")
    shutil.copy(migrated_sqlite, data / "control.db")
    database = ControlDatabase(f"sqlite:///{data / 'control.db'}")
    for number in range(5):
        with database.session() as session:
            begin_change(session, AUTHOR, "key.create", f"acme/key_{number}", {"number": number})
    signer = AuditSigner.of(SecretFiles(data / "secrets"))
    witness = AuditWitness(database, audit_root(data) / "control", signer, AuditOptions())
    assert asyncio.run(witness.look()) == 5
    witness.close()
    database.close()
    chain = AuditChain(audit_root(data) / "gateway", "gw:1", signer)
    for _ in range(3):
        chain.append(KIND_REQUEST, request_facts())
        chain.rotate()
    chain.close()
    return data


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "data")
    return tmp_path / "data"


def run(data: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["audit", *words, "--data", str(data)], env={"TOLLKEEPER_DATABASE_URL": ""})


def verified(data: Path, *words: str) -> tuple[int, dict[str, Any]]:
    done = run(data, "verify", "--json", *words)
    return done.exit_code, json.loads(done.stdout)


def wrong(data: Path, *statements: str) -> dict[str, Any]:
    """Write around the control plane, as the one that has the file can, and return what is found."""
    with sqlite3.connect(data / "control.db") as database:
        for statement in ("DROP TRIGGER audit_keeps_entries", "DROP TRIGGER audit_loses_none", *statements):
            database.execute(statement)
    database.close()
    status, found = verified(data)
    (fault,) = [place["fault"] for place in found["places"] if place["fault"]]
    assert status == 1 and not found["is_sound"]
    return dict(fault)


def test_what_is_as_it_was_written_is_said_to_be_sound(data: Path) -> None:
    status, found = verified(data)
    assert status == 0 and found["is_sound"]
    assert {place["place"]: place["entries"] for place in found["places"]} == {
        "control": 7,
        "gateway": 7,
        "control database": 5,
    }
    assert ": verified" in run(data, "verify").stdout


@pytest.mark.parametrize("number", [0, -1, -5])
def test_an_entry_inserted_before_the_first_is_a_fault(data: Path, number: int) -> None:
    with sqlite3.connect(data / "control.db") as database:
        for name in ("audit_only_appends", "audit_replaces_none"):
            database.execute(f"DROP TRIGGER IF EXISTS {name}")
        database.execute(
            "INSERT INTO audit (id, at, actor, action, subject, address, detail, salt, facts_hash, prev, hash) VALUES "
            f"({number}, '2026-11-02 03:30:00.000000', 'eve', 'key.create', 'acme', '', '{{}}', '', '', '', '')"
        )
    database.close()
    fault = fault_of(data)
    assert (fault["place"], fault["entry"]) == ("control database", number) and "never chained" in fault["what"]
    exported = [json.loads(line) for line in run(data, "export").stdout.splitlines()]
    assert [line["seq"] for line in exported if line["place"] == "control" and "actor" in line][0] == number


def fault_of(data: Path) -> dict[str, Any]:
    status, found = verified(data)
    (fault,) = [place["fault"] for place in found["places"] if place["fault"]]
    assert status == 1 and not found["is_sound"]
    return dict(fault)


@pytest.mark.parametrize("rows_cut", [0, 3])
@pytest.mark.parametrize("removed", ["control", ""])
def test_a_removed_witness_is_a_fault(data: Path, removed: str, rows_cut: int) -> None:
    shutil.rmtree(audit_root(data) / removed)
    if rows_cut:
        wrong(data, f"DELETE FROM audit WHERE id > {5 - rows_cut}")
    fault = fault_of(data)
    assert fault["place"] == "control database" and "no chain confirms" in fault["what"]
    assert run(data, "accept-restore", "--reason", "the volume of audit/ was lost").exit_code == 0
    status, found = verified(data)
    assert status == 0, found
    assert any("the volume of audit/ was lost" in note for place in found["places"] for note in place["notes"])


def test_a_removed_witness_stays_a_fault_when_the_control_plane_begins_another(
    migrated_sqlite: Path, tmp_path: Path
) -> None:
    environment = {"TOLLKEEPER_DATABASE_URL": f"sqlite:///{tmp_path / 'control.db'}"}

    def verify(data: Path) -> Result:
        return CliRunner().invoke(app, ["audit", "verify", "--data", str(data)], env=environment)

    with announced(migrated_sqlite, tmp_path) as data:
        pass
    assert verify(data).exit_code == 0
    with sqlite3.connect(tmp_path / "control.db") as database:
        database.execute("DROP TRIGGER audit_loses_none")
        database.execute("DELETE FROM audit WHERE id > (SELECT max(id) - 3 FROM audit)")
    database.close()
    shutil.rmtree(audit_root(data))
    assert verify(data).exit_code == 1
    wiped = tmp_path / "wiped.db"
    shutil.move(tmp_path / "control.db", wiped)
    with announced(wiped, tmp_path):
        pass
    done = verify(data)
    assert done.exit_code == 1 and "is gone" in done.stderr, done.output
    accepted = ["audit", "accept-restore", "--reason", "a drill", "--data", str(data)]
    assert CliRunner().invoke(app, accepted, env=environment).exit_code == 0
    assert verify(data).exit_code == 0
    shutil.move(tmp_path / "control.db", wiped)
    with announced(wiped, tmp_path):
        pass
    assert verify(data).exit_code == 0, "the chain that begins with the acceptance vouches"


def test_a_changed_row_is_named(data: Path) -> None:
    fault = wrong(data, "UPDATE audit SET actor = 'eve' WHERE id = 3")
    assert (fault["place"], fault["entry"]) == ("control database", 3)


def test_a_deleted_row_is_named(data: Path) -> None:
    assert wrong(data, "DELETE FROM audit WHERE id = 2")["entry"] == 3


def test_rows_cut_off_the_end_are_named_by_what_vouches_for_them(data: Path) -> None:
    fault = wrong(data, "DELETE FROM audit WHERE id > 3")
    assert fault["entry"] == 4 and "confirms" in fault["what"]


def test_a_chain_made_anew_in_the_database_is_named(data: Path, migrated_sqlite: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    shutil.copy(migrated_sqlite, other)
    database = ControlDatabase(f"sqlite:///{other}")
    for number in range(5):
        with database.session() as session:
            begin_change(session, AUTHOR, "key.create", f"acme/key_{number}", {"number": number})
    database.close()
    shutil.copy(other, data / "control.db")
    status, found = verified(data)
    (fault,) = [place["fault"] for place in found["places"] if place["fault"]]
    assert status == 1 and fault["entry"] == 1 and "differs" in fault["what"]


def test_a_changed_file_is_named_for_people(data: Path) -> None:
    directory = audit_root(data) / "gateway"
    path = directory / segment_names(directory)[1]
    path.chmod(0o600)
    path.write_bytes(path.read_bytes().replace(b"acme", b"evil"))
    done = run(data, "verify")
    assert done.exit_code == 1 and "gateway: " in done.stdout and "NOT VERIFIED" in done.stdout
    assert f"entry 4 in {path.name}: the entry was changed" in done.stderr


def test_another_machine_verifies_with_the_public_key(data: Path, tmp_path: Path) -> None:
    pem = tmp_path / "audit.pem"
    pem.write_text(run(data, "key").stdout)
    shutil.rmtree(data / "secrets")
    assert verified(data, "--public-key", str(pem))[0] == 0
    assert run(data, "verify").exit_code == 2


def test_an_export_holds_what_was_hashed(data: Path) -> None:
    done = run(data, "export", "--from", "2023-11-14", "--to", "2023-11-15")
    entries = [json.loads(line) for line in done.stdout.splitlines()]
    assert [entry["kind"] for entry in entries] == ["request"] * 3 and {entry["place"] for entry in entries} == {
        "gateway"
    }
    for line, entry in zip(done.stdout.splitlines(), entries, strict=True):
        body = line.replace(f'"place":"gateway","hash":"{entry["hash"]}",', "", 1)
        assert hashlib.sha256(body.encode()).hexdigest() == entry["hash"]
    changes = [
        json.loads(line)
        for line in run(data, "export", "--from", "2026-11-02", "--to", "2026-11-03").stdout.splitlines()
    ]
    assert [entry["subject"] for entry in changes if entry["kind"] == "change"] == [
        f"acme/key_{one}" for one in range(5)
    ]


def test_segments_go_to_a_sink_and_are_cut_here(data: Path, tmp_path: Path) -> None:
    sink = str(tmp_path / "sink")
    assert run(data, "ship", "--sink", sink).exit_code == 0
    assert verified(data, "--sink", sink)[0] == 0
    assert "gateway: 3 segments cut" in run(data, "cut", "--before", "2999-01-01").stdout
    assert verified(data, "--sink", sink)[0] == 0
    directory = audit_root(data) / "gateway"
    shutil.rmtree(directory)
    status, found = verified(data, "--sink", sink)
    (fault,) = [place["fault"] for place in found["places"] if place["fault"]]
    assert status == 1 and fault["place"].startswith("sink:gw-1") and "gone here as a whole" in fault["what"]
    assert verified(data, "--sink", sink, "--shared-sink")[0] == 0


def backed_up(data: Path, to: Path) -> Path:
    """Copy the chains and the database, as `tollkeeper backup` does, and change something behind it."""
    copy_chains(audit_root(data), to / "audit")
    shutil.copy(data / "control.db", to / "control.db")
    change(data, 2)
    return to


def change(data: Path, times: int) -> None:
    database = ControlDatabase(f"sqlite:///{data / 'control.db'}")
    for number in range(times):
        with database.session() as session:
            begin_change(session, AUTHOR, "key.create", f"acme/later_{number}")
    signer = AuditSigner.of(SecretFiles(data / "secrets"))
    witness = AuditWitness(database, audit_root(data) / "control", signer, AuditOptions())
    assert asyncio.run(witness.look()) == times
    witness.close()
    database.close()


def test_a_restored_database_is_a_fault_until_somebody_says_why(data: Path, tmp_path: Path) -> None:
    kept = backed_up(data, tmp_path)
    assert run(data, "accept-restore", "--reason", "none needed").exit_code == 2
    shutil.copy(kept / "control.db", data / "control.db")
    status, found = verified(data)
    (fault,) = [place["fault"] for place in found["places"] if place["fault"]]
    assert status == 1 and fault["entry"] == 6 and "accept-restore" in fault["what"]
    assert run(data, "accept-restore", "--reason", " ").exit_code == 2
    done = run(data, "accept-restore", "--reason", "the disk died; backup of Sunday", "--json")
    assert done.exit_code == 0, done.output
    assert (json.loads(done.stdout)["entry"], json.loads(done.stdout)["voided"]) == (5, 2)
    status, found = verified(data)
    notes = [note for place in found["places"] for note in place["notes"]]
    assert status == 0 and any("the disk died; backup of Sunday" in note for note in notes)
    database = ControlDatabase(f"sqlite:///{data / 'control.db'}")
    with database.session() as session:
        assert [row.action for row in read_rows(session, after=5)] == ["audit.accept_restore"]
    database.close()


def test_what_is_no_format_is_named(data: Path) -> None:
    done = run(data, "export", "--format", "csv")
    assert done.exit_code == 2 and "exported as jsonl" in done.stderr


def test_what_follows_an_acceptance_is_vouched_for_again(data: Path, tmp_path: Path) -> None:
    kept = backed_up(data, tmp_path)
    shutil.copy(kept / "control.db", data / "control.db")
    assert run(data, "accept-restore", "--reason", "a drill").exit_code == 0
    database = ControlDatabase(f"sqlite:///{data / 'control.db'}")
    signer = AuditSigner.of(SecretFiles(data / "secrets"))
    witness = AuditWitness(database, audit_root(data) / "control", signer, AuditOptions())
    assert asyncio.run(witness.look()) == 1, "the acceptance's own entry in the database"
    witness.close()
    database.close()
    fault = wrong(data, "DELETE FROM audit WHERE id = 6")
    assert fault["entry"] == 6 and "is gone" in fault["what"]


def test_what_no_backup_explains_is_not_accepted(data: Path, tmp_path: Path) -> None:
    wrong(data, "UPDATE audit SET actor = 'eve' WHERE id = 3")
    done = run(data, "accept-restore", "--reason", "honestly a backup")
    assert done.exit_code == 2 and "a restore cannot be the cause" in done.stderr
    path = audit_root(data) / "gateway" / segment_names(audit_root(data) / "gateway")[0]
    path.unlink()
    assert "gateway does not verify" in run(data, "accept-restore", "--reason", "a backup").stderr


def test_chains_of_a_backup_verify_beside_a_restored_database_and_the_sink(data: Path, tmp_path: Path) -> None:
    sink = str(tmp_path / "sink")
    kept = backed_up(data, tmp_path / "kept")
    signer = AuditSigner.of(SecretFiles(data / "secrets"))
    chain = AuditChain(audit_root(data) / "gateway", "gw:1", signer)
    chain.append(KIND_REQUEST, request_facts())
    chain.rotate()
    chain.close()
    assert run(data, "ship", "--sink", sink).exit_code == 0
    shutil.rmtree(audit_root(data))
    shutil.copy(kept / "control.db", data / "control.db")
    assert restore_chains(kept / "audit", audit_root(data), "now") == ["control.restored-now", "gateway.restored-now"]
    assert verified(data)[0] == 0
    assert verified(data, "--sink", sink)[0] == 1, "the sink has what the backup has not"
    done = run(data, "accept-restore", "--reason", "a lost machine", "--sink", sink)
    assert done.exit_code == 0 and "gw:1/" in done.stdout
    assert verified(data, "--sink", sink)[0] == 0
    shutil.rmtree(audit_root(data) / "gateway.restored-now")
    assert verified(data, "--sink", sink)[0] == 1, "up to where it was accepted to end, it is missed"
    assert run(data, "accept-restore", "--reason", "and the copy too", "--sink", sink).exit_code == 0
    assert verified(data, "--sink", sink)[0] == 0


def test_a_control_database_that_is_gone_is_not_made_anew(data: Path) -> None:
    (data / "control.db").unlink()
    done = run(data, "verify")
    assert done.exit_code == 2 and "--no-database" in done.stderr and not (data / "control.db").exists()
    assert run(data, "verify", "--no-database").exit_code == 0


def test_a_new_installation_is_sound_from_its_first_moment(migrated_sqlite: Path, tmp_path: Path) -> None:
    with announced(migrated_sqlite, tmp_path) as running:
        environment = {"TOLLKEEPER_DATABASE_URL": f"sqlite:///{tmp_path / 'control.db'}"}
        for _ in range(2):  # while the control plane is starting, or has just written its first checkpoint
            done = CliRunner().invoke(app, ["audit", "verify", "--data", str(running)], env=environment)
            assert done.exit_code == 0, done.output
    done = CliRunner().invoke(app, ["audit", "verify", "--data", str(running)], env=environment)
    assert done.exit_code == 0 and "control database: " in done.stdout, done.output


def test_a_file_that_cannot_be_read_is_named_without_a_trace(data: Path) -> None:
    directory = audit_root(data) / "gateway"
    path = directory / segment_names(directory)[0]
    path.unlink()
    path.mkdir()
    done = run(data, "verify", "--no-database")
    assert done.exit_code == 2 and str(path) in done.stderr.replace("\n", "") and "Traceback" not in done.output


def test_a_restored_copy_beside_its_chain_is_not_taken_for_it(data: Path, tmp_path: Path) -> None:
    sink = str(tmp_path / "sink")
    kept = backed_up(data, tmp_path / "kept")
    chain = AuditChain(audit_root(data) / "gateway", "gw:1", AuditSigner.of(SecretFiles(data / "secrets")))
    chain.append(KIND_REQUEST, request_facts())
    chain.rotate()
    chain.close()
    assert run(data, "ship", "--sink", sink).exit_code == 0
    restore_chains(kept / "audit", audit_root(data), "now")
    status, found = verified(data, "--sink", sink)
    assert status == 0, found


def test_nothing_is_accepted_while_a_control_plane_writes(data: Path, tmp_path: Path) -> None:
    kept = backed_up(data, tmp_path)
    shutil.copy(kept / "control.db", data / "control.db")
    chain = AuditChain(audit_root(data) / "control", "control", AuditSigner.of(SecretFiles(data / "secrets")))
    done = run(data, "accept-restore", "--reason", "a drill")
    chain.close()
    assert done.exit_code == 2 and "another process writes" in done.stderr
    assert verified(data)[0] == 1


@pytest.mark.parametrize("words", [("key",), ("cut", "--before", "2026-11-01")])
def test_no_key_is_made_beside_chains_that_have_one(data: Path, words: tuple[str, ...]) -> None:
    (data / "secrets" / "audit_signing_key").unlink()
    done = run(data, *words)
    assert done.exit_code == 2 and "audit_signing_key" in done.stderr.replace("\n", "")
    assert not (data / "secrets" / "audit_signing_key").exists()


def test_after_a_change_of_leader_the_other_s_chain_is_read_from_the_sink_that_both_share(
    data: Path, tmp_path: Path
) -> None:
    """Two control planes, each with its own data directory: the second leads after the first is lost."""
    sink, second = tmp_path / "sink", tmp_path / "second"
    second.mkdir()
    shutil.copytree(data / "secrets", second / "secrets")
    signer, options = AuditSigner.of(SecretFiles(data / "secrets")), AuditOptions(str(sink))
    database = ControlDatabase(f"sqlite:///{data / 'control.db'}")

    async def led(place: Path, number: int) -> None:
        """Lead: name the chain in the database, vouch for a change, finish the segment and send it."""
        witness = AuditWitness(database, audit_root(place) / "control", signer, options)
        witness.begin()
        with database.session() as session:
            begin_change(session, AUTHOR, "key.create", f"acme/led_{number}", {})
        await witness.look()
        witness._opened()[0].rotate()
        await witness.look()
        witness.close()

    asyncio.run(led(data, 1))
    asyncio.run(led(second, 2))
    database.close()
    url = f"sqlite:///{data / 'control.db'}"

    def looked_at(*words: str) -> tuple[int, dict[str, Any]]:
        found = CliRunner().invoke(
            app, ["audit", "verify", "--json", "--data", str(second), *words], env={"TOLLKEEPER_DATABASE_URL": url}
        )
        return found.exit_code, json.loads(found.stdout)

    status, found = looked_at()
    (fault,) = [place["fault"] for place in found["places"] if place["fault"]]
    assert status == 1 and "is gone" in fault["what"], "alone, the second does not have the first's chain"
    status, found = looked_at("--sink", str(sink), "--shared-sink")
    assert status == 0 and found["is_sound"], found
    with sqlite3.connect(data / "control.db") as changed:
        for statement in ("DROP TRIGGER audit_keeps_entries", "DROP TRIGGER audit_loses_none"):
            changed.execute(statement)
        changed.execute("DELETE FROM audit WHERE id = (SELECT max(id) FROM audit)")
    changed.close()
    status, found = looked_at("--sink", str(sink), "--shared-sink")
    assert status == 1 and not found["is_sound"], "an end that was cut is still found"
