"""Verification of an installation's whole audit log: chains, the database, and a sink's copies."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backends.audit.entry_hashes import EntryHashes
from backends.audit.options import audit_root
from backends.audit.places import DirectoryPlace, chain_directories
from backends.audit.shipping import verify_sink
from backends.audit.signing import AuditKeys
from backends.audit.sink import Sink, folder_of
from backends.audit.verification import ChainReport, Fault, verify_chain
from backends.control.audit_chain import AuditRow, RowsReport, read_rows, verify_rows
from backends.control.database import ControlDatabase

DATABASE = "control database"
WITNESS = "control"  # the folder of the chain that confirms the control database's entries
_GONE = (
    "put audit/ back from a backup, or put on record with `tollkeeper audit accept-restore` why it is gone "
    "(a control plane that has never run here begins a chain at its start)"
)


@dataclass(frozen=True, slots=True)
class AuditFindings:
    """The result of a verification: the verified chains (places), and the first fault of each, if any."""

    places: list[dict[str, Any]]
    faults: list[Fault]

    @property
    def is_sound(self) -> bool:
        """Return whether there is no fault."""
        return not self.faults


def check_audit(
    data: Path,
    keys: AuditKeys,
    database: ControlDatabase | None = None,
    sink: Sink | None = None,
    *,
    is_shared: bool = False,
) -> AuditFindings:
    """Verify all chains of a data directory, the database's, and the sink's copies of them.

    `is_shared`: other installations or control planes use the sink too, so a chain that exists only there is not
    missing, and its confirmations count.
    """
    reports = verify_chains(data, keys)
    in_sink: list[ChainReport] = []
    if sink is not None:
        in_sink = list(check_sink(sink, keys, data, reports, accepted_ends(reports), is_shared=is_shared))
    here = {report.chain for report in reports}
    elsewhere = [one for one in in_sink if is_shared and one.fault is None and one.chain not in here]
    places = list(map(_shown, reports))
    faults = [report.fault for report in reports]
    if database is not None:
        check = compare_database(database, [*reports, *elsewhere])
        if not check.confirmed and DirectoryPlace(audit_root(data) / WITNESS).is_written():
            check = replace(check, is_starting=True)
        places.append(_shown_database(check))
        faults.append(check.fault)
    places.extend(map(_shown, in_sink))
    faults += [report.fault for report in in_sink]
    return AuditFindings(places, [fault for fault in faults if fault is not None])


def verify_chains(data: Path, keys: AuditKeys) -> list[ChainReport]:
    """Verify all chains of a data directory."""
    return [verify_chain(DirectoryPlace(directory), keys) for directory in chain_directories(audit_root(data))]


@dataclass(frozen=True, slots=True)
class DatabaseCheck:
    """The database's entries compared with the chains' confirmations: `first_wrong` is the first missing or changed
    entry, and `is_gone` says that it is missing.

    `before` is the number and hash of the entry before it, or of the last entry if none is wrong; number 0 for no
    entry.
    """

    rows: RowsReport
    confirmed: EntryHashes
    first_wrong: int | None
    is_gone: bool
    before: tuple[int, str]
    missing: tuple[int, str] | None = None  # the first entry that names a missing chain, and that chain
    is_starting: bool = False  # a control plane has opened its chain, and will confirm the entries within a second

    @property
    def fault(self) -> Fault | None:
        """Return the first fault of the database's entries."""
        if self.rows.fault is not None:
            return Fault(DATABASE, self.rows.fault.what, entry=self.rows.fault.entry)
        if self.first_wrong is None and self.missing is not None:
            entry, chain = self.missing
            return Fault(
                DATABASE,
                f"chain {chain}, which confirms the entries since this one, is gone: entries at the end may have "
                f"been cut; {_GONE}",
                entry=entry,
            )
        if self.first_wrong is None and self.rows.entries and not self.confirmed and not self.is_starting:
            return Fault(DATABASE, f"no chain confirms the entries: those at the end may have been cut; {_GONE}")
        if self.first_wrong is None:
            return None
        told = "is gone" if self.is_gone else "differs"
        return Fault(
            DATABASE,
            f"the entry {told}: a signed chain outside the database confirms it; if a backup was restored, record it "
            "with `tollkeeper audit accept-restore`",
            entry=self.first_wrong,
        )


