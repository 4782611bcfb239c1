"""Builds the control plane's HTTP: tenants to keys, models, pools, prices, and the page that documents them."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Final

from fastapi import Depends, FastAPI

from backends.audit.options import audit_root
from backends.audit.signing import AuditSigner
from backends.channels.inward import read_networks
from backends.control.bootstrap import (
    DEMO_MODEL,
    DEMO_TENANT,
    EngineOffer,
    Upstream,
    add_demo,
    add_engine,
    add_upstream,
    is_fresh,
)
from backends.control.changes import Author, read_revision
from backends.control.database import ControlDatabase
from backends.control.known_secrets import KEY_PEPPER, check_secrets, make_secrets, remember_secrets
from backends.control.sealer import Sealer
from backends.engine.embed_order import EMBEDDER_NAME
from backends.engine.settings import EngineHostSettings
from backends.llm.host.engine_address import EngineAddress
from backends.network.detail_access import DetailAccess
from backends.processes.background_check import BackgroundCheck
from backends.secrets.secret_files import SecretFiles
from backends.segment_log.disk_room import WatchedDisk
from backends.web.api_page import install_api_page
from backends.web.body_limit import BodyLimit
from backends.web.replies import install_error_replies
from backends.web.shared_routes import shared_routes
from contracts.access.keys import KEY_PREFIX
from contracts.errors import ConfigurationError, Conflict, TollkeeperError
from gateway.control import (
    abuse,
    accounts,
    alert_channels,
    alert_rules,
    alert_silences,
    alerts,
    audit,
    audit_verification,
    budgets,
    guardrails,
    health,
    issuers,
    keys,
    limits,
    mcp,
    models,
    playbooks,
    pools,
    prices,
    projects,
    rates,
    rollouts,
    routes,
    saved_views,
    self_service,
    sessions,
    slos,
    stored_keys,
    teams,
    tenants,
    tokens,
    unreadable_rows,
)
from gateway.control.access import TokenBook, TokenGate, check_permission
from gateway.control.audit_verification import AuditVerifier, check_with_sink
from gateway.control.audit_witness import AuditWitness
from gateway.control.configuration import api as configuration
from gateway.control.identity_provider import IdentityProvider
from gateway.control.leadership import Leadership
from gateway.control.scim.route import ROUTES as SCIM_ROUTES
from gateway.control.settings import ControlSettings
from gateway.control.sign_in_limit import SignInLimit
from gateway.control.webhooks import WebhookDelivery
from gateway.identity.caller_address import TrustedProxies

log = logging.getLogger(__name__)

_DESCRIPTION = """
Who may use which models, and at what price. Every request needs `Authorization: Bearer <admin token>`; the owner's
is made at the first start, and makes others at `/v1/tokens`, each with a role. A change reaches every gateway within
a second.

