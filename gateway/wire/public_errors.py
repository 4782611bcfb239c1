"""Errors for callers: with the requested model, without targets, addresses, deployments or paths.

The operators' detail stays in the error itself, for the log.
"""

import copy
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from contracts.errors import (
    EngineUnavailable,
    HedgeLost,
    TargetMisconfigured,
    TargetsAway,
    TollkeeperError,
    UpstreamBroken,
    UpstreamError,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from contracts.serving.configuration import TargetSpec

# By class; a class that is not here is told as the one it is made from.
_TOLD: Final[Mapping[type[TollkeeperError], str]] = {
    UpstreamError: "{model} failed to answer",
    UpstreamUnreachable: "{model} cannot be reached",
    UpstreamTimeout: "{model} did not answer in time",
    UpstreamBroken: "{model} sent an answer that ended early or cannot be read",
    TargetMisconfigured: "{model} is not set up correctly; the gateway's operators have to correct that",
    EngineUnavailable: "{model} is not available at present",
    UpstreamOverloaded: "{model} has more to do than it can",
    UpstreamRateLimited: "{model} is at a rate limit of its provider",
    TargetsAway: "{model} is out of service after failures",
    HedgeLost: "{model} has answered otherwise",
}
_URL: Final = re.compile(r"\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s'\"<>)\],;]+")
_ADDRESS: Final = re.compile(
    r"(?<![\w.])(?:\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?|\[[0-9a-fA-F:]+\](?::\d+)?|(?:[\w-]+\.)*[a-zA-Z][\w-]*:\d{2,5}|"
    r"(?:[\w-]+\.)+(?:internal|local|localdomain|svc|corp|lan|cluster|intranet))\b"
)
_PATH: Final = re.compile(r"(?<![\w/.])/(?:[\w.@+-]+/)+[\w.@+-]*")
_TARGET: Final = re.compile(r"\btarget '[^']*'(?: of pool '[^']*')?")
_LIBRARY: Final = re.compile(r"\blitellm\.\w+: |\b\w+Exception - ")
_SEARCHED_BYTES: Final = 1 << 20  # of a request's body
_LEAST_NAME: Final = 3  # characters of a deployment's name that is looked for
_LONGEST_MODEL: Final = 80


def public_error(
    error: TollkeeperError,
    *,
    model: str = "",
    request_id: str = "",
    body: bytes = b"",
    targets: Iterable[TargetSpec] = (),
) -> TollkeeperError:
    """Return the error as its caller may see it; unchanged if there is nothing to hide.

    `model` is the requested name. `body` is the request: its content is known to the caller. `targets` are those that
    were called: a message may come from one of them.
    """
    message = _message(error, model, request_id, body, tuple(targets))
    if message == error.message:
        return error
    shown = copy.copy(error)
    shown.message = message
    return shown


def _message(error: TollkeeperError, model: str, request_id: str, body: bytes, targets: tuple[TargetSpec, ...]) -> str:
    if isinstance(error, UpstreamError | HedgeLost):
        told = next(_TOLD[kind] for kind in type(error).__mro__ if kind in _TOLD)
        message = told.format(model=f"the model {model[:_LONGEST_MODEL]!r}" if model else "the model")
        if error.retry_after_seconds is not None:
            message += f"; try again in {max(error.retry_after_seconds, 1.0):.0f} s"
        if error.reached_tokens is not None:
            tokens = error.reached_tokens
            message += f"; the answer had reached {tokens} token{'' if tokens == 1 else 's'}"
        return f"{message} (request {request_id})" if request_id else message
    if error.status < 500 and not targets and not isinstance(error, UpstreamRejected):
        return error.message  # our own words about the caller's own request
    return without_places(error.message, model, body, targets)


def without_places(message: str, model: str = "", body: bytes = b"", targets: tuple[TargetSpec, ...] = ()) -> str:
    """Return a message without names and addresses of deployments."""
    message = _LIBRARY.sub("", message)
    body = body[:_SEARCHED_BYTES]
    for target in targets:
        # LiteLLM's name has the provider before it: what follows is the deployment.
        for name in (target.model, target.model.partition("/")[2]):
            if len(name) >= _LEAST_NAME and name != model and name.encode() not in body:
                message = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", lambda _: model or "the model", message)
        host = target.url.partition("://")[2].partition("/")[0]
        for place in (target.url, host, host.rpartition(":")[0]):
            if place:
                message = message.replace(place, "[address]")
    message = _TARGET.sub("the model's server", message)
    message = _URL.sub(_unless_known("[address]", body), message)
    message = _ADDRESS.sub(_unless_known("[address]", body), message)
    return _PATH.sub(_unless_known("[path]", body), message)


def _unless_known(instead: str, body: bytes) -> Callable[[re.Match[str]], str]:
    def told(found: re.Match[str]) -> str:
        return found.group() if found.group().encode() in body else instead

    return told
