"""Decides whether two authors of changes may be the same person, for two-person approval."""

import re
from typing import Final

from sqlalchemy.orm import Session

from contracts.access.person import TOKEN_ID, person_of
from contracts.control import AdminToken, User

_ON_THE_MACHINE: Final = re.compile(r" \(command line\)$")


def is_same_person(session: Session, first: str, second: str) -> bool:
    """Return whether two authors count as one person: the same name, or tokens that the same account or token created.

    A person who may create tokens could create a second one under another name. Tokens created by the installation's
    owner count as separate people.
    """
    return _name(first) == _name(second) or _origin(session, first) == _origin(session, second)


def _name(author: str) -> str:
    return _ON_THE_MACHINE.sub("", person_of(author)).casefold()


def _origin(session: Session, author: str) -> str:
    """Return the origin of an author's access: an account's address, else the first token in the line of parents, else
    the name.
    """
    found = TOKEN_ID.search(author)
    token = session.get(AdminToken, found[1]) if found else None
    seen: set[str] = set()
    while token is not None and token.id not in seen:
        if token.user_id:
            account = session.get(User, token.user_id)
            return token.user_id if account is None else account.email.casefold()
        seen.add(token.id)
        parent = session.get(AdminToken, token.parent_id) if token.parent_id else None
        if parent is None:
            return token.id
        token = parent
    return _name(author)
