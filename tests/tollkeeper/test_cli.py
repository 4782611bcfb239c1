"""The command line against a real control plane, and its one-line refusals."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from contracts.access.keys import is_well_formed
from tests.ports import find_free_port, find_free_ports
from tollkeeper.cli import app
from tollkeeper.control_client import ControlClient
from tollkeeper.installation import Installation


def run(*arguments: str, data: Path | None = None) -> Result:
    where = ["--data", str(data)] if data is not None else []
    return CliRunner().invoke(app, [*arguments, *where])


def tollkeeper(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a process of its own, for what handles signals or prints to a real stderr."""
    command = (sys.executable, "-m", "tollkeeper", *arguments)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_key_is_created_listed_and_revoked(data: Path) -> None:
    assert run("tenants", "create", "acme", "--name", "Acme", data=data).exit_code == 0
    created = run("keys", "create", "--tenant", "acme", "--name", "app", data=data)
    assert created.exit_code == 0, created.output
    assert is_well_formed(created.stdout.splitlines()[0])  # alone on its line, so that a script can take it

    listed = json.loads(run("keys", "list", "--tenant", "acme", "--json", data=data).stdout)
    assert [key["name"] for key in listed] == ["app"]
    assert created.stdout.splitlines()[0] not in json.dumps(listed)

    assert listed[0]["id"] in run("keys", "list", "--tenant", "acme", data=data).stdout  # in one piece, in any terminal

    revoked = run("keys", "revoke", listed[0]["id"], "--tenant", "acme", data=data)
    assert revoked.exit_code == 0 and "revoked at" in revoked.stdout
    shown = json.loads(run("keys", "list", "--tenant", "acme", "--json", data=data).stdout)
    assert shown[0]["revoked_at"]


def test_a_rotated_key_keeps_its_id_and_its_scopes_and_shows_another_secret(data: Path) -> None:
    scopes = ("--address", "10.0.0.0/8", "--priority", "batch", "--max-thinking-tokens", "500")
    made = json.loads(run("keys", "create", "--tenant", "demo", "--name", "app", *scopes, "--json", data=data).stdout)
    wanted = {"addresses": ["10.0.0.0/8"], "priority": "batch", "max_thinking_tokens": 500}
    assert {name: made["scopes"][name] for name in wanted} == wanted

    rotate = ("keys", "rotate", made["id"], "--overlap-seconds")
    rotated = json.loads(run(*rotate, "3600", "--json", data=data).stdout)
    assert (rotated["id"], rotated["scopes"]) == (made["id"], made["scopes"])
    assert is_well_formed(rotated["secret"]) and rotated["secret"] != made["secret"]

    said = run(*rotate, "0", data=data)
    assert is_well_formed(said.stdout.strip())  # alone on stdout, so that a script can take it
    assert "the former secret no longer works" in said.stderr


def test_a_name_of_dots_reaches_nothing_above_the_keys(data: Path) -> None:
    assert run("keys", "revoke", "..", "--tenant", "demo", data=data).exit_code == 2
    (demo,) = json.loads(run("tenants", "list", "--json", data=data).stdout)
    assert demo["is_active"]


def test_tenants_are_listed_for_people_and_for_machines(data: Path) -> None:
    assert run("tenants", "create", "acme", "--name", "[bold]Acme", data=data).exit_code == 0
    table = run("tenants", "list", data=data).stdout
    assert "[bold]Acme" in table and "demo" in table
    rows = json.loads(run("tenants", "list", "--json", data=data).stdout)
    assert {row["id"]: row["is_active"] for row in rows} == {"acme": True, "demo": True}


