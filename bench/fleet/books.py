"""What the gateways' records say was charged, and when: exact sums over all of them."""

from collections import deque
from collections.abc import Sequence
from typing import Final

from contracts.recording.records import RequestRecord

SECOND_NS: Final = 1_000_000_000


class Books:
    """The records of one run, those of requests that were refused left out. Times are Unix nanoseconds."""

    def __init__(self, records: Sequence[RequestRecord]) -> None:
        self.served = [record for record in records if record.outcome != "rejected"]
        self.rejected = len(records) - len(self.served)
        self.by_id = {record.request_id.hex(): record for record in self.served}
        self._charges = sorted(
            (record.started_at_ns + offset, tokens)
            for record in self.served
            for offset, tokens in zip(record.charge_offsets_ns, record.charge_tokens, strict=True)
        )

    def most_in_a_window(self, window_ns: int) -> int:
        """Return the most tokens charged in any half-open window of that length, wherever it begins."""
        most = current = 0
        recent: deque[tuple[int, int]] = deque()
        for at_ns, tokens in self._charges:
            recent.append((at_ns, tokens))
            current += tokens
            while recent[0][0] <= at_ns - window_ns:
                current -= recent.popleft()[1]
            most = max(most, current)
        return most

    def charged(self, from_ns: int, until_ns: int) -> int:
        """Return the tokens charged from one moment up to, not including, another."""
        return sum(tokens for at_ns, tokens in self._charges if from_ns <= at_ns < until_ns)

    def least_reserved(self, from_ns: int, until_ns: int) -> int:
        """Return the fewest tokens that requests in progress held at any moment between the two."""
        changes = sorted(change for record in self.served for change in _holdings(record))
        held = 0
        levels: list[int] = []
        for at_ns, difference in changes:
            if at_ns >= until_ns:
                break
            if at_ns > from_ns:
                levels.append(held)
            held += difference
        return min([*levels, held])

    @property
    def misbooked(self) -> list[RequestRecord]:
        """Return the records whose charges and overdraft are not what was used."""
        return [
            record
            for record in self.served
            if record.usage.input_tokens is None
            or record.usage.output_tokens is None
            or sum(record.charge_tokens) + (record.overdraft_tokens or 0)
            != record.usage.input_tokens + record.usage.output_tokens
        ]

    @property
    def tokens(self) -> int:
        """Return the tokens charged in all."""
        return sum(tokens for _, tokens in self._charges)

    @property
    def overdraft_tokens(self) -> int:
        """Return the tokens used beyond what could be charged."""
        return sum(record.overdraft_tokens or 0 for record in self.served)

    @property
    def charged_pico_usd(self) -> int:
        """Return the money charged in all."""
        return sum(record.charged_pico_usd or 0 for record in self.served)

    @property
    def cost_pico_usd(self) -> int:
        """Return what all answers cost by their price cards."""
        return sum(record.cost_pico_usd or 0 for record in self.served)


def _holdings(record: RequestRecord) -> list[tuple[int, int]]:
    """Return when a request's reservation rose or fell, and by how much.

    What was taken before an extension has been used up by it, so the charges tell each height but the last. An
    extension of which nothing was used is not among them: it counts as part of the one before it.
    """
    if not record.charge_offsets_ns or record.reserved_tokens is None:
        return []
    ended_ns = record.started_at_ns + record.duration_ns
    starts = [min(record.started_at_ns + offset, ended_ns) for offset in record.charge_offsets_ns]
    heights = [*record.charge_tokens[:-1], record.reserved_tokens - sum(record.charge_tokens[:-1])]
    return [*zip(starts, heights, strict=True), (ended_ns, -record.reserved_tokens)]
