"""Guardrail policies in the control database."""

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from backends.control.changes import Author, begin_change
from backends.control.row_names import row_name
from backends.control.sound_rows import SoundRows
from contracts.control import Guardrail, Tenant
from contracts.errors import ConfigurationError, Conflict, InvalidRequest, NotFound
from contracts.guardrails.policy import MAX_NAMES, MAX_POLICIES, GuardrailPolicy, StageSpec, policy_of

UNREADABLE: Final = "unreadable"  # not a detector: gateways refuse requests that such a policy covers


def create_guardrail(session: Session, author: Author, name: str, rules: Mapping[str, object]) -> Guardrail:
    """Add a policy. Raises Conflict if the name is in use, InvalidRequest if the rules are invalid."""
    begin_change(session, author, "guardrail.create", name, {"rules": dict(rules)})
    if session.get(Guardrail, name) is not None:
        raise Conflict(f"there is a guardrail {name!r} already; change that one", param="name")
    if len(list(session.scalars(select(Guardrail.id)))) >= MAX_POLICIES:
        raise InvalidRequest(f"there are {MAX_POLICIES} guardrails, the most; delete one first", param="name")
    _check_tenants(session, rules, {})
    guardrail = Guardrail(id=name, rules=_checked(name, rules), created_at=author.at)
    session.add(guardrail)
    session.flush()
    return guardrail


def list_guardrails(session: Session, *, after: str = "", limit: int = 100) -> list[Guardrail]:
    """Return up to `limit` policies whose names sort after `after`."""
    wanted = select(Guardrail).where(Guardrail.id > after).order_by(Guardrail.id)
    return list(session.scalars(wanted.limit(limit)))


def get_guardrail(session: Session, name: str) -> Guardrail:
    """Return a policy. Raises NotFound."""
    guardrail = session.get(Guardrail, name)
    if guardrail is None:
        raise NotFound(f"there is no guardrail {name!r}", rows=[row_name(Guardrail, name)])
    return guardrail


def set_guardrail(session: Session, author: Author, name: str, rules: Mapping[str, object]) -> Guardrail:
    """Replace all of a policy's rules. Raises NotFound, and InvalidRequest if they are invalid."""
    entry = begin_change(session, author, "guardrail.update", name)
    guardrail = get_guardrail(session, name)
    entry.detail = {"before": {"rules": guardrail.rules}, "after": {"rules": dict(rules)}}
    _check_tenants(session, rules, guardrail.rules)
    guardrail.rules = _checked(name, rules)
    session.flush()
    return guardrail


def _check_tenants(session: Session, rules: Mapping[str, object], former: object) -> None:
    """Raise InvalidRequest if rules name a tenant that does not exist: they would cover less than their author thinks.

    Names that the `former` rules have stay allowed: their tenants may have been erased since.
    """
    known = _words(former.get("tenants")) if isinstance(former, Mapping) else ()
    for tenant in _words(rules.get("tenants")):
        if tenant not in known and session.get(Tenant, tenant) is None:
            raise InvalidRequest(
                f"tenants names {tenant!r}, which does not exist; `tollkeeper tenants list` shows those that do",
                param="rules.tenants",
            )


def delete_guardrail(session: Session, author: Author, name: str) -> None:
    """Remove a policy. Raises NotFound."""
    begin_change(session, author, "guardrail.delete", name)
    session.delete(get_guardrail(session, name))
    session.flush()


def load_guardrails(rows: SoundRows) -> tuple[GuardrailPolicy, ...]:
    """Return the policies by name.

    An unreadable policy is replaced by one that no gateway can apply, so that requests that it covers are refused
    instead of unprotected; if its scope is unreadable too, all requests.
    """
    return tuple(rows.build("guardrail", select(Guardrail).order_by(Guardrail.id), (Guardrail.id,), _policy))


def _policy(row: Any) -> GuardrailPolicy:
    guardrail: Guardrail = row[0]
    try:
        return policy_of(guardrail.id, guardrail.rules)
    except (ConfigurationError, TypeError):
        rules = guardrail.rules if isinstance(guardrail.rules, dict) else {}
        return GuardrailPolicy(
            name="unreadable",
            tenants=_words(rules.get("tenants")),
            routes=_words(rules.get("routes")),
            stages=(StageSpec(name="unreadable", detector=UNREADABLE),),
        )


def _words(given: object) -> tuple[str, ...]:
    words = given if isinstance(given, list) else []
    found = tuple(word for word in words if isinstance(word, str) and word)
    return found if len(found) <= MAX_NAMES else ()  # too many: treated as unreadable, so it covers all


def _checked(name: str, rules: Mapping[str, object]) -> dict[str, object]:
    try:
        policy_of(name, rules)
    except ConfigurationError as error:
        raise InvalidRequest(error.message, param="rules") from error
    return dict(rules)
