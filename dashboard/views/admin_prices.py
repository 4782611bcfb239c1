"""Price cards and standard cost cards. Cards are never edited: one ends and the next one starts."""

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import streamlit as st

from backends.http_client.control_plane import path_segment
from contracts.errors import InvalidRequest
from contracts.pricing.unit_prices import ANY_UNIT
from dashboard.forms import outcome, show_refusal
from dashboard.panels import panel
from dashboard.table import Table
from dashboard.views.admin_parts import form, moment, pick, submit, utc_of, when_column
from dashboard.visit import Visit

_text = st.column_config.TextColumn
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LEAVES: Final[Mapping[str, str]] = {
    "input_text": "Input",
    "cache_read_text": "Cached input",
    "output_text": "Output",
}
_COLUMNS: Final[dict[str, Any]] = {
    "Model": _text(),
    "Version": _text(help="Recorded on every request that it priced"),
    "Input": _text(width="small", alignment="right", help="USD per million tokens of text"),
    "Cached input": _text(width="small", alignment="right", help="USD per million tokens read from a cache"),
    "Output": _text(width="small", alignment="right", help="USD per million tokens of text"),
    "Other rules": _text(help="Other kinds of tokens, units, tiers and batches that the card prices"),
    "Applies to": _text(help="Provider, region and tenant that it applies to"),
    "From": when_column("Empty: from the beginning"),
    "Until": when_column("Empty: until it is ended"),
}
_COST_COLUMNS: Final[dict[str, Any]] = {
    **{name: column for name, column in _COLUMNS.items() if name not in ("Other rules", "Applies to")},
    "Set by": _text(help="operator: by hand. fitted: by `tollkeeper gpu fit`"),
}


def draw_prices(visit: Visit) -> None:
    """Draw price cards of models, and standard cost cards of self-hosted models."""
    rows = _cards(visit, "/v1/prices")
    frame = Table([_price_row(visit, row) for row in rows], columns=list(_COLUMNS))
    chosen = pick(
        "Price cards",
        rows,
        frame,
        key="admin_prices",
        columns=_COLUMNS,
        help="Prices of models in USD per million tokens, from a start date. Select a row to end a card.",
        empty="No price cards: all usage is unpriced.",
        name="version",
    )
    if visit.viewer.tenant is None:
        _new_price(visit)
    if chosen is not None:
        _end(visit, chosen, "/v1/prices")
    costs = _cards(visit, "/v1/standard-costs")
    costs_frame = Table([_cost_row(visit, row) for row in costs], columns=list(_COST_COLUMNS))
    picked = pick(
        "Standard cost cards",
        costs,
        costs_frame,
        key="admin_standard_costs",
        columns=_COST_COLUMNS,
        help="Internal prices of self-hosted models: the same for every tenant, independent of actual cost.",
        empty="No standard cost cards.",
        name="version",
    )
    if picked is not None:
        _end(visit, picked, "/v1/standard-costs")


def _cards(visit: Visit, path: str) -> list[dict[str, Any]]:
    """Return all cards, read page by page."""
    rows: list[dict[str, Any]] = []
    while True:
        after = {"after": rows[-1]["version"]} if rows else {}
        page = visit.control.get(path, limit=1000, **after)
        rows.extend(page["data"])
        if not page["has_more"]:
            return sorted(rows, key=lambda row: (row["valid_to"] is not None, row["model"], row["valid_from"]))


def _price_row(visit: Visit, row: Mapping[str, Any]) -> dict[str, object]:
    card = row["card"]
    rates = card.get("usd_per_mtok", card)
    others = [leaf for leaf in rates if leaf not in _LEAVES] if isinstance(rates, Mapping) else []
    others += [f"{word} {_usd(price)}" for word, price in card.get("usd_per_unit", {}).items()]
    others += [name for name in ("tiers", "batch_usd_per_mtok", "service_tiers") if card.get(name)]
    return {
        "Model": row["model"],
        "Version": row["version"],
        **{title: _usd(rates.get(leaf)) for leaf, title in _LEAVES.items()},
        "Other rules": ", ".join(others),
        "Applies to": ", ".join(filter(None, (row["provider"], row["region"], row["tenant_id"]))) or "all requests",
        "From": _from(visit, row),
        "Until": moment(visit, row["valid_to"]),
    }


def _cost_row(visit: Visit, row: Mapping[str, Any]) -> dict[str, object]:
    return {
        "Model": row["model"],
        "Version": row["version"],
        "Input": _usd(row["input_usd_per_mtok"]),
        "Cached input": _usd(row["cached_input_usd_per_mtok"]),
        "Output": _usd(row["output_usd_per_mtok"]),
        "Set by": row["origin"],
        "From": _from(visit, row),
        "Until": moment(visit, row["valid_to"]),
    }


def _usd(text: object) -> str | None:
    """Format a price with at least two decimals, and unrounded: "0.075"."""
    if text is None:
        return None
    rate = Decimal(str(text)).normalize()
    exponent = rate.as_tuple().exponent
    return f"${rate:.2f}" if isinstance(exponent, int) and exponent >= -2 else f"${rate:f}"


