"""Current state of targets from the gateway's `GET /ready`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import httpx
import streamlit as st

from backends.network.detail_access import find_metrics_token
from dashboard.reader import settings

_PATIENCE_SECONDS: Final = 1.0
_KEPT_SECONDS: Final = 2


@dataclass(frozen=True, slots=True)
class UnavailableTarget:
    """A target that gets no normal requests. `seconds`: minimum remaining time; 0 if a probe is due now."""

    state: str
    seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class Change:
    """The opening or closing of a target's circuit. `why` is the reason for opening; "" for closing."""

    at: datetime
    target: str
    is_left_alone: bool
    why: str


@dataclass(frozen=True, slots=True)
class Replica:
    """A gateway's current data about a replica: load, predicted wait, and prefix cache."""

    running: int
    predicted_wait_ms: float
    cache: str


@dataclass(frozen=True, slots=True)
class GatewayState:
    """State of targets, by "pool/target"; unknown if `problem` is not empty, because the gateway did not answer."""

    away: Mapping[str, UnavailableTarget] = field(default_factory=dict)
    changes: tuple[Change, ...] = ()
    replicas: Mapping[str, Replica] = field(default_factory=dict)
    policies: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


@st.cache_resource(show_spinner=False)
def _client() -> httpx.Client:
    """Return the shared HTTP client (creating one loads all CA certificates). It ignores proxy variables: the gateway
    is part of this installation.
    """
    return httpx.Client(timeout=_PATIENCE_SECONDS, trust_env=False)


@st.cache_data(ttl=_KEPT_SECONDS, max_entries=1, show_spinner=False)
def read_gateway_state() -> GatewayState:
    """Return the gateway's state, cached for two seconds. Waits at most one second; never raises."""
    url = settings().public_gateway_url()
    try:
        token = find_metrics_token(settings().metrics_token, settings().data)
        reply = _client().get(f"{url}/ready", headers={"Authorization": f"Bearer {token}"} if token else {})
        said: dict[str, Any] = reply.json()  # also with status 503
        if said.keys() == {"status"}:
            return GatewayState(
                problem=f"{url} shows only its status: set TOLLKEEPER_METRICS_TOKEN to the gateway's token"
            )
        return _state(said)
    except (httpx.HTTPError, httpx.InvalidURL):
        return GatewayState(problem=f"the gateway does not answer at {url}; set TOLLKEEPER_GATEWAY_URL to its URL")
    except (ValueError, LookupError, TypeError, AttributeError):
        return GatewayState(problem=f"{url} answers, but not as a gateway of this version")


def _state(said: Mapping[str, Any]) -> GatewayState:
    pools = said["routing"]["pools"]
    return GatewayState(
        away={
            name: UnavailableTarget(str(one["state"]), float(one["seconds"]), str(one["why"]))
            for name, one in said["targets_away"].items()
        },
        changes=tuple(
            Change(
                datetime.fromtimestamp(one["at_ms"] / 1000, UTC),
                str(one["target"]),
                one["change"] == "left_alone",
                str(one["why"]),
            )
            for one in said.get("target_changes", ())
        ),
        replicas={
            f"{pool}/{target}": Replica(
                int(replica["running"]), float(replica["predicted_wait_ms"]), str(replica["cache"])
            )
            for pool, fleet in pools.items()
            for target, replica in fleet["replicas"].items()
        },
        policies={pool: str(fleet["policy"]) for pool, fleet in pools.items()},
    )
