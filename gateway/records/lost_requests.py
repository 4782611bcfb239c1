"""Records of requests that were at a target when the gateway died, built at its next start from stored entries.

They are in the journal before budgets are read from it, so that a budget includes their charges, and no more. A request
whose own record exists gets no second one. If the start is interrupted, the next one continues: an entry is deleted
only once the journal has its record.
"""

import logging
from typing import Final

import msgspec
from msgspec.structs import replace

from backends.segment_log.slot_table import KeptValue
from contracts.api.media import MEDIA_OPERATIONS
from contracts.errors import InvalidRecord, LostInCrash
from contracts.metering.usage import UNKNOWN_USAGE, Usage
from contracts.pricing.prices import INPUT_ONLY_OPERATIONS
from contracts.pricing.service_tiers import BATCH
from contracts.recording.records import RequestRecord, decode_record
from contracts.serving.configuration import Snapshot
from gateway.records.journal import Journal, unpack_entry
from gateway.records.recorder import Recorder
from gateway.records.sent_requests import BATCHED, HEAD, NOT_SAID, STREAM, TEMPERATURE, TEMPERED, SentRequests
from gateway.request.charges.settlement import Settlement

_log = logging.getLogger(__name__)

_READ_ENTRIES: Final = 1000
_READ_BYTES: Final = 16 * 1024 * 1024


class _OnlyId(msgspec.Struct, array_like=True, gc=False, tag=RequestRecord.__struct_config__.tag):
    """The first field of a request record."""

    request_id: bytes


_id_decoder: Final = msgspec.msgpack.Decoder(_OnlyId)


def record_lost(
    sent: SentRequests, journal: Journal, recorder: Recorder, settlement: Settlement, snapshot: Snapshot
) -> int:
    """Write records for the requests that the previous process left in progress; return their number."""
    if sent.damaged:
        _log.error(
            "file of requests in progress is damaged: some requests ended by the crash get no record",
            extra={"requests": sent.damaged},
        )
    if not sent.found:
        return 0
    recorded = _recorded_ids(journal)
    lost = unreadable = unwritten = 0
    by_id: dict[bytes, tuple[KeptValue, RequestRecord]] = {}
    for kept in sent.found:
        try:
            record = _lost_record(kept, sent.last_alive_ns, settlement, snapshot)
        except (InvalidRecord, ValueError):
            unreadable += 1
            sent.end(kept.slot)
            continue
        other = by_id.get(record.request_id)
        if record.request_id in recorded or (other is not None and other[1].attempts >= record.attempts):
            sent.end(kept.slot)
            continue
        if other is not None:
            sent.end(other[0].slot)
        by_id[record.request_id] = (kept, record)
    for kept, record in sorted(by_id.values(), key=lambda each: each[1].started_at_ns):
        if recorder.record_lost(record):
            lost += 1
            sent.end(kept.slot)
        else:
            unwritten += 1
    sent.found.clear()
    if lost:
        _log.warning("requests were lost in a crash; their records say lost_in_crash", extra={"requests": lost})
    if unwritten:
        _log.error(
            "records of requests lost in a crash cannot be written; the next start tries again",
            extra={"requests": unwritten},
        )
    if unreadable:
        _log.error("requests in progress at the crash cannot be read", extra={"requests": unreadable})
    return lost


def _recorded_ids(journal: Journal) -> set[bytes]:
    """Return the ids of all requests that have a record in the journal."""
    found: set[bytes] = set()
    at = journal.cursor
    while entries := journal.read(at, max_entries=_READ_ENTRIES, max_bytes=_READ_BYTES):
        for entry in entries:
            try:
                found.add(_id_decoder.decode(unpack_entry(entry)[1]).request_id)
            except msgspec.MsgspecError:
                continue  # a record of another kind
        at = entries[-1].end
    return found


def _lost_record(kept: KeptValue, last_alive_ns: int, settlement: Settlement, snapshot: Snapshot) -> RequestRecord:
    """Return the record of a request that was in progress. Raise InvalidRecord or ValueError if its entry is
    unreadable.
    """
    if len(kept.value) < HEAD.size:
        raise ValueError("an entry is shorter than its head")
    (id, started_at_ns, admission_ns, request_bytes, tokens_in, max_tokens, reserved_tokens, choices, flags) = (
        HEAD.unpack_from(kept.value)
    )
    begins = HEAD.size
    temperature: float | None = None
    if flags & TEMPERED:
        begins += TEMPERATURE.size
        if len(kept.value) < begins:
            raise ValueError("an entry ends within its temperature")
        (temperature,) = TEMPERATURE.unpack_from(kept.value, HEAD.size)
    record = decode_record(kept.value[begins:])
    if not isinstance(record, RequestRecord):
        raise ValueError("an entry holds no request record")
    has_output = record.operation not in INPUT_ONLY_OPERATIONS
    usage = Usage(input_text=tokens_in, output_text=kept.count if has_output else None)
    if record.operation in MEDIA_OPERATIONS:  # nobody knows what units it came to
        usage = UNKNOWN_USAGE
    card = settlement.card_of(
        record.model,
        record.who.tenant,
        record.provider,
        record.region,
        started_at_ns,
        snapshot,
        tier=BATCH if flags & BATCHED else record.service_tier,
    )
    cost = settlement.bill_usage(usage, record.operation, card, record.provider)
    charged, overdraft = cost.total_pico_usd, None
    if kept.amount is not None:  # never more than it held: a hard budget stays what it is
        charged = kept.amount if charged is None else min(charged, kept.amount)
        overdraft = None if cost.total_pico_usd is None else cost.total_pico_usd - charged
    error = LostInCrash("the gateway's process died before the request had ended")
    return replace(
        record,
        request_id=id,
        started_at_ns=started_at_ns,
        duration_ns=max(last_alive_ns - started_at_ns, admission_ns, 0),
        admission_ns=admission_ns,
        outcome="error",
        status=error.status,
        error_code=error.error_code,
        stream=bool(flags & STREAM),
        request_bytes=request_bytes,
        max_tokens=None if max_tokens == NOT_SAID else max_tokens,
        choices=choices,
        temperature=record.temperature if temperature is None else temperature,
        reserved_tokens=None if reserved_tokens == NOT_SAID else reserved_tokens,
        usage=usage,
        count_method="estimate" if usage.is_known else "none",
        cost_pico_usd=cost.total_pico_usd,
        cost_basis=cost.basis,
        price_version=cost.version,
        charged_pico_usd=charged,
        overdraft_pico_usd=overdraft,
    )
