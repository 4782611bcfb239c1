"""Compares a budget's recorded cost in a period with the charges by gateways."""

from dataclasses import dataclass

from analytics.queries import query
from analytics.rows import number_of, text_of
from backends.store.client import StoreClient
from contracts.rules.limits import EACH, Scope

_FAR_OFF_NS = 4_102_444_800_000_000_000  # the year 2100, within the store's range of times


@dataclass(frozen=True, slots=True)
class SubjectLedger:
    """Sums over the stored requests of one subject in a period; money in pico-USD.

    `owed`: what they cost the budget by today's rules. `counted`: what they were charged when they ended: 0 before the
    budget's creation, the whole reservation for some that are free today (`free_requests`). `corrected`: sum of booked
    corrections of their usage.
    """

    subject: str
    requests: int
    free_requests: int
    owed: int
    counted: int
    corrected: int = 0

    @property
    def adjustment(self) -> int:
        """Return the difference of cost and count in pico-USD, to add to the gateways' count."""
        return self.owed + self.corrected - self.counted


def budget_ledger(
    store: StoreClient, scope: Scope, start_ns: int, end_ns: int | None, counted_from_ns: int
) -> list[SubjectLedger]:
    """Return the sums of stored requests under a budget in USD that were admitted in a period, by subject.

    `counted_from_ns`: when gateways started to count for the budget. All times are Unix nanoseconds. Raises
    StoreUnavailable.
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
    # The remaining entries correct requests that have expired, or are credits.
    return found + [SubjectLedger(name, 0, 0, 0, 0, amount) for name, amount in sorted(corrected.items())]