class _Comparison:
    """Merges the database's entries and the confirmations, both ascending, so that neither is stored twice."""

    def __init__(self, confirmed: EntryHashes) -> None:
        self._pairs = confirmed.pairs()
        self._next = next(self._pairs, None)
        self.first_wrong: int | None = None
        self.is_gone = False
        self.before = (0, "")

    def along(self, rows: Iterator[AuditRow]) -> Iterator[AuditRow]:
        for row in rows:
            self._look(row.id, row.hash)
            yield row

    def end(self) -> None:
        """Record confirmed entries after the last one as missing."""
        if self.first_wrong is None and self._next is not None:
            self.first_wrong, self.is_gone = self._next[0], True

    def _look(self, entry: int, digest: str) -> None:
        if self.first_wrong is not None:
            return
        wanted = self._next
        if wanted is not None and wanted[0] <= entry:
            if wanted != (entry, digest):
                self.first_wrong, self.is_gone = wanted[0], wanted[0] < entry
                return
            self._next = next(self._pairs, None)
        self.before = (entry, digest)


def compare_database(database: ControlDatabase, reports: list[ChainReport]) -> DatabaseCheck:
    """Verify the database's chain, and compare its entries with the chains' confirmations."""
    confirmed = _confirmed(reports)
    compared = _Comparison(confirmed)
    with database.session() as session:
        rows = verify_rows(compared.along(read_rows(session)))
    compared.end()
    here = {report.chain for report in reports}
    accepted = max((one.entry for report in reports for one in report.accepted), default=0)
    gone = ((entry, chain) for chain, entry in rows.begun.items() if chain not in here and entry > accepted)
    return DatabaseCheck(
        rows, confirmed, compared.first_wrong, compared.is_gone, compared.before, min(gone, default=None)
    )


def check_sink(
    sink: Sink,
    keys: AuditKeys,
    data: Path,
    reports: list[ChainReport],
    accepted: Mapping[str, int],
    *,
    is_shared: bool = False,
) -> Iterator[ChainReport]:
    """Verify a sink's copy of each chain, and compare it with the local chain, or with its accepted end."""
    here = {folder_of(chain): report for chain, report in longest_of(reports).items()}
    for folder in sink.folders():
        report = here.get(folder)
        local = None if report is None else DirectoryPlace(audit_root(data) / report.place)
        found = verify_sink(sink, folder, keys, local, report.first if report is not None else 1, accepted)
        if report is None and found.fault is None and accepted.get(found.chain) != 0 and not is_shared:
            what = "the chain is gone here as a whole; where another machine writes it, say --shared-sink"
            found.fault = Fault(found.place, what)
        yield found


def longest_of(reports: list[ChainReport]) -> dict[str, ChainReport]:
    """Return the chains by name; of several copies of a chain the longest, as a restored copy may be shorter."""
    found: dict[str, ChainReport] = {}
    for report in sorted(reports, key=lambda each: each.last):
        if report.chain:
            found[report.chain] = report
    return found


def accepted_ends(reports: list[ChainReport]) -> dict[str, int]:
    """Return the last local entry, by chain, of chains whose local copy was accepted as shorter than the sink's."""
    return {end.chain: end.last for report in reports for one in report.accepted for end in one.chains}


def _confirmed(reports: list[ChainReport]) -> EntryHashes:
    """Return the confirmations of all chains; an acceptance in one of them covers earlier confirmations of others."""
    parts = []
    for report in reports:
        later = [one.entry for other in reports for one in other.accepted if one.at_ns > report.witnessed_at_ns]
        parts.append(report.witnessed.upto(min(later)) if later else report.witnessed)
    told = [part for part in parts if part]
    return told[0] if len(told) == 1 else EntryHashes(pair for part in told for pair in part.pairs())


def _shown(report: ChainReport) -> dict[str, Any]:
    return {
        "place": report.place,
        "chain": report.chain,
        "entries": report.entries,
        "last": report.last,
        "checkpoints": report.checkpoints,
        "signed_upto": report.signed_upto,
        "notes": report.notes,
        "fault": _told(report.fault),
    }


def _told(fault: Fault | None) -> dict[str, Any] | None:
    if fault is None:
        return None
    return {"place": fault.place, "segment": fault.segment, "entry": fault.entry, "what": fault.what}


def _shown_database(check: DatabaseCheck) -> dict[str, Any]:
    """Return the database's chain in the form of `_shown`."""
    return {
        "place": DATABASE,
        "entries": check.rows.entries,
        "last": check.rows.last,
        "confirmed_upto": max(check.confirmed, default=0),
        "erased": check.rows.erased,
        "notes": [],
        "fault": _told(check.fault),
    }
