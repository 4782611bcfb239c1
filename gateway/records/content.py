"""Store prompts and answers of tenants that enable it: redacted, and written after the client has its answer."""

import asyncio
import logging
from collections import deque
from pathlib import Path
from typing import Final

from contracts.errors import ConfigurationError
from contracts.recording.message_text import answer_text, prompt_text
from contracts.recording.records import ContentRecord, encode_record
from contracts.recording.redaction import Redactor, read_patterns
from gateway.records.journal import Journal
from gateway.replies.answer_copy import AnswerCopy
from gateway.replies.reply import Reply
from gateway.request.request_state import RequestState

_log = logging.getLogger(__name__)
_ENCODING: Final = "redacted"
# Exchanges that wait for redaction, and their bytes; beyond, they are counted and not kept.
_MOST_WAITING: Final = 10_000
_MOST_WAITING_BYTES: Final = 32 << 20
_MOST_AT_ONCE: Final = 128  # that are redacted before others have their turn: as many as end in one turn of the loop
_SMALL_BYTES: Final = 128 << 10  # of those together: a thread would cost more than their redaction, and hold up as much


class _Said:
    """An exchange that waits to be stored: the request's body, and the bytes sent to the client."""

    __slots__ = ("body", "model", "request_id", "sent", "size", "started_at_ns", "tenant")

    def __init__(
        self, request_id: bytes, started_at_ns: int, tenant: str, model: str, body: bytes, sent: bytes
    ) -> None:
        self.request_id = request_id
        self.started_at_ns = started_at_ns
        self.tenant = tenant
        self.model = model
        self.body = body
        self.sent = sent
        self.size = len(body) + len(sent)


class ContentKeeper:
    """Stores prompts and answers of tenants that enable it; no other tenant's content is read.

    Content is not usage: if the journal is nearly full, or if too many requests wait, content is dropped and counted.
    """

    def __init__(self, journal: Journal, redactor: Redactor, max_bytes: int) -> None:
        self._journal = journal
        self._redactor = redactor
        self._max_bytes = max_bytes
        self._waiting: deque[_Said] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._waiting_bytes = 0
        self.kept = 0
        self.dropped = 0

    def wants(self, life: RequestState) -> bool:
        """Return whether the content of this request's tenant is stored."""
        tenant = life.snapshot.tenants.get(life.who.tenant)
        return tenant is not None and tenant.keeps_content and life.is_authenticated

    def watch(self, reply: Reply) -> None:
        """Copy the answer while it is sent. If the response cache copies it already, that copy is used."""
        reply.copy_to(AnswerCopy(self._max_bytes))

    def keep(self, life: RequestState, reply: Reply | None) -> None:
        """Queue a prompt and its answer to be stored. The client does not wait for this."""
        if life.outcome == "rejected":
            return  # never sent to a model: a client that tries again and again must not fill a disk
        copied = None if reply is None else reply.copied()
        sent = b"" if copied is None else copied[0] + copied[1]
        body = life.body if len(life.body) <= self._max_bytes else b""
        model = life.model.id if life.model else ""
        said = _Said(life.id_bytes, life.started_at_ns, life.who.tenant, model, body, sent)
        if len(self._waiting) >= _MOST_WAITING or self._waiting_bytes + said.size > _MOST_WAITING_BYTES:
            self.dropped += 1
            return
        self._waiting.append(said)
        self._waiting_bytes += said.size
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work(), name="content")

    async def close(self) -> None:
        """Wait for what is in progress."""
        if self._worker is not None:
            await self._worker

    async def _work(self) -> None:
        """Redact and store the waiting exchanges, several at once."""
        try:
            while self._waiting:
                some, size = self._next()
                if size <= _SMALL_BYTES:
                    self._keep(self._packed_each(some))
                    await asyncio.sleep(0)
                else:  # off the loop: a long prompt takes milliseconds
                    self._keep(await asyncio.to_thread(self._packed_each, some))
                self._waiting_bytes -= size
        finally:
            self._worker = None

    def _next(self) -> "tuple[list[_Said], int]":
        """Return what is redacted together, and its bytes: some exchanges that are small together, or a large one."""
        first = self._waiting.popleft()
        some, size = [first], first.size
        while self._waiting and len(some) < _MOST_AT_ONCE and size + self._waiting[0].size <= _SMALL_BYTES:
            some.append(self._waiting.popleft())
            size += some[-1].size
        return some, size

    def _keep(self, found: "list[tuple[int, bytes] | None]") -> None:
        packed = [one for one in found if one is not None]
        self.dropped += len(found) - len(packed)
        if not packed:
            return
        if self._journal.append_all(packed):
            self.kept += len(packed)
            return
        kept = sum([self._journal.append_all([one]) for one in packed]) if len(packed) > 1 else 0
        self.kept += kept
        self.dropped += len(packed) - kept

    def _packed_each(self, some: "list[_Said]") -> "list[tuple[int, bytes] | None]":
        return [self._packed(said) for said in some]

    def _packed(self, said: "_Said") -> tuple[int, bytes] | None:
        """Return an exchange's time and its redacted record; `None` if it cannot be encoded."""
        try:
            prompt, completion = self._redacted(said.body, said.sent)
        except Exception as error:  # what could not be redacted is not kept, and not logged either
            _log.error("content cannot be redacted", extra={"error": type(error).__name__})
            return None
        record = ContentRecord(
            request_id=said.request_id,
            started_at_ns=said.started_at_ns,
            tenant=said.tenant,
            model=said.model,
            encoding=_ENCODING,
            prompt=prompt,
            completion=completion,
        )
        return said.started_at_ns, encode_record(record)

    def _redacted(self, body: bytes, sent: bytes) -> tuple[str, str]:
        redact = self._redactor.redact_all
        return _encodable(prompt_text(body, redact)), _encodable(answer_text(sent, redact))


def _encodable(text: str) -> str:
    """Join surrogate pairs that arrived in two pieces, and replace single surrogates, which UTF-8 cannot encode."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read_redactor(path: Path | None) -> Redactor:
    """Return a redactor with the operator's patterns, if a file has any. Raise ConfigurationError if it is invalid."""
    if path is None:
        return Redactor()
    try:
        return Redactor(read_patterns(path.read_text()))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"TOLLKEEPER_CONTENT_PATTERNS names {path}, which cannot be read ({type(error).__name__})"
        ) from error
