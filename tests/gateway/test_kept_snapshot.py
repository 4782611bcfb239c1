"""A gateway that starts while the control database is away serves by the snapshot that it kept."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from backends.control import keys, organisation, serving
from backends.control.database import ControlDatabase
from backends.control.kept_snapshot import SnapshotKeeper
from backends.control.keys import KeyRequest
from backends.control.serving import NewTarget
from backends.secrets.secret_files import SecretFiles
from contracts.errors import ControlUnavailable
from gateway.config.file import FileSource
from gateway.process.app import Gateway
from gateway.process.settings import GatewaySettings
from tests.file_size import no_file_beyond
from tests.gateway.conftest import KEY, Running
from tests.gateway.control.test_configuration_graphs import same
from tests.gateway.test_stored_keys import author

OTHER_KEY = "tk-" + "C" * 43
EVERYTHING = """
keys:
  - {key: tk-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA, tenant: acme, team: search, models: [m]}
tenants: [{id: acme, weight: 3, keeps_content: true}]
pools:
  - name: p
    policy: cost
    queue: {max_in_flight: 4}
    failures: {retries: 2, breaker: {}}
    targets:
      - {name: a, kind: scripted, region: eu, provider: openai}
      - {name: b, kind: openai_http, url: "http://10.0.0.1/v1", model: x, weight: 2, settings: {headers: {x-a: b}}}
  - {name: q, targets: [{name: c, kind: scripted}]}
models:
  - {name: m, pool: p, context_tokens: 8000, defaults: {temperature: 0.5, seed: 7}, cache: {ttl_seconds: 60}}
  - {name: n, pool: q}
routes:
  - {name: front, choose: [{model: m, weight: 3}], fallbacks: [{model: n}]}
rollouts: [{name: try, route: front, incumbent: m, candidate: n, percent: 10}]
playbooks: [{provider: openai}]
prices:
  - {model: m, version: m/1, usd_per_mtok: {input_text: "0.15", output_text: "0.6"}, usd_per_request: "0.001"}
