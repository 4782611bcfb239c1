"""The components of a gateway that depend on its settings."""

from collections.abc import Callable
from dataclasses import replace
from random import random
from typing import TYPE_CHECKING

from backends.audit.options import audit_root
from backends.secrets.installation_id import installation_id
from backends.secrets.secret_files import SecretFiles
from contracts.errors import ConfigurationError, ControlUnavailable
from contracts.recording.ids import uuid7
from contracts.serving.configuration import Snapshot
from gateway.config.directory import SnapshotSource
from gateway.config.file import FileSource
from gateway.identity.abuse.incidents import IncidentBook
from gateway.identity.abuse.service import AbuseService
from gateway.identity.caller_address import TrustedProxies
from gateway.limits.budgets.budget_watch import BudgetWatch
from gateway.limits.counters.memory_store import MemoryStore
from gateway.limits.counters.window_file import WindowFile
from gateway.process.settings import GatewaySettings
from gateway.records.request_audit import RequestAudit
from gateway.request.clock import Clock
from gateway.routing.health.health_book import HealthBook
from gateway.routing.health.shared_health import HealthService, SharedHealth
from gateway.routing.rollouts.boards import FileBoard, RolloutBoard
from gateway.wire.exchange import Exchange

if TYPE_CHECKING:
    from backends.counters.shared_answers import SharedAnswers
    from backends.mcp.token_store import TokenStore
    from gateway.limits.budgets.budget_publisher import BudgetPublisher
    from gateway.limits.counters.redis_store import RedisStore
    from gateway.records.tracing import SpanEmitter


def key_pepper(settings: GatewaySettings, secrets: SecretFiles) -> bytes:
    """Return the pepper of key digests, created if the installation is new.

    While the control database is unreachable, the existing file is used: a stored snapshot is signed with it. Raises
    ConfigurationError if it is not the one that the database knows, ControlUnavailable if there is none.
    """
    if settings.gateway_config is None:
        from backends.control.database import ControlDatabase  # here: as below
        from backends.control.known_secrets import KEY_PEPPER, check_secrets

        database = ControlDatabase(settings.database_address)
        try:
            database.check_schema()
            check_secrets(database, secrets, (KEY_PEPPER,))
        except ControlUnavailable:
            if secrets.get(KEY_PEPPER) is None:
                raise
        finally:
            database.close()
    return secrets.get_or_create("key_pepper").encode()


def source_of(settings: GatewaySettings, pepper: bytes) -> tuple[SnapshotSource, Snapshot, float | None]:
    """Return the source of snapshots, the first one, and for how many seconds its source has not been seen.

    That is `None` if the source itself returned it. The last snapshot of a database on another machine is stored in the
    data directory. Raises ConfigurationError, ControlUnavailable.
    """
    if settings.gateway_config is not None:
        file = FileSource(settings.gateway_config, pepper)
        return file, file.load(), None
    from gateway.config.database_source import (
        DatabaseSource,  # here: the edge deployment runs without SQLAlchemy in memory
    )

    keeper = None
    if not settings.database_address.startswith("sqlite"):  # a file is there, or so is nothing of the directory
        from backends.control.kept_snapshot import SnapshotKeeper

        keeper = SnapshotKeeper(settings.own("snapshot"), pepper)
    database = DatabaseSource(settings.database_address, keeper)
    first = database.load()
    return database, first, database.kept_age_seconds


def budget_publisher(settings: GatewaySettings, name: str) -> "BudgetPublisher | None":
    """Return the publisher of budgets to the control database; `None` if there is none."""
    if settings.gateway_config is not None:
        return None
    from gateway.limits.budgets.budget_publisher import (
        BudgetPublisher,  # here: the edge deployment runs without SQLAlchemy in memory
    )

    return BudgetPublisher(settings.database_address, name)


def rollout_board(settings: GatewaySettings, name: str) -> RolloutBoard:
    """Return where gateways share rollouts: the control database, or for a single gateway a file."""
    if settings.gateway_config is not None:
        return FileBoard(settings.own("rollouts.json"))
    from gateway.routing.rollouts.database_board import DatabaseBoard  # here: as above

    return DatabaseBoard(settings.database_address, name)


def abuse_service(settings: GatewaySettings, clock: Clock) -> AbuseService:
    """Return the service that reports abuse: to the control database, or to the log if there is none."""
    book = IncidentBook(settings.name, uuid7)
    if settings.gateway_config is not None:
        return AbuseService(book, clock, None)
    from gateway.identity.abuse.publisher import (
        IncidentPublisher,  # here: the edge deployment runs without SQLAlchemy in memory
    )

    return AbuseService(book, clock, IncidentPublisher(settings.database_address))


