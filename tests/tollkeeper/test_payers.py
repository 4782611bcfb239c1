"""Who pays for a run: tenants, teams, projects and keys on a real control plane; and which model it asks."""

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
import uvicorn

from backends.secrets.secret_files import SecretFiles
from backends.web.listener import listen
from contracts.access.keys import is_well_formed
from contracts.errors import ConfigurationError
from gateway.control.app import create_app
from gateway.control.settings import ControlSettings
from migrations.database import migrate_database
from tollkeeper.control_client import ControlClient, ControlPlaneRefused
from tollkeeper.replay.payers import Assignment, Payer, Place, create_payers, revoke_payers
from tollkeeper.replay.served_model import ServedModel, choose_model
from tollkeeper.replay.trace import Trace, TraceRequest

MODEL = "scripted-1"


@pytest.fixture
def control(tmp_path: Path) -> Iterator[ControlClient]:
    settings = ControlSettings(data=tmp_path)
    migrate_database(settings.database_address, say=lambda line: None)
    server = uvicorn.Server(uvicorn.Config(create_app(settings), log_config=None))
    listener = listen("127.0.0.1", 0, "TOLLKEEPER_CONTROL_PORT")
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the control plane did not start"
            time.sleep(0.01)
        token = SecretFiles(tmp_path / "secrets").get("admin_token") or ""
        with ControlClient(f"http://127.0.0.1:{listener.getsockname()[1]}", token) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()


def trace_of(*clients: str) -> Trace:
    return Trace("t", "t", tuple(TraceRequest(float(n), 1, 1, client) for n, client in enumerate(clients)))


THREE = Assignment.of(trace_of(""), None).places


def test_three_tenants_with_teams_and_projects_get_a_key_each(control: ControlClient) -> None:
    now = datetime.now(UTC)
    payers = create_payers(control, THREE, MODEL, "run-1", now, lasts_seconds=120.0)
    assert [payer.place.tenant for payer in payers] == ["acme", "globex", "initech"]
    assert all(is_well_formed(payer.secret) for payer in payers)
    for payer in payers:
        (key,) = control.get_all(f"/v1/tenants/{payer.place.tenant}/keys")
        assert (key["team_id"], key["project_id"]) == (payer.place.team, payer.place.project)
        assert key["name"] == "replay run-1"
        assert key["scopes"]["models"] == [MODEL]  # good for nothing else
        lasts = datetime.fromisoformat(key["expires_at"]) - now
        assert lasts == pytest.approx(timedelta(hours=1, seconds=120), abs=timedelta(seconds=1))


def test_keys_are_revoked_with_the_run_and_the_next_run_makes_new_ones(control: ControlClient) -> None:
    first = create_payers(control, THREE, MODEL, "run-1", datetime.now(UTC), 1.0)
    assert revoke_payers(control, first) == ""
    tenants = control.get_all("/v1/tenants")
    second = create_payers(control, THREE, MODEL, "run-2", datetime.now(UTC), 1.0)
    assert control.get_all("/v1/tenants") == tenants
    assert not {payer.secret for payer in first} & {payer.secret for payer in second}
    keys = {key["name"]: key["revoked_at"] for key in control.get_all("/v1/tenants/acme/keys")}
    assert keys["replay run-1"] is not None and keys["replay run-2"] is None


def test_keys_already_made_are_revoked_where_a_later_one_is_refused(control: ControlClient) -> None:
    places = [*THREE, Place("NOT A SLUG", "core", "main")]
    with pytest.raises(ControlPlaneRefused):
        create_payers(control, places, MODEL, "run-1", datetime.now(UTC), 1.0)
    assert all(key["revoked_at"] for key in control.get_all("/v1/tenants/acme/keys"))


def test_keys_that_cannot_be_revoked_are_told_and_expire() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with ControlClient("http://control", "token", httpx.MockTransport(refuse)) as away:
        problem = revoke_payers(away, [Payer(THREE[0], "key_1", "secret")])
    assert problem.startswith("the run's keys were not all revoked, they expire by themselves: the control plane")
    assert "secret" not in problem


@pytest.mark.parametrize(
    ("clients", "tenants", "places"),
    [
        (("",), None, ["acme", "globex", "initech"]),
        (("",), 1, ["acme"]),
        (("",), 5, ["acme", "globex", "initech", "tenant-4", "tenant-5"]),
        (("7", "B c", "7"), None, ["client-7", "client-b-c"]),
        (("7", "8", "9"), 2, ["acme", "globex"]),
    ],
)
def test_places_are_the_trace_s_clients_or_as_many_as_asked(
    clients: tuple[str, ...], tenants: int | None, places: list[str]
) -> None:
    assert [place.tenant for place in Assignment.of(trace_of(*clients), tenants).places] == places


def test_a_client_keeps_its_place_and_others_take_turns() -> None:
    by_client = Assignment.of(trace_of("a", "b", "c"), 2)
    assert [by_client.index(number, client) for number, client in enumerate("abcab")] == [0, 1, 0, 0, 1]
    in_turn = Assignment.of(trace_of(""), 3)
    assert [in_turn.index(number, "") for number in range(5)] == [0, 1, 2, 0, 1]


@pytest.mark.parametrize(("tenants", "is_right"), [(0, False), (1, True), (500, True), (501, False)])
def test_a_run_has_between_one_and_five_hundred_tenants(tenants: int, is_right: bool) -> None:
    if is_right:
        assert len(Assignment.of(trace_of(""), tenants).places) == tenants
    else:
        with pytest.raises(ConfigurationError, match="1 to 500 tenants"):
            Assignment.of(trace_of(""), tenants)


def test_the_built_in_model_goes_before_the_scripted_one(control: ControlClient) -> None:
    assert choose_model(control) == ServedModel(MODEL)
    control.post("/v1/models", {"id": "tollkeeper-5m", "pool": "demo", "context_tokens": 8192})
    assert choose_model(control) == ServedModel("tollkeeper-5m", 8192)
    assert choose_model(control, MODEL) == ServedModel(MODEL)
    assert ServedModel(MODEL).is_scripted and not choose_model(control).is_scripted


def test_a_model_that_may_cost_money_is_never_chosen_by_itself(control: ControlClient) -> None:
    control.post("/v1/models", {"id": "a-hosted-one", "pool": "demo"})
    assert choose_model(control).id == MODEL
    with pytest.raises(ConfigurationError, match="there is no model 'gpt'; the gateway serves: a-hosted-one, scripted"):
        choose_model(control, "gpt")
