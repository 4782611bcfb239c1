"""Playbooks in the control database: how requests are routed while a whole provider is down."""

from collections.abc import Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session

from backends.control.changes import Author, begin_change
from backends.control.row_names import row_name
from backends.control.sound_rows import SoundRows
from contracts.control import OutagePlaybook
from contracts.errors import ConfigurationError, Conflict, InvalidRequest, NotFound
from contracts.serving.failures import Playbook, playbook_of


def create_playbook(session: Session, author: Author, provider: str, rules: Mapping[str, object]) -> OutagePlaybook:
    """Add a provider's playbook. Raises Conflict if it has one, InvalidRequest if the rules are invalid."""
    begin_change(session, author, "playbook.create", provider, {"rules": dict(rules)})
    if session.get(OutagePlaybook, provider) is not None:
        raise Conflict(f"provider {provider!r} has a playbook already; change that one", param="provider")
    playbook = OutagePlaybook(provider=provider, rules=dict(rules), created_at=author.at)
    _check(playbook)
    session.add(playbook)
    session.flush()
    return playbook


def list_playbooks(session: Session, *, after: str = "", limit: int = 100) -> list[OutagePlaybook]:
    """Return up to `limit` playbooks whose providers sort after `after`."""
    wanted = select(OutagePlaybook).where(OutagePlaybook.provider > after).order_by(OutagePlaybook.provider)
    return list(session.scalars(wanted.limit(limit)))


def get_playbook(session: Session, provider: str) -> OutagePlaybook:
    """Return a provider's playbook. Raises NotFound."""
    playbook = session.get(OutagePlaybook, provider)
    if playbook is None:
        raise NotFound(f"provider {provider!r} has no playbook", rows=[row_name(OutagePlaybook, provider)])
    return playbook


def set_playbook(session: Session, author: Author, provider: str, rules: Mapping[str, object]) -> OutagePlaybook:
    """Replace all of a playbook's rules. Raises NotFound, and InvalidRequest if they are invalid."""
    entry = begin_change(session, author, "playbook.update", provider)
    playbook = get_playbook(session, provider)
    entry.detail = {"before": {"rules": playbook.rules}, "after": {"rules": dict(rules)}}
    playbook.rules = dict(rules)
    _check(playbook)
    session.flush()
    return playbook


def delete_playbook(session: Session, author: Author, provider: str) -> None:
    """Remove a provider's playbook. Raises NotFound."""
    begin_change(session, author, "playbook.delete", provider)
    session.delete(get_playbook(session, provider))
    session.flush()


def load_playbooks(rows: SoundRows) -> dict[str, Playbook]:
    """Return playbooks by provider; unreadable ones are left out and listed in the faults."""
    built = rows.build(
        "playbook",
        select(OutagePlaybook),
        (OutagePlaybook.provider,),
        lambda row: playbook_of(row[0].provider, row[0].rules),
    )
    return {playbook.provider: playbook for playbook in built}


def _check(playbook: OutagePlaybook) -> None:
    try:
        playbook_of(playbook.provider, playbook.rules)
    except ConfigurationError as error:
        raise InvalidRequest(error.message, param="rules") from error