def test_json_of_a_created_key_holds_its_secret_once(data: Path) -> None:
    created = json.loads(run("keys", "create", "--tenant", "demo", "--name", "app", "--json", data=data).stdout)
    assert is_well_formed(created["secret"])
    assert created["tenant_id"] == "demo"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tenants", "create", "Acme Corp"), "id is 'Acme Corp'"),
        (("tenants", "create", "demo"), "tenant 'demo' exists already"),
        (("keys", "create", "--tenant", "nobody", "--name", "x"), "tenant 'nobody' does not exist"),
        (("keys", "create", "--tenant", "demo", "--name", "x", "--expires-at", "tomorrow"), "expires_at is 'tomorrow'"),
        (("keys", "create", "--tenant", "demo", "--name", "x", "--model", "gpt"), "models names 'gpt'"),
        (("keys", "list", "--tenant", "../models"), "no such path"),
        (("keys", "revoke", "key_none", "--tenant", "demo"), "no key 'key_none'"),
        (("keys", "revoke", "..", "--tenant", "demo"), "no key '..'"),
        (("keys", "rotate", "key_none", "--tenant", "demo", "--overlap-seconds", "0"), "no key 'key_none'"),
        (("keys", "rotate", "key_none", "--tenant", "demo", "--overlap-seconds", "-1"), "overlap_seconds is -1"),
        (("keys", "rotate", "tk-" + "a" * 43, "--tenant", "demo", "--overlap-seconds", "0"), "a key's secret, not"),
        (("keys", "create", "--tenant", "demo", "--name", "x", "--address", "lan"), "addresses names 'lan'"),
        (("keys", "create", "--tenant", "demo", "--name", "x", "--max-thinking-tokens", "many"), "max_thinking_tokens"),
        (("keys", "revoke", "tk-" + "a" * 43, "--tenant", "demo"), "a key's secret, not its id"),
    ],
)
def test_a_refusal_is_the_control_planes_own_sentence(
    refusing_data: Path, arguments: tuple[str, ...], words: str
) -> None:
    refused = run(*arguments, data=refusing_data)
    assert refused.exit_code == 2
    assert words in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert "a" * 43 not in refused.output


def test_without_a_running_control_plane_the_remedy_is_named(data: Path) -> None:
    closed = f"http://127.0.0.1:{find_free_port()}"
    refused = run("tenants", "list", "--control-url", closed, data=data)
    assert refused.exit_code == 2
    assert f"does not answer at {closed}; start it with `tollkeeper up`" in refused.stderr


@pytest.mark.parametrize("url", ["nonsense", "localhost:8081", "http://", "ftp://127.0.0.1", "http://[::1"])
def test_an_address_that_is_no_url_is_called_so(data: Path, url: str) -> None:
    refused = run("tenants", "list", "--control-url", url, data=data)
    assert refused.exit_code == 2
    assert f"{url!r} is not a URL; it looks like http://" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_without_an_installation_the_remedy_is_named(tmp_path: Path) -> None:
    refused = run("keys", "list", "--tenant", "demo", data=tmp_path / "nowhere")
    assert refused.exit_code == 2
    assert "has no admin token; run `tollkeeper up` once" in refused.stderr
    assert not (tmp_path / "nowhere").exists()


def test_the_doctor_prints_one_json_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOLLKEEPER_STORE_URL", "http://127.0.0.1:1")
    examined = run("doctor", "--json", "--port-base", "25000", data=tmp_path)
    report = json.loads(examined.stdout)
    assert examined.exit_code == (0 if report["ok"] else 1)
    assert "python" in {check["name"] for check in report["checks"]}
    assert "python" in run("doctor", "--port-base", "25000", data=tmp_path).stdout


def test_up_refuses_a_held_directory_a_held_port_and_a_file_in_one_line(tmp_path: Path) -> None:
    installation = Installation(tmp_path / "data")
    installation.prepare()
    with installation.locked():
        held = tollkeeper("up", "--data", str(installation.data), "--port-base", "26000")
    assert (held.returncode, held.stderr.count("\n")) == (2, 1)
    assert f"runs already on {installation.data} (pid {os.getpid()})" in held.stderr

    port = find_free_ports(12)[0]  # as many as are shifted, so that nobody else holds another of them
    with socket.create_server(("127.0.0.1", port)):
        taken = tollkeeper("up", "--data", str(installation.data), "--port-base", str(port))
    assert (taken.returncode, taken.stderr.count("\n")) == (2, 1)
    assert f"port {port} (" in taken.stderr and f"(pid {os.getpid()})" in taken.stderr
    assert "--port-base" in taken.stderr

    (tmp_path / "file").write_text("")
    unwritable = tollkeeper("up", "--data", str(tmp_path / "file"), "--port-base", "26000")
    assert (unwritable.returncode, unwritable.stderr.count("\n")) == (2, 1)
    assert "is not writable" in unwritable.stderr


def test_the_version_is_printed() -> None:
    assert run("version").stdout.strip() == "0.1.0"


def test_the_command_line_uses_the_token_that_its_caller_has(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOLLKEEPER_ADMIN_TOKEN", "tk-admin-of-finance")
    with ControlClient.of_installation(data, "http://127.0.0.1:1") as client:
        assert client._client.headers["authorization"] == "Bearer tk-admin-of-finance"
