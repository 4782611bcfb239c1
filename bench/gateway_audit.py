"""Whether the measured gateways' books are true."""

from bench.load.gateway_process import Books, MeasuredGateway
from bench.load.rig import Rig
from bench.report import Report


class Audit:
    """Holds every gateway's books against what its clients saw."""

    def __init__(self, report: Report, rig: Rig) -> None:
        self._report = report
        self._rig = rig
        self._found: dict[str, Books] = {}
        self._before: dict[MeasuredGateway, int] = {}  # requests to others of its name
        self._different = 0

    def open(self, gateway: MeasuredGateway) -> None:
        """Record a gateway before its first request."""
        self._before[gateway] = self._rig.started[gateway.peer.name]

    def close(self, gateway: MeasuredGateway) -> Books:
        """Stop a gateway and take its books, to those of others of its name."""
        name, books = gateway.peer.name, gateway.close_books()
        # Where every request had its reply, `requests_unanswered` being 0, one per request is one per reply.
        started = self._rig.started[name] - self._before.pop(gateway)
        self._different += abs(books.records - started) + abs(books.records - books.recorded)
        self._found[name] = self._found[name] + books if name in self._found else books
        return books

    def add_rows(self) -> None:
        """Add what must be true over all gateways: a record for each reply, none lost, none failed."""
        books = self._found.values()
        n = sum(one.records for one in books)
        replies = sum(self._rig.replies[name] for name in self._found)
        unanswered = sum(self._rig.started[name] for name in self._found) - replies
        self._add("records_not_one_per_reply", self._different, "records", replies)
        self._add("records_dropped", sum(one.lost for one in books), "records", n)
        self._add("replies_failed", sum(self._rig.failed[name] for name in self._found), "replies", replies)
        self._add("requests_unanswered", unanswered, "requests", replies)
        self._add("records_not_ok", sum(one.not_ok for one in books), "records", n)
        for name, one in self._found.items():
            for method, count in sorted(one.methods.items()):
                self._report.add(f"counted_{method}_by_{name}", count / one.records, "share of records", n=one.records)

    def _add(self, metric: str, value: float, unit: str, n: int) -> None:
        self._report.add(metric, value, unit, must=0, better="lower", n=n)