Errors have OpenAI's shape: `{"error": {"message", "type", "param", "code"}}`.
"""

_NOUNS: Final = (
    health,
    tenants,
    teams,
    projects,
    keys,
    limits,
    budgets,
    models,
    routes,
    rollouts,
    guardrails,
    mcp,
    pools,
    playbooks,
    prices,
    rates,
    tokens,
    issuers,
    audit,
    stored_keys,
    audit_verification,
    unreadable_rows,
    configuration,
    accounts,
    self_service,
    sessions,
    saved_views,
    slos,
    alert_rules,
    alert_channels,
    alert_silences,
    alerts,
    abuse,
)
_ROUTES: Final = shared_routes([noun.router for noun in _NOUNS], [check_permission])


def create_app(settings: ControlSettings) -> FastAPI:
    """Build the control plane over its database.

    Raises ConfigurationError if the database's schema is missing or newer, the secrets differ from those it was created
    with or cannot be written, a trusted proxy is not a network, or a directory for credentials is not absolute.
    """
    secrets = SecretFiles(settings.data / "secrets")
    rules = settings.reference_rules
    dashboards = TrustedProxies(f"127.0.0.0/8,::1/128,{settings.trusted_proxies}")
    database = ControlDatabase(settings.database_address)
    with ExitStack() as if_it_fails:
        if_it_fails.callback(database.close)
        database.check_schema()
        check_secrets(database, secrets)
        make_secrets(secrets)
        remember_secrets(database, secrets)
        admin_token = secrets.get_or_create("admin_token", prefix="tk-admin-")
        key_pepper = secrets.get_or_create(KEY_PEPPER).encode()
        webhook_secret = secrets.get_or_create("webhook_secret").encode()
        sealer = Sealer.of(secrets)
        signer = AuditSigner.of(secrets)
        leadership = Leadership(database, f"{socket.gethostname()}:{settings.control_port}")
        with contextlib.suppress(TollkeeperError):  # its task tries again, and logs why
            leadership.look()
        witness = AuditWitness(
            database,
            audit_root(settings.data) / "control",
            signer,
            settings.audit_options,
            leads=leadership.leads,
        )
        if_it_fails.callback(witness.close)
        with contextlib.suppress(TollkeeperError):  # its task tries again, and logs why
            witness.begin()  # first, so that the first entry of all names the chain
        _bootstrap(database, settings, secrets, key_pepper)
        if_it_fails.pop_all()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        webhooks = WebhookDelivery(
            database, webhook_secret, inward=read_networks(settings.alerts_inward), sealer=sealer
        )
        running = [asyncio.create_task(one) for one in (webhooks.run(), witness.run(), leadership.run())]
        yield
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await webhooks.close()
        with contextlib.suppress(TollkeeperError):  # what was changed since its last look
            await witness.look()
        witness.close()
        with contextlib.suppress(TollkeeperError):
            leadership.give_back()
        app.state.audit_verifier.close()
        if app.state.identity_provider is not None:
            await app.state.identity_provider.close()
        database.close()

    app = FastAPI(
        title="Tollkeeper control plane",
        description=_DESCRIPTION,
        version="0.1.0",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's page loads scripts from elsewhere
        redoc_url=None,
        dependencies=[Depends(check_permission)],  # as _ROUTES do, for what is added here, such as /docs
    )
    app.state.database = database
    app.state.reference_rules = rules
    app.state.disks = (WatchedDisk(_kept_files(database), "TOLLKEEPER_DATA", settings.data),)
    app.state.revision_check = BackgroundCheck("database check", lambda: _revision(database))
    app.state.detail_access = DetailAccess(settings.metrics_token, settings.data)
    app.state.key_pepper = key_pepper
    app.state.sign_in_limit = SignInLimit()
    app.state.own_key_rules = settings.own_key_rules
    app.state.sign_in_groups = settings.sign_in_groups
    app.state.dashboards = dashboards  # whose word on where a browser is is taken
    app.state.identity_provider = (
        IdentityProvider(settings.oidc_metadata_url, settings.oidc_client_id, groups_claim=settings.oidc_groups_claim)
        if settings.oidc_metadata_url
        else None
    )
    app.state.sealer = sealer
    app.state.audit_verifier = AuditVerifier(
        database, settings.data, check=check_with_sink(settings.audit_options), leads=leadership.leads
    )
    app.router.routes.extend(_ROUTES)
    app.router.routes.extend(SCIM_ROUTES)  # their tokens are of another role, and their errors of another form
    app.add_middleware(BodyLimit, max_bytes=settings.control_max_body_bytes)
    app.state.tokens = TokenBook(admin_token, database, key_pepper)
    app.add_middleware(TokenGate, tokens=app.state.tokens)  # the last one added is asked first
    install_api_page(app)
    install_error_replies(app, "control plane")
    return app


def _kept_files(database: ControlDatabase) -> str:
    return "control database, audit log" if database.url.get_backend_name() == "sqlite" else "audit log"


def _revision(database: ControlDatabase) -> int:
    with database.session() as session:
        return read_revision(session)


def _bootstrap(database: ControlDatabase, settings: ControlSettings, secrets: SecretFiles, pepper: bytes) -> None:
    author = Author(name="first start", at=datetime.now(UTC))
    is_first = False
    try:
        with database.session() as session:
            is_first = is_fresh(session)
            if is_first:
                # Made here and kept in a file, so that `tollkeeper up` can print it at every start.
                add_demo(session, author, secrets.get_or_create("demo_key", prefix=KEY_PREFIX), pepper)
                log.info("demonstration_added", extra={"tenant": DEMO_TENANT, "model": DEMO_MODEL})
    except Conflict:
        is_first = False
        log.info("demonstration_added_elsewhere")
    if settings.engine_url:
        _add_engine(database, settings, author, is_first=is_first)
    if settings.upstream_url:
        _add_upstream(database, settings, author)


def _add_engine(database: ControlDatabase, settings: ControlSettings, author: Author, *, is_first: bool) -> None:
    EngineAddress.parse(settings.engine_url)  # says at once, and in a sentence, what would fail at every request
    offer = EngineOffer(
        url=settings.engine_url,
        models=tuple(order.name for order in EngineHostSettings(engine_model=settings.engine_model).models),
        embedder=EMBEDDER_NAME if settings.engine_embedder else "",
    )
    with database.session() as session:
        if add_engine(session, author, offer, is_first=is_first):
            log.info("engine_added", extra={"url": offer.url, "models": ",".join(offer.models)})


def _add_upstream(database: ControlDatabase, settings: ControlSettings, author: Author) -> None:
    if not settings.upstream_model:
        raise ConfigurationError(
            "TOLLKEEPER_UPSTREAM_URL is set but TOLLKEEPER_UPSTREAM_MODEL is not; name the model it serves"
        )
    key_ref = "env:TOLLKEEPER_UPSTREAM_KEY" if settings.upstream_key else ""
    upstream = Upstream(url=settings.upstream_url, model=settings.upstream_model, key_ref=key_ref)
    with database.session() as session:
        if add_upstream(session, author, upstream):
            log.info("upstream_added", extra={"model": upstream.model, "url": upstream.url})