def _from(visit: Visit, row: Mapping[str, Any]) -> datetime | None:
    """Return the start of a card's validity; `None` if it is always valid (stored as the Unix epoch)."""
    return moment(visit, row["valid_from"]) if datetime.fromisoformat(row["valid_from"]) > _BEGINNING else None


def _new_price(visit: Visit) -> None:
    with form("New price card", "new_price", visit, may=visit.viewer.can_price) as may:
        left, middle, right = st.columns(3)
        model = left.text_input("Model", max_chars=200)
        version = middle.text_input(
            "Version", max_chars=120, help="Recorded on every request that it prices; cannot be reused"
        )
        begins = right.datetime_input("From", None, help=f"{visit.viewer.zone.key}; empty: from the beginning")
        rates = {
            leaf: column.text_input(f"{title}, USD per million tokens")
            for column, (leaf, title) in zip((left, middle, right), _LEAVES.items(), strict=True)
        }
        per_unit = right.text_input(
            "Prices by unit",
            max_chars=500,
            help=f"USD per {ANY_UNIT}, such as image=0.04 image.hd=0.08 second=0.0001",
        )
        provider = left.text_input("Provider", max_chars=63, help="Only for this provider's targets; empty: any")
        tenant = middle.text_input("Tenant", max_chars=63, help="Only for this tenant, before the general card")
        region = middle.text_input("Region", max_chars=63, help="Only for targets in this region; empty: any")
        standard = right.checkbox("Standard cost card of a self-hosted model")
        replaces = left.text_input(
            "Replaces", max_chars=120, help="Version of the card that ends when this one starts; empty: none"
        )
        if submit("Create card", may=may):
            try:
                body: dict[str, object] = {"model": model.strip(), "version": version.strip()}
                body |= {} if begins is None else {"valid_from": utc_of(visit, begins)}
                written = {leaf: _rate(leaf, text) for leaf, text in rates.items() if text.strip()}
                only = {"provider": provider, "region": region, "tenant": tenant, "replaces": replaces}
                more = {name: text.strip() for name, text in only.items() if text.strip()}
                units = _units(per_unit)
                body |= _standard(written, {**more, **units}) if standard else {"usd_per_mtok": written, **more}
            except InvalidRequest as error:
                show_refusal(error)
                return
            if units:
                body["usd_per_unit"] = units
            with outcome(f"Card {version} created"):
                visit.control.post("/v1/standard-costs" if standard else "/v1/prices", body)


def _standard(written: Mapping[str, str], more: Mapping[str, str]) -> dict[str, object]:
    """Return the prices of a standard cost card. Raises InvalidRequest for fields that such a card cannot have."""
    if more:
        raise InvalidRequest(
            f"a standard cost card is for every provider, region and tenant, and has no {', '.join(more)}; empty these"
        )
    if len(written) < len(_LEAVES):
        raise InvalidRequest("a standard cost card prices input, cached input and output; write all three")
    names = ("input_usd_per_mtok", "cached_input_usd_per_mtok", "output_usd_per_mtok")
    return dict(zip(names, written.values(), strict=True))


def _rate(leaf: str, text: str) -> str:
    try:
        return format(Decimal(text.strip().removeprefix("$")), "f")
    except InvalidOperation as error:
        raise InvalidRequest(
            f"{text[:40]!r} is not a price of {_LEAVES[leaf].lower()}; write USD such as 0.15"
        ) from error


def _units(text: str) -> dict[str, str]:
    """Parse prices by unit, such as "image=0.04 second=0.0001". Raises InvalidRequest."""
    found: dict[str, str] = {}
    for pair in text.replace(",", " ").split():
        word, equals, price = pair.partition("=")
        try:
            found[word] = format(Decimal(price.removeprefix("$")), "f")
        except InvalidOperation as error:
            raise InvalidRequest(f"{pair[:40]!r} is not a price by unit; write UNIT=USD such as image=0.04") from error
        if not equals:
            raise InvalidRequest(f"{pair[:40]!r} is not a price by unit; write UNIT=USD such as image=0.04")
    return found


def _end(visit: Visit, card: Mapping[str, Any], path: str) -> None:
    may = visit.viewer.can_price and card["valid_to"] is None
    with panel(f"Card {card['version']}", unit=str(card["model"])):
        with st.form(f"end_{card['version']}", border=False, enter_to_submit=False):
            ends = st.datetime_input(
                "Ends", moment(visit, visit.now.isoformat()), disabled=not may, help=f"{visit.viewer.zone.key}"
            )
            st.caption("Requests after this date are unpriced until a new price card starts.")
            confirmed = st.checkbox(
                "End it although the date is in the past",
                disabled=not may,
                help="Requests since then keep their recorded price; leave this off to preview the effect",
            )
            if submit("End this card", may=may):
                body = {"valid_to": utc_of(visit, ends), "effect": "confirmed" if confirmed else None}
                with outcome(f"Card {card['version']} ends"):
                    visit.control.patch(f"{path}/{path_segment(card['version'])}", body)
