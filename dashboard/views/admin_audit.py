"""The audit log: who changed what, when and from where, latest first; and whether its hashes and signatures verify."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import streamlit as st

from dashboard import controls
from dashboard.panels import Figure, contained, note, panel, show_figures, show_table
from dashboard.states import escaped
from dashboard.table import Table
from dashboard.views.admin_parts import moment
from dashboard.visit import Visit

_text = st.column_config.TextColumn
_MOST: Final = 500
_COLUMNS: Final[dict[str, Any]] = {
    "When": st.column_config.DatetimeColumn(format="D MMM YYYY HH:mm:ss"),
    "Who": _text(help="The token's or user's name and id; `admin` is the installation's owner"),
    "Action": _text(help="A noun and a verb, such as key.revoke"),
    "Object": _text(width="medium", help="Id of the object that was changed"),
    "Caller's address": _text(width="small", help="Network address of the caller"),
    "Detail": _text(width="large", help="New value; secrets are never shown"),
}
_VERIFICATION: Final = "/v1/audit/verification"
_DATABASE: Final = "control database"  # name of the part with the changes below; other parts are chains of files
_WITNESS: Final = "control"
_PLACES: Final[dict[str, Any]] = {
    "What": _text(
        width=270, help="Configuration changes, the external signed log that proves them, and audited requests"
    ),
    "State": _text(width="small"),
    "Entries": st.column_config.NumberColumn(format="localized", help="Verified entries"),
    "Last entry": st.column_config.NumberColumn(format="localized", help="The number of the last entry"),
    "Checkpoints": st.column_config.NumberColumn(
        format="localized", help="Number of signatures; each covers all earlier entries"
    ),
    "Signed until entry": st.column_config.NumberColumn(
        format="localized", help="The last entry that a checkpoint signs; later entries are at most seconds old"
    ),
    "Remarks": _text(width="large", help="The first error, and notes in the log: files truncated by a crash, backups"),
}
_NOUNS: Final = (
    "all", "tenant", "team", "project", "key", "limit", "budget", "model", "route", "pool", "target", "price",
    "standard_cost", "rate", "rollout", "guardrail", "token", "user", "session", "saved_view", "alert_rule",
    "alert_channel", "alert_silence", "slo",
)  # fmt: skip


def draw_audit(visit: Visit) -> None:
    """Draw whether the log verifies, then the latest changes, filtered by kind of object or tenant."""
    with contained():
        _verification(visit)
    with st.container(horizontal=True, vertical_alignment="center"):
        noun = controls.select("noun", "What", _NOUNS, default="all", format_func=_spoken, help="Kind of object")
        tenant = visit.viewer.tenant or controls.text("of", "Tenant", placeholder="All tenants")
    asked: dict[str, str | int] = {"limit": _MOST}
    asked |= {} if noun == "all" else {"action": noun}
    asked |= {"tenant": tenant} if tenant else {}
    page = visit.control.get("/v1/audit", **asked)
    frame = Table(
        [
            {
                "When": moment(visit, row["at"]),
                "Who": row["actor"],
                "Action": row["action"],
                "Object": row["subject"],
                "Caller's address": row["address"],
                "Detail": json.dumps(row["detail"], ensure_ascii=False) if row["detail"] else "",
            }
            for row in page["data"]
        ],
        columns=list(_COLUMNS),
    )
    show_table(
        "Changes",
        frame,
        key="admin_audit",
        columns=_COLUMNS,
        help="Every configuration change, from dashboard, command line or API.",
        empty="No change matches these filters.",
    )
    if page["has_more"]:
        note(f"The last {_MOST} changes are shown; GET /v1/audit of the control plane has all.")


def _verification(visit: Visit) -> None:
    """Draw the result of the control plane's latest verification of the log."""
    wanted = {"max_age_seconds": 1} if st.session_state.pop("audit_verify_again", False) else {}
    found = visit.control.get(_VERIFICATION, **wanted)
    if found["is_sound"] is None:
        _draw_unverified(found)
        return
    changes = next((place for place in found["places"] if place["place"] == _DATABASE), None)
    chains = [place for place in found["places"] if place["place"] != _DATABASE]
    _draw_figures(visit, found, changes, chains)
    show_table(
        "What was verified",
        Table([_place_row(place) for place in (*([changes] if changes else []), *chains)], columns=list(_PLACES)),
        key="admin_audit_places",
        columns=_PLACES,
        help=_HOW,
        empty="No audit entries yet.",
    )
    with st.container(horizontal=True, vertical_alignment="center"):
        checked = visit.formats.moment(datetime.fromisoformat(found["checked_at"]))
        state = "Verification is running." if found["is_running"] else ""
        note(f"As of {checked} {visit.formats.zone_name}. {state}")
        _again("Verify again", wants_new=True)


