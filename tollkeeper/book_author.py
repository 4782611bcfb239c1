"""The author of accounting entries from the command line: the TOLLKEEPER_ADMIN_TOKEN's owner, else the system user."""

import getpass
import hmac
import os
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from backends.control.admin_tokens import find_token
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.secrets.secret_files import SecretFiles
from contracts.control import Role
from contracts.errors import AuthenticationFailed, PermissionDenied
from tollkeeper.control_client import TOKEN_VARIABLE

_BOOKKEEPERS: Final = (Role.OWNER, Role.ADMIN, Role.FINANCE)


def book_author(
    database: ControlDatabase, secrets: SecretFiles, environment: Mapping[str, str], now: datetime
) -> Author:
    """Return the author. Raises AuthenticationFailed for an invalid token, PermissionDenied if its role is not owner,
    admin or finance of the whole installation."""
    presented = environment.get(TOKEN_VARIABLE, "")
    if not presented:
        return Author(f"{system_user()} (command line)", now)
    if hmac.compare_digest(presented.encode(), (secrets.get("admin_token") or "").encode()):
        return Author("admin", now)
    with database.session() as session:
        token = find_token(session, presented, (secrets.get("key_pepper") or "").encode(), now)
    if token is None:
        raise AuthenticationFailed(f"{TOKEN_VARIABLE} is wrong, expired or revoked", code="invalid_admin_token")
    if token.role not in _BOOKKEEPERS or token.tenant_id:
        raise PermissionDenied(
            f"the role of {token.name!r} may not change corrections, closed months or invoices; "
            "owner, admin and finance of the whole installation may"
        )
    return Author(f"{token.name} ({token.id})", now)


def system_user() -> str:
    """Return the name of this process's user; "uid NUMBER" if it has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # such as a container's numeric user
        return f"uid {os.getuid()}"
