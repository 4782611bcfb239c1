"""Writes a signed audit entry that a backup was restored, so that verification accepts the entries it did not have."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from backends.audit.chain import AuditChain
from backends.audit.entries import KIND_ACCEPTED, AcceptedFacts, EndHere
from backends.audit.options import audit_root
from backends.audit.signing import AuditKeys, AuditSigner
from backends.audit.sink import Sink
from backends.audit.verification import ChainReport
from backends.control.audit_checks import (
    WITNESS,
    accepted_ends,
    check_sink,
    compare_database,
    longest_of,
    verify_chains,
)
from backends.control.changes import Author, begin_change
from backends.control.database import ControlDatabase
from contracts.errors import ConfigurationError

_MOST_REASON: Final = 500


@dataclass(frozen=True, slots=True)
class Restorer:
    """The person who accepts a restore, and their reason."""

    actor: str
    reason: str


def accept_restore(
    data: Path,
    signer: AuditSigner,
    database: ControlDatabase,
    restorer: Restorer,
    sink: Sink | None = None,
    *,
    is_shared: bool = False,
    now_ns: Callable[[], int] = time.time_ns,
) -> AcceptedFacts:
    """Write the acceptance to the control plane's signed chain and to the database's audit table, and return its facts.

    Only entries missing at an end are accepted, as a restore causes: of the database, or of chains compared with the
    sink. Raises ConfigurationError for any other difference, if nothing is missing, and while a control plane writes
    the chain.
    """
    reason = restorer.reason.strip()
    if not 0 < len(reason) <= _MOST_REASON or not reason.isprintable():
        raise ConfigurationError(f"give --reason, one line of at most {_MOST_REASON} characters: it stays in the log")
    keys = AuditKeys([signer.public])
    reports = verify_chains(data, keys)
    broken = next((report.fault for report in reports if report.fault is not None), None)
    if broken is not None:
        raise ConfigurationError(f"{broken.place} does not verify, and a restore cannot be the cause: {broken.what}")
    database.check_schema()
    check = compare_database(database, reports)
    if check.rows.fault is not None:
        raise ConfigurationError(
            f"the control database does not verify, and a restore cannot be the cause: {check.rows.fault.what}"
        )
    last, last_hash = check.before
    facts = AcceptedFacts(
        at_ns=now_ns(),
        actor=restorer.actor,
        reason=reason,
        entry=last,
        entry_hash=last_hash,
        voided=sum(1 for entry in check.confirmed if entry > last),
        chains=() if sink is None else _ends(sink, keys, data, reports, is_shared=is_shared),
    )
    if check.fault is None and not facts.chains:
        raise ConfigurationError("nothing is missing; there is nothing to accept")
    chain = AuditChain(audit_root(data) / WITNESS, WITNESS, signer, now_ns=now_ns)
    try:
        if not chain.append(KIND_ACCEPTED, facts):
            raise ConfigurationError(f"the audit chain in {chain.directory} cannot be written; nothing was accepted")
    finally:
        chain.close()
    author = Author(restorer.actor, datetime.fromtimestamp(facts.at_ns / 1e9, UTC))
    with database.session() as session:
        detail: dict[str, object] = {"reason": reason, "behind": last, "voided": facts.voided}
        begin_change(session, author, "audit.accept_restore", WITNESS, detail)
    return facts


def _ends(
    sink: Sink, keys: AuditKeys, data: Path, reports: list[ChainReport], *, is_shared: bool
) -> tuple[EndHere, ...]:
    """Return the chains of which the sink has later entries. Raises ConfigurationError for any other difference."""
    before, here = accepted_ends(reports), {chain: report.last for chain, report in longest_of(reports).items()}
    looked_at = check_sink(sink, keys, data, reports, before, is_shared=is_shared)
    ends = {found.chain: here.get(found.chain, 0) for found in looked_at if found.fault is not None}
    for found in check_sink(sink, keys, data, reports, before | ends, is_shared=is_shared):
        if found.fault is not None:
            raise ConfigurationError(
                f"{found.place} differs from this machine's, and a restore cannot be the cause: {found.fault.what}"
            )
    return tuple(EndHere(chain, last) for chain, last in ends.items())
