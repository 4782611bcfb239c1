"""Scopes of keys and identity providers in the control database: only restrictions are stored.

Fields: models, endpoints, addresses (networks), priority, max_reasoning_effort, max_thinking_tokens.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any, Final, cast, get_args

from sqlalchemy.orm import Session

from contracts.api.chat import ReasoningEffort
from contracts.control import Model, Route
from contracts.errors import ConfigurationError, InvalidRequest
from contracts.rules.limits import PRIORITY_CLASSES
from contracts.serving.configuration import DEFAULT_POLICY, KeyPolicy

SCOPE_FIELDS: Final = ("models", "endpoints", "addresses", "priority", "max_reasoning_effort", "max_thinking_tokens")
_LISTS: Final = ("models", "endpoints", "addresses")
_EFFORTS: Final[tuple[str, ...]] = get_args(ReasoningEffort)


@dataclass(frozen=True, slots=True)
class Permits:
    """Scopes in the form that gateways check."""

    models: frozenset[str] | None
    endpoints: frozenset[str] | None
    policy: KeyPolicy


def normal_scopes(stated: Mapping[str, Any]) -> dict[str, object]:
    """Return scopes in the form that the table stores; a field that is `None` restricts nothing and is left out.

    Networks are written in the shortest form. Raises InvalidRequest on an empty list or an invalid network.
    """
    scopes: dict[str, object] = {name: stated[name] for name in SCOPE_FIELDS if stated.get(name) is not None}
    for name in _LISTS:
        if name not in scopes:
            continue
        allowed = cast("Sequence[str]", scopes[name])
        if not allowed:
            raise InvalidRequest(f"{name} is empty: the key could use nothing; leave it out for all", param=name)
        scopes[name] = sorted(set(map(_network, allowed) if name == "addresses" else allowed))
    return scopes


def check_models(session: Session, scopes: Mapping[str, object]) -> None:
    """Raise InvalidRequest if the scopes name something that is neither a model nor a route."""
    for model in cast("Iterable[str]", scopes.get("models", ())):
        if session.get(Model, model) is None and session.get(Route, model) is None:
            raise InvalidRequest(f"models names {model!r}, which is neither a model nor a route here", param="models")


def read_scopes(scopes: Mapping[str, object]) -> Permits:
    """Read stored scopes. Raises ConfigurationError or AttributeError if they are invalid."""
    policy = KeyPolicy(
        addresses=_addresses(scopes),
        priority=cast("Any", _word(scopes, "priority", PRIORITY_CLASSES)) or DEFAULT_POLICY.priority,
        max_reasoning_effort=cast("Any", _word(scopes, "max_reasoning_effort", _EFFORTS)),
        max_thinking_tokens=_count(scopes, "max_thinking_tokens"),
    )
    return Permits(
        models=_names(scopes, "models"),
        endpoints=_names(scopes, "endpoints"),
        policy=DEFAULT_POLICY if policy == DEFAULT_POLICY else policy,
    )


def _network(text: str) -> str:
    try:
        return str(ip_network(text.strip()))
    except ValueError as error:
        raise InvalidRequest(
            f"addresses names {text[:80]!r}, which is not a network; write it as 10.0.0.0/8 or 2001:db8::/32, "
            "with no bits set behind the prefix",
            param="addresses",
        ) from error


def _names(scopes: Mapping[str, object], name: str) -> frozenset[str] | None:
    allowed = scopes.get(name)
    if allowed is None:
        return None
    if not isinstance(allowed, list) or not all(isinstance(item, str) for item in allowed):
        raise ConfigurationError(f"scope {name} is not a list of names")
    return frozenset(allowed)


def _addresses(scopes: Mapping[str, object]) -> tuple[str, ...] | None:
    networks = _names(scopes, "addresses")
    try:
        return None if networks is None else tuple(sorted(str(ip_network(network)) for network in networks))
    except ValueError as error:
        raise ConfigurationError("scope addresses names what is not a network") from error


def _word(scopes: Mapping[str, object], name: str, known: Sequence[str]) -> object:
    word = scopes.get(name)
    if word is not None and word not in known:
        raise ConfigurationError(f"scope {name} is none of {', '.join(known)}")
    return word


def _count(scopes: Mapping[str, object], name: str) -> int | None:
    count = scopes.get(name)
    if count is None:
        return None
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise ConfigurationError(f"scope {name} is not a number of tokens")
    return count
