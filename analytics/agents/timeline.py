"""One session's timeline: turns, tool calls, savings by caches, and edits that broke a prompt's cached prefix."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from analytics.agents.sessions import LOOP_LENGTH
from analytics.prices.card_list import CardList
from analytics.queries import query
from analytics.rows import column_of, names_of, number_of, text_of
from analytics.scope import Scope
from backends.store.client import StoreClient
from contracts.metering.usage import CACHE_WRITE_LEAVES
from contracts.pricing.money import usd
from contracts.pricing.prices import AnyCard, PriceBook

MOST_TURNS: Final = 2000
CACHE_SECONDS: Final = 300  # minimum time that providers cache a prompt's prefix

_TOOL_CALL: Final = "execute_tool"
_FIRST_PARTS: Final = ("the tools", "the instructions")  # parts of a prompt before its messages


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a session: a model's turn, or a tool call by the gateway.

    `saved_usd`: saving of cached tokens against plain input, minus the surcharge for cache writes; `None` without a
    price. `broken_by`: why less of the prompt was cached than the previous turn had stored; "" if that did not happen.
    `lost_tokens`: tokens that were paid as new because of that.
    """

    request_id: str
    began: datetime
    took_ns: int
    operation: str
    model: str
    provider: str
    agent: str
    outcome: str
    status: int
    error_code: str
    finish_reason: str
    limit: str
    input_tokens: int
    cached_tokens: int
    written_tokens: int
    output_tokens: int
    cost_usd: Decimal | None
    tools: tuple[str, ...] = ()
    tool_marks: tuple[int, ...] = ()
    prompt_marks: tuple[int, ...] = field(default=(), repr=False)
    saved_usd: Decimal | None = None
    broken_by: str = ""
    lost_tokens: int = 0
    repeats: int = 0  # number of identical calls in a row up to this one; 0: no tool call

    @property
    def is_tool_call(self) -> bool:
        """Return whether this turn is a tool call by the gateway, not a model's answer."""
        return self.operation == _TOOL_CALL

    @property
    def is_loop(self) -> bool:
        """Return whether it is at least the third identical tool call in a row."""
        return self.repeats >= LOOP_LENGTH


def session_turns(
    store: StoreClient, scope: Scope, tenant: str, key_id: str, session: str, cards: CardList
) -> tuple[Turn, ...]:
    """Return a session's first 2,000 requests in a scope, in order of time. Raises StoreUnavailable."""
    within = scope.covered
    parameters = {
        "start": within.start_s,
        "end": within.end_s,
        "team": scope.team,
        "tenant": tenant,
        "key": key_id,
        "session": session,
        "row_limit": MOST_TURNS,
    }
    book = PriceBook(cards.cards)
    return judged([_turn(row, tenant, book) for row in store.query(query("agent_turns"), parameters)])


def judged(turns: Iterable[Turn]) -> tuple[Turn, ...]:
    """Return the turns with `repeats`, `broken_by` and `lost_tokens` set. Each subagent has its own prompt."""
    found: list[Turn] = []
    before: dict[tuple[str, str], Turn] = {}
    last_mark: int | None = None
    in_a_row = 0
    for turn in turns:
        if not turn.is_tool_call:
            repeats = 0
            for mark in turn.tool_marks:
                in_a_row = in_a_row + 1 if mark == last_mark else 1
                last_mark, repeats = mark, max(repeats, in_a_row)
            turn = replace(turn, repeats=repeats)
            if turn.outcome == "ok":
                name = (turn.agent, turn.model)
                if name in before:
                    turn = _compared(before[name], turn)
                before[name] = turn
        found.append(turn)
    return tuple(found)


def first_difference(before: Sequence[int], after: Sequence[int]) -> str:
    """Return the first part of a prompt that differs from the previous turn's; "" if the previous prompt is a prefix.

    Parts are checksums of the tools, the instructions, and each message.
    """
    if not before or not after:
        return ""
    for place, mark in enumerate(before):
        if place >= len(after):
            return f"message {place - 1} was removed"
        if after[place] != mark:
            part = _FIRST_PARTS[place] if place < len(_FIRST_PARTS) else f"message {place - 1}"
            return f"{part} changed"
    return ""


def _compared(before: Turn, turn: Turn) -> Turn:
    kept = before.cached_tokens + before.written_tokens
    lost = min(kept, before.input_tokens) - turn.cached_tokens
    if lost <= 0:
        return turn
    edit = first_difference(before.prompt_marks, turn.prompt_marks)
    if not edit:
        idle = (turn.began - before.began).total_seconds()
        if before.provider != turn.provider:
            edit = f"another provider answered ({turn.provider or 'unknown'})"
        elif idle > CACHE_SECONDS:
            edit = f"{idle / 60:.0f} minutes without a turn"
        elif before.prompt_marks and turn.prompt_marks:
            edit = "the provider had evicted it"
        else:
            edit = "unknown: the prompt's parts were not recorded"
    return replace(turn, broken_by=edit, lost_tokens=lost)


def _turn(row: Mapping[str, object], tenant: str, book: PriceBook) -> Turn:
    began_ns = number_of(row["began_ns"])
    began = datetime.fromtimestamp(began_ns // 1_000_000_000, UTC)
    model, provider = text_of(row["model_label"]), text_of(row["provider_label"])
    tokens = {
        "cache_read_text": number_of(row["cached_count"]),
        "cache_write_5m": number_of(row["written_5m_count"]),
        "cache_write_1h": number_of(row["written_1h_count"]),
    }
    input_tokens = number_of(row["input_count"])
    is_priced = text_of(row["state_label"]) in ("priced", "failed")
    return Turn(
        request_id=text_of(row["request_label"]),
        began=began.replace(microsecond=began_ns % 1_000_000_000 // 1000),
        took_ns=number_of(row["took_ns"]),
        operation=text_of(row["operation"]),
        model=model,
        provider=provider,
        agent=text_of(row["agent_label"]),
        outcome=text_of(row["outcome"]),
        status=number_of(row["status"]),
        error_code=text_of(row["error_label"]),
        finish_reason=text_of(row["finish_label"]),
        limit=text_of(row["limit_label"]),
        input_tokens=input_tokens,
        cached_tokens=tokens["cache_read_text"],
        written_tokens=tokens["cache_write_5m"] + tokens["cache_write_1h"],
        output_tokens=number_of(row["output_count"]),
        cost_usd=usd(number_of(row["cost_pico"])) if is_priced else None,
        tools=tuple(names_of(row["called"])),
        tool_marks=tuple(column_of(row["marks"])),
        prompt_marks=tuple(column_of(row["parts"])),
        saved_usd=_saved(
            book.card_for(model, tenant, began, provider, text_of(row["region_label"])),
            text_of(row["service_tier_label"]),
            input_tokens,
            tokens,
        ),
    )


def _saved(card: AnyCard | None, tier: str, input_tokens: int, tokens: Mapping[str, int]) -> Decimal | None:
    card = None if card is None else card.at_tier(tier)
    plain = None if card is None else card.rate("input_text", input_tokens)
    if card is None or plain is None:
        return None
    saved = 0
    for leaf in ("cache_read_text", *CACHE_WRITE_LEAVES):
        count, rate = tokens[leaf], card.rate(leaf, input_tokens)
        if count and rate is None:
            return None
        saved += count * (plain - (rate or 0)) if count else 0
    return usd(saved)