limits: [{id: l, tenant: acme, level: tenant, metric: tokens, window: minute, amount: 5}]
budgets: [{id: b, tenant: acme, level: key, subject: "*", period: month, amount_usd: "5", thresholds: [50]}]
issuers: [{issuer: "https://id.example", audience: tollkeeper, tenant: acme}]
guardrails: [{name: g, stages: [{name: pii, detector: pii, direction: both, action: redact}]}]
mcp_servers: [{name: tools, url: "https://tools.example/mcp"}]
tool_rules: [{name: r, effect: deny, tools: ["tools_x"], tenant: acme}]
"""


def keeper(folder: Path, secret: bytes = b"secret") -> SnapshotKeeper:
    return SnapshotKeeper(folder, secret)


def test_everything_that_a_gateway_serves_by_is_kept(tmp_path: Path) -> None:
    (tmp_path / "gateway.yaml").write_text(EVERYTHING)
    snapshot = FileSource(tmp_path / "gateway.yaml", b"pepper").load(7)
    assert all(
        getattr(snapshot, name) for name in snapshot.__dataclass_fields__ if name not in ("misconfigured", "holds")
    )
    kept = keeper(tmp_path / "snapshot")
    assert kept.read() is None
    kept.keep(snapshot)
    kept.seen()
    found = keeper(tmp_path / "snapshot").read()
    assert found is not None and same(found.snapshot, snapshot)
    assert (tmp_path / "snapshot" / "configuration").stat().st_mode & 0o777 == 0o600


def test_what_is_not_signed_or_was_changed_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "gateway.yaml").write_text(EVERYTHING)
    source = FileSource(tmp_path / "gateway.yaml", b"pepper")
    folder = tmp_path / "snapshot"
    first = keeper(folder)
    first.keep(source.load(7))
    first.seen()
    assert keeper(folder, b"another").read() is None
    assert "not signed with this installation's secret" in caplog.text
    older = tmp_path / "older"
    shutil.copytree(folder, older)
    later = keeper(folder)
    later.keep(source.load(8))
    later.seen()
    assert keeper(folder).read() is not None
    shutil.copy(older / "configuration", folder / "configuration")  # an older one, well signed
    assert keeper(folder).read() is None
    content = bytearray((older / "configuration").read_bytes())
    for place in (0, 31, 32, len(content) - 1):
        content[place] ^= 1
        (older / "configuration").write_bytes(content)
        assert keeper(older).read() is None
        content[place] ^= 1
    (older / "configuration").write_bytes(content)
    assert keeper(older).read() is not None
    (older / "configuration").write_bytes(content[:20])
    assert keeper(older).read() is None


def test_a_process_that_ends_between_the_two_writings_leaves_the_newer_snapshot(tmp_path: Path) -> None:
    (tmp_path / "gateway.yaml").write_text(EVERYTHING)
    source, now, folder = FileSource(tmp_path / "gateway.yaml", b"pepper"), [1000.0], tmp_path / "snapshot"

    def timed() -> SnapshotKeeper:
        return SnapshotKeeper(folder, b"secret", wall=lambda: now[0], monotonic=lambda: now[0])

    def revision_and_age() -> tuple[int, float]:
        found = timed().read()
        assert found is not None
        return found.snapshot.revision, found.age_seconds

    kept = timed()
    kept.keep(source.load(1))
    kept.seen()
    seen = (folder / "seen").read_bytes()
    (folder / "seen").unlink()
    now[0] += 3
    assert revision_and_age() == (1, 3.0), "the first that was ever kept"
    kept.keep(source.load(2))
    now[0] += 7
    kept.seen()
    (folder / "seen").write_bytes(seen)
    now[0] += 4
    assert revision_and_age() == (2, 4.0)
    now[0] = 999.0
    later = timed()
    later.keep(source.load(3))
    later.seen()
    (folder / "seen").write_bytes(seen)
    assert timed().read() is None, "by its own time it is older than what the database has said"


def test_it_is_written_at_intervals_and_its_age_is_that_of_the_last_look(tmp_path: Path) -> None:
    (tmp_path / "gateway.yaml").write_text(EVERYTHING)
    source, now = FileSource(tmp_path / "gateway.yaml", b"pepper"), [1000.0]

    def timed() -> SnapshotKeeper:
        return SnapshotKeeper(tmp_path / "snapshot", b"secret", wall=lambda: now[0], monotonic=lambda: now[0])

    def revision_and_age() -> tuple[int, float]:
        found = timed().read()
        assert found is not None
        return found.snapshot.revision, round(found.age_seconds, 6)

    kept = timed()
    kept.keep(source.load(1))
    kept.seen()
    kept.keep(source.load(2))
    now[0] += 4.9
    kept.seen()
    assert revision_and_age() == (1, 4.9)
    now[0] += 0.11
    kept.seen()
    assert revision_and_age() == (2, 0.0)
    now[0] += 19.9
    kept.seen()
    assert revision_and_age() == (2, 19.9)
    now[0] += 0.11
    kept.seen()
    assert revision_and_age() == (2, 0.0)


def test_a_full_disk_leaves_what_was_kept_and_the_next_is_written_when_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "gateway.yaml").write_text(EVERYTHING)
    source, now = FileSource(tmp_path / "gateway.yaml", b"pepper"), [1000.0]
    kept = SnapshotKeeper(tmp_path / "snapshot", b"secret", wall=lambda: now[0], monotonic=lambda: now[0])

    def revision() -> int:
        found = SnapshotKeeper(tmp_path / "snapshot", b"secret").read()
        assert found is not None
        return found.snapshot.revision

    kept.keep(source.load(1))
    kept.seen()
    kept.keep(source.load(2))
    for _ in range(3):
        now[0] += 6
        with no_file_beyond(200):
            kept.seen()
        assert revision() == 1
    assert [each.message for each in caplog.records].count("snapshot cannot be stored on disk") == 1, (
        "once, not at each try"
    )
    assert {path.name for path in (tmp_path / "snapshot").iterdir()} == {"configuration", "seen"}, "no draft is left"
    now[0] += 6
    kept.seen()
    assert revision() == 2


@pytest.fixture
def database(control_database_url: str) -> Iterator[ControlDatabase]:
    database = ControlDatabase(control_database_url)
    yield database
    database.close()


def close_to_all(url: str, *, is_closed: bool) -> None:
    """Have PostgreSQL take no connection to this database any more, and end those that there are."""
    place, _, name = url.rpartition("/")
    with psycopg.connect(f"{place}/postgres", autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS {not is_closed}".encode())
        if is_closed:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))


@pytest.mark.service
@pytest.mark.parametrize("control_database_url", ["postgresql"], indirect=True)
async def test_a_gateway_starts_while_the_database_is_away(
    control_database_url: str, database: ControlDatabase, upstream: Any, tmp_path: Path, eventually: Any
) -> None:
    upstream.always(upstream.whole(upstream.completion()))
    pepper = SecretFiles(tmp_path / "data" / "secrets").get_or_create("key_pepper").encode()
    with database.session() as session:
        organisation.create_tenant(session, author(), "acme", "Acme")
        keys.create_key(session, author(), KeyRequest(tenant_id="acme", name="k"), KEY, pepper)
        serving.create_pool(session, author(), "pool")
        serving.create_target(session, author(), "pool", NewTarget("t1", "openai_http", url=upstream.url))
        serving.create_model(session, author(), "hosted", "pool")

    async def started(**more: Any) -> Running:
        settings = GatewaySettings(
            data=tmp_path / "data", database_url=control_database_url, gateway_port=0, drain_seconds=0.2, **more
        )
        gateway = Gateway(settings)
        await gateway.start()
        return Running(gateway)

    running = await started()
    assert (await running.chat(model="hosted")).status == 200
    await running.close()
    close_to_all(control_database_url, is_closed=True)
    shutil.copytree(tmp_path / "data" / "snapshot", tmp_path / "kept")
    try:
        running = await started()
        assert (await running.chat(model="hosted")).status == 200
        assert (await running.chat(headers={"Authorization": f"Bearer {OTHER_KEY}"}, model="hosted")).status == 401
        health: Any = running.gateway.health()
        assert "control_away" in health["degraded"]
        await running.close()
        running = await started(stale_keys_seconds=0)
        assert (await running.chat(model="hosted")).status == 503, "for so long keys may be served from memory"
        await running.close()
        shutil.rmtree(tmp_path / "data" / "snapshot")
        with pytest.raises(ControlUnavailable):
            await started()
        shutil.copytree(tmp_path / "kept", tmp_path / "data" / "snapshot")
        running = await started()
    finally:
        close_to_all(control_database_url, is_closed=False)
    with database.session() as session:
        keys.create_key(session, author(), KeyRequest(tenant_id="acme", name="other"), OTHER_KEY, pepper)
    await eventually(lambda: not running.gateway.directory.is_source_away, 30.0)
    for _ in range(100):
        if (
            reply := await running.chat(headers={"Authorization": f"Bearer {OTHER_KEY}"}, model="hosted")
        ).status == 200:
            break
    assert reply.status == 200
    await running.close()
