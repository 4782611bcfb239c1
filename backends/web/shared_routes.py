"""Routers that every FastAPI application of a process shares: what FastAPI derives from them is derived once."""

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import APIRouter, Depends
from starlette.routing import BaseRoute


def shared_routes(routers: Sequence[APIRouter], dependencies: Sequence[Callable[..., Any]] = ()) -> list[BaseRoute]:
    """Return routes for `app.router.routes.extend`, each of which asks these dependencies first.

    `FastAPI.include_router` derives the parameters of each route again for each application, at its first request:
    a quarter of a second for the control plane. Kept in a module's constant, they are derived once in a process.
    Overrides of dependencies are not passed on to these routes.
    """
    holder = APIRouter(dependencies=[Depends(dependency) for dependency in dependencies])
    for router in routers:
        holder.include_router(router)
    return holder.routes