def _draw_unverified(found: Mapping[str, Any]) -> None:
    """Draw why there is no verification result yet."""
    with panel("Audit log verification", help=_HOW):
        note(
            "It is being verified; this takes about twenty seconds for a million changes."
            if found["is_running"]
            else f"It cannot be verified: {escaped(str(found['problem']))}."
        )
        _again("Refresh" if found["is_running"] else "Try again", wants_new=not found["is_running"])


def _draw_figures(
    visit: Visit, found: Mapping[str, Any], changes: Mapping[str, Any] | None, chains: Sequence[Mapping[str, Any]]
) -> None:
    faults = sum(place["fault"] is not None for place in found["places"])
    count = visit.formats.count
    show_figures(
        [
            Figure(
                "The log",
                "verified" if found["is_sound"] else "was changed",
                "no entry was changed" if found["is_sound"] else f"{count(faults)} parts: see below",
                _HOW,
                "good" if found["is_sound"] else "bad",
            ),
            Figure(
                "Changes up to entry",
                count(None if changes is None else changes["last"]),
                f"{count(None if changes is None else changes['entries'])} entries",
                "Each entry carries the hash of the previous one, so edits, deletions and insertions are detected.",
            ),
            Figure(
                "Verified up to",
                count(None if changes is None else changes["confirmed_upto"]),
                "by the external signed log",
                "A signed chain outside the database confirms entries up to this one. It lags by a second or two.",
            ),
            Figure(
                "Checkpoints",
                count(sum(place["checkpoints"] or 0 for place in chains)),
                f"in {visit.formats.counted(len(chains), 'external log')}",
                "Signatures (Ed25519) with the installation's key; each covers all earlier entries.",
            ),
        ]
    )


_HOW: Final = (
    "Each entry contains the hash of the previous one; all hashes are computed again. Same result as `tollkeeper audit "
    "verify` in the control plane's data directory. Only that command verifies other machines' logs and a sink."
)


def _again(label: str, *, wants_new: bool) -> None:
    def look() -> None:
        st.session_state["audit_verify_again"] = wants_new

    st.button(label, icon=":material/refresh:", type="tertiary", key="audit_again", on_click=look)


def _spoken(noun: str) -> str:
    return "All kinds of objects" if noun == "all" else noun.replace("_", " ").capitalize()


def _place_row(place: Mapping[str, Any]) -> dict[str, object]:
    fault, is_chain = place["fault"], place["checkpoints"] is not None
    remarks = [*([_told(fault)] if fault is not None else []), *place["notes"]]
    if place["erased"]:
        remarks.append(f"{place['erased']} entries were emptied by erasures, which are recorded")
    return {
        "What": _named(str(place["place"])),
        "State": "✓ verified" if fault is None else "✗ changed",
        "Entries": place["entries"],
        "Last entry": place["last"],
        "Checkpoints": place["checkpoints"],
        "Signed until entry": place["signed_upto"] if is_chain else place["confirmed_upto"],
        "Remarks": "; ".join(remarks),
    }


def _named(place: str) -> str:
    """Return the display name of a part of the log; chains of files are named after the process that writes them."""
    if place == _DATABASE:
        return "changes of the configuration"
    name = place.partition(".")[0]
    what = "external signed log" if name == _WITNESS else "audited requests"
    return f"{what} (audit/{place})"


def _told(fault: Mapping[str, Any]) -> str:
    where = f"entry {fault['entry']}" if fault["entry"] is not None else "as a whole"
    return f"{where}: {fault['what']}"
