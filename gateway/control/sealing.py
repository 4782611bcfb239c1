"""The encryption of stored secrets, as a dependency of HTTP endpoints."""

from typing import Annotated

from fastapi import Depends, Request

from backends.control.sealer import Sealer


def _sealer(request: Request) -> Sealer:
    sealer: Sealer = request.app.state.sealer
    return sealer


Seal = Annotated[Sealer, Depends(_sealer)]
