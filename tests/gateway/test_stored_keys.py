"""Providers' keys from the control database: sealed there, opened where they are used, another one within a second."""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from backends.control import keys, organisation, serving
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.keys import KeyRequest
from backends.control.sealer import KEY_FILE, Sealer
from backends.control.serving import NewTarget
from backends.control.stored_keys import put_key, reseal_all
from backends.providers.credentials import Credentials
from backends.secrets.secret_files import SecretFiles
from contracts.errors import ConfigurationError, TargetMisconfigured
from gateway.config.targets import resolve_key
from gateway.process.app import Gateway
from gateway.process.settings import GatewaySettings
from tests.gateway.conftest import KEY, Running

FIRST, SECOND = "sk-first-0123456789", "sk-second-0123456789"


class Installation:
    """A data directory with its database, as the control plane writes it."""

    def __init__(self, data: Path, upstream: Any) -> None:
        self.data = data
        self.url = f"sqlite:///{data / 'control.db'}"
        self.database = ControlDatabase(self.url)
        self.secrets = SecretFiles(data / "secrets")
        self.sealer = Sealer.of(self.secrets)
        pepper = self.secrets.get_or_create("key_pepper").encode()
        self.store(FIRST)
        with self.database.session() as session:
            organisation.create_tenant(session, author(), "acme", "Acme")
            keys.create_key(session, author(), KeyRequest(tenant_id="acme", name="k"), KEY, pepper)
            serving.create_pool(session, author(), "pool")
            target = NewTarget("t1", "openai_http", url=f"{upstream.url}", key_ref="stored:hosted")
            serving.create_target(session, author(), "pool", target)
            serving.create_model(session, author(), "hosted", "pool")

    def store(self, value: str) -> None:
        with self.database.session() as session:
            put_key(session, author(), "hosted", value, self.sealer)

    def ask(self, **fields: Any) -> bytes:
        return Running.request(model="hosted", **fields)


def author() -> Author:
    return Author("ada", datetime.now(UTC))


@pytest.fixture
def installed(migrated_sqlite: Path, tmp_path: Path, upstream: Any) -> Any:
    data = tmp_path / "data"
    data.mkdir()
    shutil.copy(migrated_sqlite, data / "control.db")
    made = Installation(data, upstream)
    yield made
    made.database.close()


@pytest.fixture
async def gateway(installed: Installation) -> Any:
    settings = GatewaySettings(
        data=installed.data, database_url=installed.url, gateway_port=0, collector_url="", drain_seconds=0.2
    )
    process = Gateway(settings)
    await process.start()
    running = Running(process)
    yield running
    await running.close()


def sent(upstream: Any) -> list[str]:
    return [request.headers["authorization"].replace("Bearer", "bearer") for request in upstream.requests]


async def test_a_changed_key_is_used_at_the_next_revision_and_calls_under_way_end_well(
    installed: Installation, gateway: Running, upstream: Any, eventually: Any
) -> None:
    upstream.then(
        upstream.stream_head(),
        upstream.piece(upstream.chunk("one ")),
        0.5,
        upstream.piece(upstream.chunk(finish="stop")) + upstream.piece(upstream.event(b"[DONE]")) + upstream.END,
    )
    upstream.always(upstream.whole(upstream.completion()))
    client = await gateway.connect()
    await client.send(installed.ask(stream=True))
    await client.head()
    installed.store(SECOND)
    await gateway.gateway.directory.refresh()
    assert (await gateway.ask(installed.ask())).status == 200
    assert sent(upstream) == [f"bearer {FIRST}", f"bearer {SECOND}"]
    await eventually(lambda: len(gateway.requests()) == 2)
    assert [record.outcome for record in gateway.requests()] == ["ok", "ok"]


async def test_a_rotation_of_what_seals_them_needs_no_restart(
    installed: Installation, gateway: Running, upstream: Any
) -> None:
    upstream.always(upstream.whole(upstream.completion()))
    assert (await gateway.ask(installed.ask())).status == 200
    rotated = Sealer.of(SecretFiles(installed.data / "other"))
    newer = SecretFiles(installed.data / "other").get(KEY_FILE) or ""
    installed.secrets.replace(KEY_FILE, f"{newer}\n{installed.secrets.get(KEY_FILE)}")
    installed.sealer.refresh()
    with installed.database.session() as session:
        assert reseal_all(session, author(), installed.sealer)["stored_keys"] == 1
    installed.secrets.replace(KEY_FILE, newer)
    await gateway.gateway.directory.refresh()
    assert (await gateway.ask(installed.ask())).status == 200
    assert sent(upstream) == [f"bearer {FIRST}"] * 2
    spec = gateway.gateway.directory.snapshot.pools["pool"].targets[0]
    assert rotated.open(spec.key_ref.rpartition(":")[2]) == FIRST


async def test_the_key_is_nowhere_but_sealed(installed: Installation, gateway: Running, upstream: Any) -> None:
    upstream.always(upstream.whole(upstream.completion()))
    await gateway.ask(installed.ask())
    for path in installed.data.rglob("*"):
        if path.is_file():
            assert FIRST.encode() not in path.read_bytes(), path
    assert FIRST not in str(gateway.gateway.directory.snapshot.pools) + str(gateway.gateway.health())


async def test_a_key_that_cannot_be_opened_is_named_and_others_are_served(
    installed: Installation, upstream: Any
) -> None:
    (installed.data / "secrets" / KEY_FILE).unlink()
    SecretFiles(installed.data / "secrets").get_or_create(KEY_FILE)
    settings = GatewaySettings(
        data=installed.data, database_url=installed.url, gateway_port=0, collector_url="", drain_seconds=0.2
    )
    process = Gateway(settings)
    await process.start()
    broken = process.health()["misconfigured_targets"]
    await process.stop()
    assert isinstance(broken, dict) and list(broken) == ["pool/t1"] and "another key" in str(broken)


def test_a_reference_to_nothing_and_a_process_without_the_key_say_so(tmp_path: Path) -> None:
    sealer = Sealer.of(SecretFiles(tmp_path))
    sealed = f"sealed:hosted:{sealer.seal(FIRST)}"
    assert resolve_key(sealed, sealer.open) == FIRST
    with pytest.raises(ConfigurationError, match="no key 'gone' is stored"):
        resolve_key("stored:gone", sealer.open)
    with pytest.raises(ConfigurationError, match="'stored:hosted' is stored in the control database") as refused:
        resolve_key(sealed)
    assert sealed not in refused.value.message


def test_the_provider_host_opens_what_it_is_sent_and_names_only_the_name(tmp_path: Path) -> None:
    sealer = Sealer.of(SecretFiles(tmp_path))
    sealed = f"sealed:hosted:{sealer.seal(FIRST)}"
    assert Credentials((), {}, sealer.open).resolve(sealed) == FIRST
    stranger = Sealer.of(SecretFiles(tmp_path / "other"))
    for credentials in (Credentials((), {}), Credentials((), {}, stranger.open)):
        with pytest.raises(TargetMisconfigured, match="'stored:hosted'") as refused:
            credentials.resolve(sealed)
        assert sealed not in refused.value.message
