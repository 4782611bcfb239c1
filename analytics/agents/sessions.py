"""Sessions of coding agents: usage and cost by session, and by repository, developer or tool."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, Literal

from analytics.queries import query
from analytics.rows import names_of, number_of, text_of
from analytics.scope import Scope
from backends.store.client import StoreClient
from contracts.pricing.money import usd

MOST_SESSIONS: Final = 500
MOST_GROUPS: Final = 200
LOOP_LENGTH: Final = 3  # number of identical calls in a row that counts as a loop

GroupedBy = Literal["repo", "pr", "developer", "agent", "tool"]


@dataclass(frozen=True, slots=True)
class Session:
    """One session: a conversation of one key. Texts are "" if the agent does not state them.

    `cost_usd` covers the priced turns and tool calls; `unpriced` counts those without a full price. `longest_run`: the
    most identical tool calls (same arguments) in a row.
    """

    tenant: str
    key_id: str
    id: str
    team: str
    user: str
    repo: str
    branch: str
    pull_request: str
    subagents: int
    models: tuple[str, ...]
    began: datetime
    last: datetime
    turns: int
    failed: int
    limited: int
    tool_calls: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost_usd: Decimal
    unpriced: int
    longest_run: int

    @property
    def loops(self) -> bool:
        """Return whether the agent made the same tool call with the same arguments at least three times in a row."""
        return self.longest_run >= LOOP_LENGTH

    @property
    def developer(self) -> str:
        """Return the session's developer: the end user, else the key."""
        return self.user or self.key_id

    @property
    def cached_share(self) -> float | None:
        """Return the share of prompt tokens that were read from caches; `None` without prompt tokens."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else None


@dataclass(frozen=True, slots=True)
class AgentGroup:
    """Totals of the sessions of one repository, pull request, developer, subagent or set of tools."""

    tenant: str
    name: str  # empty: not stated by the agent
    sessions: int
    turns: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost_usd: Decimal


def agent_sessions(store: StoreClient, scope: Scope) -> tuple[Session, ...]:
    """Return the 500 most expensive sessions with a request in a scope. Raises StoreUnavailable."""
    parameters = {**scope.parameters(), "row_limit": MOST_SESSIONS}
    return tuple(map(_session, store.query(query("agent_sessions"), parameters)))


def agent_groups(store: StoreClient, scope: Scope, by: GroupedBy) -> tuple[AgentGroup, ...]:
    """Return the totals of sessions by one dimension, the 200 most expensive groups. Raises StoreUnavailable."""
    parameters = {**scope.parameters(), "by": by, "row_limit": MOST_GROUPS}
    return tuple(
        AgentGroup(
            text_of(row["tenant_label"]),
            text_of(row["group_label"]),
            number_of(row["session_count"]),
            number_of(row["turn_count"]),
            number_of(row["input_sum"]),
            number_of(row["cached_sum"]),
            number_of(row["output_sum"]),
            usd(number_of(row["cost_pico_sum"])),
        )
        for row in store.query(query("agent_groups"), parameters)
    )


def _session(row: Mapping[str, object]) -> Session:
    return Session(
        tenant=text_of(row["tenant_label"]),
        key_id=text_of(row["key_label"]),
        id=text_of(row["session_label"]),
        team=text_of(row["team_label"]),
        user=text_of(row["user_label"]),
        repo=text_of(row["repo_label"]),
        branch=text_of(row["branch_label"]),
        pull_request=text_of(row["pr_label"]),
        subagents=number_of(row["agent_count"]),
        models=tuple(names_of(row["models"])),
        began=_moment(row["began_ms"]),
        last=_moment(row["last_ms"]),
        turns=number_of(row["turn_count"]),
        failed=number_of(row["failed_count"]),
        limited=number_of(row["limited_count"]),
        tool_calls=number_of(row["called_count"]),
        input_tokens=number_of(row["input_sum"]),
        cached_tokens=number_of(row["cached_sum"]),
        output_tokens=number_of(row["output_sum"]),
        cost_usd=usd(number_of(row["cost_pico_sum"])),
        unpriced=number_of(row["unpriced_count"]),
        longest_run=number_of(row["longest_run"]),
    )


def _moment(value: object) -> datetime:
    return datetime.fromtimestamp(number_of(value) / 1000, UTC)
