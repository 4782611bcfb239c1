"""Restricts queries of the control database to a viewer's tenant and team, as `analytics.reach` does for the store."""

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

from analytics.reach import Reach
from contracts.errors import PermissionDenied


def require_within(
    reach: Reach, question: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]
) -> None:
    """Raise PermissionDenied unless `question(session, ...)` is restricted to the reach's tenant, and to its team if it
    has a parameter `team`. A query without a parameter `tenant` covers all tenants.
    """
    if not reach.is_bound:
        return
    asked = signature(question).bind(None, *arguments, **options)
    asked.apply_defaults()
    about = asked.arguments
    if about.get("tenant") != reach.tenant:
        raise PermissionDenied(f"this request covers more than tenant {reach.tenant!r}, which is all you may see")
    if reach.team is not None and "team" in about and about["team"] != reach.team:
        raise PermissionDenied(
            f"this request covers more than team {reach.team!r} of {reach.tenant!r}, which is all you may see"
        )
