"""Verification of the audit log over HTTP: the result of `tollkeeper audit verify` for this data directory.

Verification reads every entry, so it runs in the background, one at a time, and its result is kept for a while.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from backends.audit.options import AuditOptions
from backends.audit.signing import AuditKeys, own_keys
from backends.control.audit_checks import DATABASE, WITNESS, AuditFindings, check_audit
from backends.control.database import ControlDatabase
from backends.secrets.secret_files import SecretFiles
from contracts.errors import TollkeeperError
from contracts.recording.moments import utc_now
from gateway.control.access import Admin
from gateway.control.fields import Resource

_log = logging.getLogger(__name__)

router = APIRouter(prefix="/v1/audit/verification", tags=["audit"])

_KEPT_SECONDS: Final = 600
_PATIENCE_SECONDS: Final = 1.0  # of who asks: a small log is verified by then, a large one is looked at again
_MOST_WAITING: Final = 4  # who asks beyond these is answered at once: each that waits holds a thread of the plane's
_REST: Final = 10  # times as long as one took: whoever asks, however often, it is no more than a tenth of the time


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a verification. `problem` says why there is none, if so."""

    checked_at: datetime
    took_seconds: float
    findings: AuditFindings | None
    problem: str = ""


def check_with_sink(options: AuditOptions) -> Callable[[Path, AuditKeys, ControlDatabase], AuditFindings]:
    """Return a check that also accepts confirmations by chains of other control planes, as far as the sink has them.

    Without a sink it is `check_audit`.
    """

    def check(data: Path, keys: AuditKeys, database: ControlDatabase) -> AuditFindings:
        return check_audit(data, keys, database, options.open_sink() if options.sink else None, is_shared=True)

    return check


class AuditVerifier:
    """Verifies the audit log of a data directory and its control database on request. Thread-safe."""

    def __init__(
        self,
        database: ControlDatabase,
        data: Path,
        clock: Callable[[], datetime] = utc_now,
        check: Callable[[Path, AuditKeys, ControlDatabase], AuditFindings] = check_audit,
        monotonic: Callable[[], float] = time.monotonic,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        self._leads = leads
        self._database = database
        self._data = data
        self._clock = clock
        self._check = check
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._waiting = threading.BoundedSemaphore(_MOST_WAITING)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audit-verification")
        self._running: Future[Verification] | None = None
        self._last: Verification | None = None

    def look(
        self, max_age_seconds: float, patience_seconds: float = _PATIENCE_SECONDS
    ) -> tuple[Verification | None, bool]:
        """Return the last result (`None` if there is none yet), and whether a verification is in progress.

        Starts a verification if the last result is older than `max_age_seconds` and than ten times its duration, and
        waits up to `patience_seconds` for it.
        """
        with self._lock:
            last = self._last
            is_old = last is None or (self._clock() - last.checked_at).total_seconds() > max(
                max_age_seconds, _REST * last.took_seconds
            )
            if self._running is None and is_old:
                self._running = self._thread.submit(self._verify)
            running = self._running
        if running is not None and self._waiting.acquire(blocking=False):
            try:
                wait([running], patience_seconds)
            finally:
                self._waiting.release()
        with self._lock:
            return self._last, self._running is not None

    def close(self) -> None:
        """Start no more verifications; one in progress ends by itself."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _verify(self) -> Verification:
        began, at = self._monotonic(), self._clock()
        findings, problem = None, ""
        if not self._leads():
            problem = "another control plane confirms the audit log at present; ask that one"
        try:
            findings = (
                None
                if problem
                else self._check(self._data, own_keys(SecretFiles(self._data / "secrets")), self._database)
            )
        except TollkeeperError as error:
            problem = error.message
        except OSError as error:
            problem = f"{error.filename or 'the audit log'} cannot be read ({error.strerror})"
        except Exception:  # the edge of the thread: the caller gets no finding, and the cause is logged
            _log.exception("audit_not_verified")
            problem = "verification failed; see the control plane's log"
        found = Verification(at, self._monotonic() - began, findings, problem)
        with self._lock:
            self._last, self._running = found, None
        return found


class FaultOut(BaseModel):
    """The first fault: `entry` is the number of the first wrong entry, if it concerns one."""

    what: str
    segment: str = ""
    entry: int | None = None


class PlaceOut(BaseModel):
    """The result for one place: a chain of files, or the control database.

    `last` is the number of its last entry. A chain has checkpoints, of which the last signs all entries up to
    `signed_upto`; the database is confirmed by a chain up to `confirmed_upto`.
    """

    place: str
    entries: int
    last: int
    checkpoints: int | None = None
    signed_upto: int | None = None
    confirmed_upto: int | None = None
    erased: int | None = None
    notes: list[str] = []
    fault: FaultOut | None = None


class VerificationOut(Resource):
    """Whether everything verified is intact (null: unknown), when, and whether a verification is running now."""

    is_sound: bool | None
    checked_at: datetime | None
    took_seconds: float | None
    is_running: bool
    problem: str
    places: list[PlaceOut]


class VerificationQuery(BaseModel):
    """Maximum age of a result."""

    max_age_seconds: int = Field(
        default=_KEPT_SECONDS,
        ge=1,
        le=86_400,
        description="Maximum age of the result in seconds; older ones are computed again",
    )


@router.get("", summary="Return the result of verifying the audit log, with its last entry and checkpoint")
def verification(wanted: Annotated[VerificationQuery, Query()], author: Admin, request: Request) -> VerificationOut:
    """Answers within about a second; while `is_running`, ask again. A caller restricted to a tenant gets only the log
    of changes. A sink is verified by `tollkeeper audit verify --sink`.
    """
    verifier: AuditVerifier = request.app.state.audit_verifier
    found, is_running = verifier.look(wanted.max_age_seconds)
    is_bound = bool(author.tenant_id)
    if found is None or found.findings is None:
        return VerificationOut(
            is_sound=None,
            checked_at=None if found is None else found.checked_at,
            took_seconds=None if found is None else found.took_seconds,
            is_running=is_running,
            problem="" if found is None else _UNSAID if is_bound else found.problem,
            places=[],
        )
    places = (
        [_bare(place) for place in found.findings.places if _is_of_changes(place)]
        if is_bound
        else [*found.findings.places]
    )
    return VerificationOut(
        is_sound=all(place["fault"] is None for place in places),
        checked_at=found.checked_at,
        took_seconds=found.took_seconds,
        is_running=is_running,
        problem="",
        places=[PlaceOut.model_validate(place) for place in places],
    )


_UNSAID: Final = "it could not be read; administrators of the whole installation see the reason"


def _bare(place: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what counts other tenants' requests and erasures, names other chains, or says who restored a backup."""
    return {**place, "notes": [], "erased": None}


def _is_of_changes(place: Mapping[str, Any]) -> bool:
    """Return whether a place contains changes of the configuration; others count all tenants' requests."""
    name = str(place["place"])
    return name in (DATABASE, WITNESS) or name.startswith(f"{WITNESS}.restored")
