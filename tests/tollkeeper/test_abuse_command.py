"""`tollkeeper abuse` against a running control plane: what people type and what they read."""

import json
from datetime import UTC, datetime
from pathlib import Path

from typer.testing import CliRunner

from algorithms.abuse.detection import Detection
from algorithms.abuse.incident import Incident
from backends.control.abuse_incidents import write_incidents
from backends.control.database import ControlDatabase
from contracts.recording.moments import unix_ns
from tollkeeper.cli import app


def _run(data: Path, *words: str, status: int = 0) -> str:
    done = CliRunner().invoke(app, ["abuse", *words, "--data", str(data)])
    assert done.exit_code == status, done.output
    return done.output


def test_incidents_are_listed_and_explained(data: Path) -> None:
    assert "no abuse is open" in _run(data, "list")
    seen = Detection("flood", "throttle", 61, 60, 60, facts={"variants": 2})
    database = ControlDatabase(f"sqlite:///{data.parent / 'control.db'}")
    with database.session() as session:
        write_incidents(session, [Incident.begun("inc-1", "gw", "acme", "", "key_1", seen, unix_ns(datetime.now(UTC)))])
    database.close()
    (row,) = json.loads(_run(data, "list", "--json"))
    assert (row["id"], row["key"], row["kind"], row["is_open"]) == ("inc-1", "key_1", "flood", True)
    assert json.loads(_run(data, "list", "--key", "key_2", "--json")) == []
    said = _run(data, "explain", "inc-1")
    assert said.startswith("key key_1 of acme: 61 nearly identical prompts in a minute, where 60 are allowed.")
    assert json.loads(_run(data, "explain", "inc-1", "--json"))["explanation"][-1].startswith("To end it:")
    assert "does not exist" in _run(data, "explain", "nothing", status=2).replace("\n", " ")