def counter_store(settings: GatewaySettings, name: str, watch: BudgetWatch, clock: Clock) -> "MemoryStore | RedisStore":
    """Return the store of limit and budget counters: in this process, or in Redis."""
    if not settings.redis_url:
        return MemoryStore(watch.on_settled, watch.on_settled_late, clock=clock.steady_ns)
    from gateway.limits.counters.redis_store import RedisStore  # here: one gateway alone needs no client

    own = installation_id(SecretFiles(settings.data / "secrets"))
    return RedisStore(
        replace(settings.redis_address, installation=own),
        name,
        on_settled=watch.on_settled,
        on_settled_late=watch.on_settled_late,
        expected_gateways=settings.workers,
        wall_ns=clock.steady_ns,
    )


def health_service(settings: GatewaySettings, name: str, clock: Clock) -> HealthService:
    """Return the service that maintains the health of targets: alone, or shared with other gateways through Redis."""
    book = HealthBook(clock, random)
    if not settings.redis_url:
        return HealthService(book, None)
    from backends.counters.message_store import MessageStore  # here: one gateway alone needs no client

    board = MessageStore(settings.redis_address, "away")
    return HealthService(book, SharedHealth(book, board, name, clock))


def shared_answers(settings: GatewaySettings, secret: bytes) -> "SharedAnswers | None":
    """Return the answers that gateways share in Redis; `None` if each has its own. `secret` is what seals them."""
    if not settings.answer_cache_redis_url:
        return None
    from backends.counters.shared_answers import SharedAnswers  # here: one gateway alone needs no client

    return SharedAnswers(settings.answers_address, secret, settings.answer_cache_tenant_max_bytes)


def caller_address(settings: GatewaySettings) -> Callable[[Exchange], str]:
    """Return the function that determines a caller's address, considering trusted proxies."""
    proxies = TrustedProxies(settings.trusted_proxies)

    def address_of(exchange: Exchange) -> str:
        return proxies.text_of(exchange.address, exchange.header(b"x-forwarded-for"))

    return address_of


def request_audit(settings: GatewaySettings) -> RequestAudit:
    """Return the audit of requests, for tenants that enable it; its chain starts with the first of them."""
    chain = "gateway" if settings.worker == 1 else f"gateway-{settings.worker}"
    secrets = SecretFiles(settings.data / "secrets")
    root = audit_root(settings.data) / chain
    return RequestAudit(root, settings.name, secrets, settings.audit_options, caller_address(settings))


def sealed_opener(settings: GatewaySettings) -> Callable[[str], str] | None:
    """Return the decryption of stored provider keys; `None` without a control database."""
    if settings.gateway_config is not None:
        return None
    secrets = SecretFiles(settings.data / "secrets")

    def open_sealed(token: str) -> str:
        from backends.control.sealer import Sealer  # here: most gateways have no such key, and need no cryptography

        sealer = Sealer.existing(secrets)
        if sealer is None:
            raise ConfigurationError(
                "stored keys of providers are opened with the control plane's sealing key; set TOLLKEEPER_SEALING_KEYS "
                "or share its secrets directory"
            )
        return sealer.open(token)

    return open_sealed


def token_store(settings: GatewaySettings) -> "TokenStore":
    """Return the store of MCP servers' tokens: in the control database, or in this machine's secret files."""
    secrets = SecretFiles(settings.data / "secrets")
    if settings.gateway_config is not None:
        from backends.mcp.token_store import FileTokenStore

        return FileTokenStore(secrets)
    from backends.control.mcp_tokens import DatabaseTokenStore  # here: as above

    return DatabaseTokenStore(settings.database_address, settings.name, secrets)


def window_file(
    settings: GatewaySettings, store: "MemoryStore | RedisStore", first: Snapshot, clock: Clock
) -> WindowFile | None:
    """Return the file with this process's limit windows, already read; `None` if Redis stores the windows."""
    if not isinstance(store, MemoryStore):
        return None
    file = WindowFile(settings.own("windows.msgpack"), store.windows, clock.steady_ns)
    file.restore(store.open_window, first.limits)
    return file


def span_emitter(settings: GatewaySettings, name: str) -> "SpanEmitter | None":
    """Return the exporter of every request's spans; `None` if tracing is off."""
    if not settings.tracing or not settings.ships_to:
        return None
    from gateway.records.span_exporter import (
        SpanExporter,  # here: the SDK costs memory that a gateway without tracing keeps
    )
    from gateway.records.tracing import SpanEmitter

    return SpanEmitter(SpanExporter(settings.ships_to, settings.tracing_max_spans), name)
