"""Puts on record, signed, that a backup was put back: what it did not have is not missed by verification any more."""

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
    """Who says that a backup was put back, and why."""

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
    """Write what is accepted into the chain that vouches for the database, and into the database's own audit.

    Only what a backup explains is accepted: an end that is not there, in the database or, against the sink, of whole
    chains. Raises ConfigurationError on anything else, if there is nothing to accept, and while a control plane
    writes the chain.
    """
    reason = restorer.reason.strip()
    if not 0 < len(reason) <= _MOST_REASON or not reason.isprintable():
        raise ConfigurationError(f"give --reason, one line of at most {_MOST_REASON} characters: it stays in the log")
    keys = AuditKeys([signer.public])
    reports = verify_chains(data, keys)
    broken = next((report.fault for report in reports if report.fault is not None), None)
    if broken is not None:
        raise ConfigurationError(f"{broken.place} does not verify, which no backup explains: {broken.what}")
    database.check_schema()
    vouching = compare_database(database, reports)
    if vouching.rows.fault is not None:
        raise ConfigurationError(
            f"the control database does not verify, which no backup explains: {vouching.rows.fault.what}"
        )
    last, last_hash = vouching.before
    facts = AcceptedFacts(
        at_ns=now_ns(),
        actor=restorer.actor,
        reason=reason,
        entry=last,
        entry_hash=last_hash,
        voided=sum(1 for entry in vouching.vouched if entry > last),
        chains=() if sink is None else _ends(sink, keys, data, reports, is_shared=is_shared),
    )
    if vouching.fault is None and not facts.chains:
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
    """Return the chains of which the sink has more than is here. Raises ConfigurationError on another difference."""
    before, here = accepted_ends(reports), {chain: report.last for chain, report in longest_of(reports).items()}
    looked_at = check_sink(sink, keys, data, reports, before, is_shared=is_shared)
    ends = {found.chain: here.get(found.chain, 0) for found in looked_at if found.fault is not None}
    for found in check_sink(sink, keys, data, reports, before | ends, is_shared=is_shared):
        if found.fault is not None:
            raise ConfigurationError(
                f"{found.place} differs from what is here, which no backup explains: {found.fault.what}"
            )
    return tuple(EndHere(chain, last) for chain, last in ends.items())
