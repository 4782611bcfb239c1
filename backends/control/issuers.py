"""Identity providers in the control database: gateways accept their tokens instead of keys."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from sqlalchemy import select
from sqlalchemy.orm import Session

from backends.control.changes import Author, begin_change
from backends.control.key_scopes import SCOPE_FIELDS, check_models, normal_scopes, read_scopes
from backends.control.organisation import get_tenant
from backends.control.row_names import row_name
from backends.control.sound_rows import SoundRows
from contracts.control import Issuer
from contracts.errors import ConfigurationError, Conflict, InvalidRequest, NotFound
from contracts.serving.configuration import IssuerSpec

# RFC 7518, section 3.1, and RFC 8037: signatures with a private key. A shared secret would have to be stored here.
ASYMMETRIC: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
)
_LOOPBACK: Final = ("127.0.0.1", "localhost")
_TEXTS: Final = ("issuer", "audience", "keys_url", "tenant_claim", "team_claim", "project_claim", "user_claim")


@dataclass(frozen=True, slots=True)
class NewIssuer:
    """A new identity provider. Its tokens' requests are billed to `tenant_id`, or to the tenant in the claim
    `tenant_claim`.

    `scopes` are the restrictions of its tokens, in the fields of a key's scopes.
    """

    id: str
    issuer: str
    audience: str
    keys_url: str = ""
    algorithms: Sequence[str] = ("RS256", "ES256")
    tenant_id: str = ""
    tenant_claim: str = ""
    team_claim: str = ""
    project_claim: str = ""
    user_claim: str = "sub"
    scopes: Mapping[str, object] = field(default_factory=dict)


def create_issuer(session: Session, author: Author, new: NewIssuer) -> Issuer:
    """Create an identity provider whose tokens are accepted.

    Raises Conflict if the id, or the issuer with this audience, exists; InvalidRequest on a URL that is neither https
    nor on this machine, an algorithm with a shared secret, or none or two ways to find the tenant; NotFound on an
    unknown tenant.
    """
    entry = begin_change(session, author, "issuer.create", new.id)
    if session.get(Issuer, new.id) is not None:
        raise Conflict(f"issuer {new.id!r} exists already; choose another id", param="id")
    row = Issuer(
        id=new.id,
        **{name: getattr(new, name) for name in _TEXTS},
        tenant_id=new.tenant_id,
        algorithms=list(new.algorithms),
        scopes=normal_scopes(new.scopes),
        created_at=author.at,
    )
    _check(session, row)
    entry.detail = _described(row)
    session.add(row)
    session.flush()
    return row


def list_issuers(session: Session, *, after: str = "", limit: int = 100) -> list[Issuer]:
    """Return up to `limit` identity providers whose ids sort after `after`."""
    return list(session.scalars(select(Issuer).where(Issuer.id > after).order_by(Issuer.id).limit(limit)))


def get_issuer(session: Session, issuer_id: str) -> Issuer:
    """Return an identity provider. Raises NotFound."""
    row = session.get(Issuer, issuer_id)
    if row is None:
        raise NotFound(
            f"issuer {issuer_id!r} does not exist; `tollkeeper issuers list` shows those that do",
            rows=[row_name(Issuer, issuer_id)],
        )
    return row


def update_issuer(session: Session, author: Author, issuer_id: str, changes: Mapping[str, Any]) -> Issuer:
    """Change an identity provider: the named fields of `NewIssuer`, and scopes, of which `None` removes one.

    Raises as `create_issuer` does.
    """
    entry = begin_change(session, author, "issuer.update", issuer_id)
    row = get_issuer(session, issuer_id)
    before = _described(row)
    with session.no_autoflush:  # the change must not be written before it is checked
        for name in (*_TEXTS, "tenant_id", "algorithms"):
            if name in changes:
                setattr(row, name, changes[name])
        stated = {name: changes[name] for name in SCOPE_FIELDS if name in changes}
        row.scopes = normal_scopes({**row.scopes, **stated})
        _check(session, row)
    entry.detail = {"before": before, "after": _described(row)}
    session.flush()
    return row


def delete_issuer(session: Session, author: Author, issuer_id: str) -> None:
    """Remove an identity provider; its tokens are refused from then on. Raises NotFound."""
    begin_change(session, author, "issuer.delete", issuer_id)
    session.delete(get_issuer(session, issuer_id))
    session.flush()


def load_issuers(rows: SoundRows) -> tuple[IssuerSpec, ...]:
    """Return all identity providers; unreadable ones are left out and listed in the faults."""
    wanted = select(Issuer).order_by(Issuer.id)
    return tuple(rows.build("issuer", wanted, (Issuer.id,), lambda row: _spec(row[0])))


def _spec(row: Issuer) -> IssuerSpec:
    permits = read_scopes(row.scopes)
    return IssuerSpec(
        **{name: getattr(row, name) for name in _TEXTS},
        tenant=row.tenant_id,
        algorithms=tuple(row.algorithms),
        models=permits.models,
        endpoints=permits.endpoints,
        policy=permits.policy,
    )


def _check(session: Session, row: Issuer) -> None:
    for name in ("issuer", "keys_url"):
        _check_address(name, getattr(row, name))
    for algorithm in row.algorithms:
        if algorithm not in ASYMMETRIC:
            raise InvalidRequest(
                f"algorithms names {algorithm!r}; asymmetric ones are taken: {', '.join(ASYMMETRIC)}",
                param="algorithms",
            )
    try:
        _spec(row)
    except ConfigurationError as error:
        raise InvalidRequest(error.message, param=error.param) from error
    if row.tenant_id:
        get_tenant(session, row.tenant_id)
    check_models(session, row.scopes)
    same = (Issuer.issuer == row.issuer, Issuer.audience == row.audience, Issuer.id != row.id)
    rival = session.scalar(select(Issuer.id).where(*same))
    if rival is not None:
        raise Conflict(f"issuer {rival!r} takes this audience of {row.issuer!r} already", param="issuer")


def _check_address(name: str, url: str) -> None:
    if not url and name == "keys_url":
        return
    try:
        parts = urlsplit(url)
        is_safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
        is_sound = bool(parts.hostname) and parts.username is None and parts.port != 0
    except ValueError:
        is_safe = is_sound = False
    if not is_safe or not is_sound:
        raise InvalidRequest(
            f"{name} is {url[:80]!r}; it must begin with https://, or with http://127.0.0.1 or http://localhost, "
            "since whoever can change what comes from there can let anyone in",
            param=name,
        )


def _described(row: Issuer) -> dict[str, object]:
    texts = {name: getattr(row, name) for name in (*_TEXTS, "tenant_id")}
    return {**{name: text for name, text in texts.items() if text}, "algorithms": row.algorithms, **row.scopes}
