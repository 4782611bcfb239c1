"""What was said, for tenants that want it kept: redacted, then journalled, after the client has its answer."""

import asyncio
import logging
from pathlib import Path
from typing import Final

from contracts.errors import ConfigurationError
from contracts.recording.records import ContentRecord, encode_record
from contracts.recording.redaction import Redactor, read_patterns
from contracts.recording.said import answered, asked
from gateway.records.journal import Journal
from gateway.replies.answer_copy import AnswerCopy
from gateway.replies.reply import Reply
from gateway.request.request_state import RequestState

_log = logging.getLogger(__name__)
_ENCODING: Final = "redacted"
# Exchanges that wait for redaction, and their bytes; beyond, they are counted and not kept.
_MOST_WAITING: Final = 1000
_MOST_WAITING_BYTES: Final = 32 << 20


class ContentKeeper:
    """Keeps prompts and completions of tenants whose setting says so; nobody else's are looked at.

    Content is no usage: where the journal has no room to spare, or too much waits, it is dropped and counted.
    """

    def __init__(self, journal: Journal, redactor: Redactor, max_bytes: int) -> None:
        self._journal = journal
        self._redactor = redactor
        self._max_bytes = max_bytes
        self._under_way: set[asyncio.Task[None]] = set()
        self._waiting_bytes = 0
        self.kept = 0
        self.dropped = 0

    def wants(self, life: RequestState) -> bool:
        """Return whether this request's tenant has its content kept."""
        tenant = life.snapshot.tenants.get(life.who.tenant)
        return tenant is not None and tenant.keeps_content and life.is_authenticated

    def watch(self, reply: Reply) -> None:
        """Have the answer copied as it leaves. A copy for the answer cache takes its place, and does as well."""
        reply.copy_to(AnswerCopy(self._max_bytes))

    def keep(self, life: RequestState, reply: Reply | None) -> None:
        """Record what was asked and answered, and keep it soon; this takes no time that the client waits for."""
        if life.outcome == "rejected":
            return  # never sent to a model: a client that tries again and again must not fill a disk
        copied = None if reply is None else reply.copied()
        sent = b"" if copied is None else copied[0] + copied[1]
        body = life.body if len(life.body) <= self._max_bytes else b""
        size = len(body) + len(sent)
        if len(self._under_way) >= _MOST_WAITING or self._waiting_bytes + size > _MOST_WAITING_BYTES:
            self.dropped += 1
            return
        model = life.model.id if life.model else ""
        work = self._redact_and_keep(life.id_bytes, life.started_at_ns, life.who.tenant, model, body, sent)
        task = asyncio.get_running_loop().create_task(work, name="content")
        self._under_way.add(task)
        self._waiting_bytes += size
        task.add_done_callback(lambda done: self._end(done, size))

    def _end(self, task: asyncio.Task[None], size: int) -> None:
        self._under_way.discard(task)
        self._waiting_bytes -= size

    async def close(self) -> None:
        """Wait for what is under way."""
        await asyncio.gather(*self._under_way)

    async def _redact_and_keep(
        self, request_id: bytes, started_at_ns: int, tenant: str, model: str, body: bytes, sent: bytes
    ) -> None:
        try:
            # Off the loop: a long prompt takes milliseconds.
            prompt, completion = await asyncio.to_thread(self._redacted, body, sent)
        except Exception as error:  # the task's edge; what could not be redacted is not kept, and not logged either
            _log.error("content cannot be redacted", extra={"error": type(error).__name__})
            self.dropped += 1
            return
        record = ContentRecord(
            request_id=request_id,
            started_at_ns=started_at_ns,
            tenant=tenant,
            model=model,
            encoding=_ENCODING,
            prompt=prompt,
            completion=completion,
        )
        is_kept = self._journal.append_all([(started_at_ns, encode_record(record))])
        self.kept += is_kept
        self.dropped += not is_kept

    def _redacted(self, body: bytes, sent: bytes) -> tuple[str, str]:
        redact = self._redactor.redact_all
        return _encodable(asked(body, redact)), _encodable(answered(sent, redact))


def _encodable(text: str) -> str:
    """Put surrogate pairs together that came in two pieces; half of one, which UTF-8 does not know, is replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read_redactor(path: Path | None) -> Redactor:
    """Return the redactor with the operator's patterns, where a file has any. Raises ConfigurationError."""
    if path is None:
        return Redactor()
    try:
        return Redactor(read_patterns(path.read_text()))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"TOLLKEEPER_CONTENT_PATTERNS names {path}, which cannot be read ({type(error).__name__})"
        ) from error
