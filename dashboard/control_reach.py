"""Holds questions to the control database to a viewer's reach, as `analytics.reach` holds those to the store."""

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

from analytics.reach import Reach
from contracts.errors import PermissionDenied


def require_within(
    reach: Reach, question: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]
) -> None:
    """Raise PermissionDenied if `question(session, ...)` is not about the reach's own tenant, and its own team where it
    is asked by team. One that has no parameter `tenant` is about all of them.
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
