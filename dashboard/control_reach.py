"""Restricts control database queries to a viewer's tenant and team, as `analytics.access_scope` does in the store."""

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

from analytics.access_scope import AccessScope
from contracts.errors import PermissionDenied


def require_within(
    access: AccessScope, question: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]
) -> None:
    """Raise PermissionDenied unless `question(session, ...)` is restricted to the reach's tenant, and to its team if it
    has a parameter `team`. A query without a parameter `tenant` covers all tenants.
    """
    if not access.is_bound:
        return
    asked = signature(question).bind(None, *arguments, **options)
    asked.apply_defaults()
    about = asked.arguments
    if about.get("tenant") != access.tenant:
        raise PermissionDenied(f"this request covers more than tenant {access.tenant!r}, which is all you may see")
    if access.team is not None and "team" in about and about["team"] != access.team:
        raise PermissionDenied(
            f"this request covers more than team {access.team!r} of {access.tenant!r}, which is all you may see"
        )
