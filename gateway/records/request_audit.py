"""The audit log of requests, for tenants that enable it: who asked which model what, as hashes, in a chain on disk."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from backends.audit.entries import KIND_REQUEST, RequestFacts
from backends.audit.keyed_hash import KeyedHash
from backends.audit.options import AuditOptions
from backends.processes.beat import until_beat
from backends.secrets.secret_files import SecretFiles
from contracts.errors import ConfigurationError, Unavailable
from gateway.replies.answer_copy import AnswerDigest
from gateway.replies.reply import Reply
from gateway.request.request_state import RequestState
from gateway.wire.exchange import Exchange

if TYPE_CHECKING:
    from backends.audit.chain import AuditChain
    from backends.audit.tender import ChainTender

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 1.0


class RequestAudit:
    """Writes an entry for every request of such a tenant, refusals included, before its answer's end is sent.

    Its chain starts with the first of them. While it cannot be written these tenants are refused: an audit with gaps
    proves nothing. Other tenants' requests are not examined.
    """

    def __init__(
        self,
        directory: Path,
        writer: str,
        secrets: SecretFiles,
        options: AuditOptions,
        address_of: Callable[[Exchange], str] = lambda exchange: exchange.address,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._writer = writer
        self._secrets = secrets
        self._options = options
        self._address_of = address_of
        self._now = now
        self._shut_at: float | None = None  # when the chain could last not be opened
        self._unopened = 0  # entries that were due meanwhile
        self._hashes: KeyedHash | None = None
        self._chain: AuditChain | None = None
        self._tender: ChainTender | None = None

    @property
    def is_broken(self) -> bool:
        """Return whether entries cannot be written at present."""
        return self._shut_at is not None or (self._chain is not None and self._chain.is_broken)

    @property
    def is_degraded(self) -> bool:
        """Return whether entries cannot be written, or finished segments do not reach the sink."""
        return self.is_broken or (self._tender is not None and bool(self._tender.fault))

    @property
    def missed(self) -> int:
        """Return the number of entries that could not be written and are not yet reported in the chain."""
        return self._unopened if self._chain is None else self._chain.missed

    def wants(self, life: RequestState) -> bool:
        """Return whether requests of this request's tenant are audited."""
        tenant = life.snapshot.tenants.get(life.who.tenant)
        return tenant is not None and tenant.audits_requests and life.is_authenticated

    def watch(self, life: RequestState, reply: Reply) -> None:
        """Hash the answer while it is sent. Raise Unavailable while entries cannot be written."""
        chain, hashes = self._opened()
        if chain.is_broken:
            raise Unavailable(
                "this tenant's requests are audited, and the audit log cannot be written", code="audit_unavailable"
            )
        reply.digest = AnswerDigest(hashes, life.who.tenant)

    def note(self, lives: Sequence[RequestState]) -> None:
        """Write the entries of ended requests with one write, before the end of their answers is sent."""
        try:
            chain, hashes = self._opened()
        except Unavailable:
            self._unopened += len(lives)
            return
        chain.append_each(KIND_REQUEST, [_facts(life, hashes, self._address_of(life.exchange)) for life in lives])

    async def run(self) -> None:
        """Run the periodic work once a second until cancelled: checkpoints, and segments to the sink."""
        while True:
            await asyncio.sleep(until_beat(_LOOK_SECONDS))
            await self.look()

    async def look(self) -> None:
        """Run the periodic work that is due."""
        if self._tender is None and self._directory.exists():
            try:
                self._opened()
            except Unavailable:
                return
        if self._tender is not None:
            await self._tender.look()

    def close(self) -> None:
        """Sign the entries written so far and close the chain."""
        if self._chain is not None:
            self._chain.close()
            self._chain = None

    def _opened(self) -> "tuple[AuditChain, KeyedHash]":
        if self._chain is None or self._hashes is None:
            from backends.audit.chain import AuditChain  # here: most gateways audit nothing, and need no signatures
            from backends.audit.chain_end import require_key
            from backends.audit.signing import AuditSigner
            from backends.audit.tender import ChainTender

            if self._shut_at is not None and self._now() - self._shut_at < _RETRY_SECONDS:
                raise _shut()  # it takes reading whole segments to find out, and others wait meanwhile
            try:
                require_key(self._directory, self._secrets)
                signer = AuditSigner.of(self._secrets)
                self._hashes = KeyedHash.of(self._secrets)
                self._chain = AuditChain(self._directory, self._writer, signer)
            except ConfigurationError as error:
                if self._shut_at is None:
                    _log.error("audit log cannot be written", extra={"reason": error.message})
                self._shut_at = self._now()
                raise _shut() from error
            self._shut_at = None
            self._chain.missed, self._unopened = self._unopened, 0
            self._tender = ChainTender(self._chain, signer, self._options)
        return self._chain, self._hashes


def _shut() -> Unavailable:
    return Unavailable(
        "this tenant's requests are audited, and the audit log cannot be opened", code="audit_unavailable"
    )


def _facts(life: RequestState, hashes: KeyedHash, address: str) -> RequestFacts:
    who, last, reply, body = life.who, life.last_attempt, life.reply, life.exchange.body
    target = None if last is None else last.target
    return RequestFacts(
        at_ns=life.started_at_ns,
        request=life.id_bytes.hex(),
        tenant=who.tenant,
        team=who.team,
        project=who.project,
        key=who.key_id,
        user_hash=hashes.digest(who.tenant, who.user.encode()) if who.user else "",
        address=address,
        api=life.operation.api,
        asked_for=life.requested_model[:200],
        model=life.model.id if life.model else "",
        version=last.result.model if last is not None else "",
        provider=(target.provider or target.kind) if target is not None else "",
        status=life.status,
        outcome=life.outcome,
        error=life.error.error_code if life.error is not None else "",
        prompt_hash=hashes.digest(who.tenant, body) if body else None,
        response_hash=None if reply is None else reply.hashed(is_whole=life.error is None),
        is_whole=life.error is None,
    )
