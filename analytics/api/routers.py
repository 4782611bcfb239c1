"""The routers of the analytics process: one line each."""

from typing import Final

from fastapi import APIRouter

from analytics.api import (
    alerts,
    autoscaling,
    books,
    costs,
    feedback,
    gpu,
    health,
    quality,
    reconciliation,
    slos,
    spending,
)

ROUTERS: Final[tuple[APIRouter, ...]] = (
    health.router,
    costs.router,
    books.router,
    reconciliation.router,
    gpu.router,
    slos.router,
    alerts.router,
    quality.router,
    feedback.router,
    spending.router,
    autoscaling.router,
)
