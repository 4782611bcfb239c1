"""Compare a budget's recorded cost in its period with the charges of its requests."""

from dataclasses import dataclass

from analytics.queries import query
from analytics.rows import number_of, text_of
from backends.store.client import StoreClient
from contracts.rules.limits import EACH, Scope

_FAR_OFF_NS = 4_102_444_800_000_000_000  # the year 2100: within what the store's moments hold


@dataclass(frozen=True, slots=True)
class SubjectLedger:
    """The stored requests of one subject in a period; money in pico-USD.

    `owed` is what they cost the budget by today's rules. `counted` is what was charged to it when they ended: nothing
    for requests from before it was made, a whole reservation for some that are free today. `free_requests` are these.
    `corrected` is what booked corrections of their usage come to.
    """

    subject: str
    requests: int
    free_requests: int
    owed: int
    counted: int
    corrected: int = 0

    @property
    def adjustment(self) -> int:
        """Return what must be added to what gateways counted, so that it is what the requests cost."""
        return self.owed + self.corrected - self.counted


def budget_ledger(
    store: StoreClient, scope: Scope, start_ns: int, end_ns: int | None, counted_from_ns: int
) -> list[SubjectLedger]:
    """Sum the stored requests under a budget in USD that were admitted in a period, by subject.

    `counted_from_ns` is when gateways began to count for the budget. All times are Unix nanoseconds. Raise
    StoreUnavailable as the store does.
    """
    tag, _, tag_value = scope.subject.partition("=") if scope.level == "tag" else ("", "", "")
    wanted = EACH if tag_value == EACH else scope.subject
    parameters = {
        "tenant": scope.tenant,
        "model": scope.model,
        "level": scope.level,
        "wanted": wanted,
        "tag": tag,
        "start": start_ns,
        "end": _FAR_OFF_NS if end_ns is None else end_ns,
        "counted_from": counted_from_ns,
    }
    corrected = {
        text_of(row["subject_label"]): number_of(row["cost_pico_sum"])
        for row in store.query(query("budget_corrections"), parameters)
    }
    found = [
        SubjectLedger(
            subject=text_of(row["subject_label"]),
            requests=number_of(row["request_count"]),
            free_requests=number_of(row["free_count"]),
            owed=number_of(row["charged_pico_sum"]) - number_of(row["free_pico_sum"]),
            counted=number_of(row["counted_pico_sum"]),
            corrected=corrected.pop(text_of(row["subject_label"]), 0),
        )
        for row in store.query(query("budget_ledger"), parameters)
    ]
    # What is left corrects requests that are no longer kept, or is a credit.
    return found + [SubjectLedger(name, 0, 0, 0, 0, amount) for name, amount in sorted(corrected.items())]
