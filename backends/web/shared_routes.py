"""Routers that several FastAPI applications of a process share, so that FastAPI analyses them once."""

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import APIRouter, Depends
from starlette.routing import BaseRoute


def shared_routes(routers: Sequence[APIRouter], dependencies: Sequence[Callable[..., Any]] = ()) -> list[BaseRoute]:
    """Return routes for `app.router.routes.extend`, each with these dependencies first.

    `FastAPI.include_router` analyses each route's parameters again for each application, at its first request, which
    takes 0.25 s for the control plane. As a module's constant they are analysed once per process. Dependency overrides
    do not apply to these routes.
    """
    holder = APIRouter(dependencies=[Depends(dependency) for dependency in dependencies])
    for router in routers:
        holder.include_router(router)
    return holder.routes
