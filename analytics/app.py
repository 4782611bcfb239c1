"""Builds the analytics process from its settings: the HTTP API, and the background loops (alerts, exports, chores)."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from datetime import datetime, timedelta
from typing import Final

from fastapi import FastAPI

from analytics.alerts.dispatcher import Dispatcher
from analytics.alerts.evaluator import Evaluator
from analytics.alerts.ledger_hours import LedgerHours
from analytics.anomaly.remembered import RememberedAnomalies
from analytics.api.access import CallerBook
from analytics.api.health import store_disk
from analytics.api.routers import ROUTERS
from analytics.api.store import IdleStores
from analytics.autoscaling.signals import SignalReader
from analytics.books.budget_actuals import BudgetActuals
from analytics.books.projection import BookCopies
from analytics.cost.channel_reports import ChannelReports
from analytics.cost.periods import time_zone
from analytics.exports.scheduled import ExportPlan, ScheduledExports
from analytics.gpu.finished_hours import FinishedHours
from analytics.prices.watched import PriceWatch
from analytics.quality.judge import Judge, JudgeSettings
from analytics.reconciliation.report import Reconciler
from analytics.settings import AnalyticsSettings
from analytics.watch import Watch
from backends.channels.table import open_senders
from backends.control.database import ControlDatabase
from backends.control.sealer import Sealer
from backends.network.detail_access import DetailAccess
from backends.processes.background_check import BackgroundCheck
from backends.secrets.secret_files import SecretFiles
from backends.store.client import StoreClient
from backends.web.api_page import install_api_page
from backends.web.body_limit import BodyLimit
from backends.web.replies import install_error_replies
from backends.web.shared_routes import shared_routes
from contracts.recording.moments import utc_now

_DESCRIPTION: Final = """
The command line's reports as JSON: costs, usage, service level objectives, alerts and others. Everything is read-only
except feedback, corrections (`/v1/books`) and providers' bills (`/v1/reconciliation`). Every request needs
`Authorization: Bearer <token>`: an admin token as at the control plane, or a team's API key; each sees only its own
tenant's or team's rows.

Errors have OpenAI's shape: `{"error": {"message", "type", "param", "code"}}`.
"""

_ROUTES: Final = shared_routes(ROUTERS)


def create_app(settings: AnalyticsSettings, now: Callable[[], datetime] = utc_now) -> FastAPI:
    """Build the application. Raises ConfigurationError if the control database's schema is missing or newer.

    Raises ForeignStore if the store is another installation's.
    """
    secrets = SecretFiles(settings.data / "secrets")
    webhook_secret = secrets.get_or_create("webhook_secret").encode()
    sealer = Sealer.of(secrets)
    address = settings.store_address()
    store = StoreClient(address)
    store.require_own()
    store.close()
    database = ControlDatabase(settings.database_address)
    with ExitStack() as if_it_fails:
        if_it_fails.callback(database.close)
        database.check_schema()
        if_it_fails.pop_all()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        stores, watching, scaling = IdleStores(address), StoreClient(address), StoreClient(address)
        checking = StoreClient(address)
        app.state.store_check = BackgroundCheck("store check", lambda: store_disk(checking))
        app.state.database_check = BackgroundCheck("database check", database.is_healthy)
        prices = PriceWatch(database, settings.price_schedule())
        evaluator = Evaluator(
            database,
            watching,
            f"{socket.gethostname()}:{os.getpid()}",
            anomalies=RememberedAnomalies(),
            prices=prices,
            gpu_hours=LedgerHours(watching),
        )
        exporting, finishing, copying, reporting, pricing = (StoreClient(address) for _ in range(5))
        chores = _chores(settings, database, exporting, finishing, now)
        copies, actuals = BookCopies(database, copying), BudgetActuals(database, copying, now)
        chores["cost_reports"] = ChannelReports(database, reporting, now).write_due
        chores["prices"] = prices.chore(pricing, now)
        reconciler = Reconciler(database, copying, now)
        chores["books"] = lambda: copies.write_due() + actuals.write_due() + reconciler.write_due()
        judge = Judge(JudgeSettings.of(settings), StoreClient(address), now) if settings.judge_url else None
        async with open_senders(settings.channel_settings(webhook_secret)) as senders:
            dispatcher = Dispatcher(database, senders, now, sealer, settings.links())
            step = None if judge is None else judge.judge_some
            watch = Watch(evaluator, dispatcher, step, settings.alerts_evaluate_seconds, now, chores)
            app.state.stores, app.state.watch, app.state.signals = stores, watch, SignalReader(scaling)
            task = asyncio.create_task(watch.run(), name="watch")
            yield
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if judge is not None:
            await judge.close()
        checking.close()
        watching.close()
        exporting.close()
        finishing.close()
        copying.close()
        reporting.close()
        pricing.close()
        scaling.close()
        stores.close()
        database.close()

    app = FastAPI(
        title="Tollkeeper analytics",
        description=_DESCRIPTION,
        version="0.1.0",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's docs page loads scripts from another site
        redoc_url=None,
    )
    app.state.database = database
    app.state.detail_access = DetailAccess(settings.metrics_token, settings.data)
    app.state.callers = CallerBook(database, secrets, now)
    app.router.routes.extend(_ROUTES)
    app.add_middleware(BodyLimit, max_bytes=settings.analytics_max_body_bytes)
    install_api_page(app)
    install_error_replies(app, "analytics process")
    return app


def _chores(
    settings: AnalyticsSettings,
    database: ControlDatabase,
    exporting: StoreClient,
    finishing: StoreClient,
    now: Callable[[], datetime],
) -> dict[str, Callable[[], int]]:
    """Return the periodic jobs by name, each with its own store client: GPU hours, exports, book copies and others."""
    holder = f"{socket.gethostname()}:{os.getpid()}"
    chores: dict[str, Callable[[], int]] = {
        "gpu_hours": FinishedHours(database, finishing, holder, now).write_due,
    }
    if settings.export_directory is not None:
        plan = ExportPlan(
            settings.export_directory,
            settings.export_format,
            time_zone(settings.export_time_zone),
            timedelta(minutes=settings.export_after_minutes),
            settings.export_issuer,
        )
        chores["exports"] = ScheduledExports(database, exporting, holder, plan, now).write_due
    return chores
