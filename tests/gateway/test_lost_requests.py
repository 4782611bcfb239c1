"""Records of requests that a crash ended: exactly one each, wherever between sending and record the process died."""

import tempfile
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.access.identity import Identity
from contracts.metering.usage import Leaf, Usage
from contracts.pricing.prices import NewPrice, PriceBook, price_card
from contracts.recording.records import RequestRecord, decode_record, encode_record
from contracts.serving.configuration import Snapshot
from gateway.limits.estimates.counting import TokenEstimator
from gateway.records.journal import Journal, unpack_entry
from gateway.records.lost_requests import record_lost
from gateway.records.recorder import Recorder
from gateway.records.sent_requests import BATCHED, HEAD, STREAM, SentRequests
from gateway.request.charges.settlement import Settlement
from gateway.request.clock import Clock
from gateway.routing.drill.standalone import standalone_chat

START_NS = 1_790_000_000_000_000_000
WHO = Identity(tenant="acme", team="core", project="apollo", key_id="key_1", user="ann", tags={"job": "7"})
CARD = price_card(NewPrice("m", "v1", {"input_text": Decimal(1), "output_text": Decimal(2)}))
PRICED = Snapshot(1, {}, {}, {}, PriceBook([CARD]))
UNPRICED = Snapshot(1, {}, {}, {}, PriceBook())


class Killed(Exception):
    """The process dies here."""


class Growing:
    def __init__(self, tokens: int) -> None:
        self.output_so_far = tokens


class DyingRecorder(Recorder):
    """Dies before or after one of its writes."""

    steps: Iterator[int] = iter(range(1000))
    has_room = True

    def record_lost(self, record: RequestRecord) -> bool:
        self._step()
        is_kept = self.has_room and super().record_lost(record)
        self._step()
        return is_kept

    def _step(self) -> None:
        if next(self.steps, None) is None:
            raise Killed


class Process:
    """What one gateway process has of its books in a directory. A mapped file outlives it as it is."""

    def __init__(self, directory: Path, max_bytes: int = 1 << 24) -> None:
        self.journal = Journal(directory / "journal", max_bytes=max_bytes)
        self.sent = SentRequests(directory / "sent-requests", Clock())
        self.recorder = DyingRecorder(self.journal, "gw", sent=self.sent)
        self.settlement = Settlement(TokenEstimator())

    def recover(self, snapshot: Snapshot = PRICED, *, lives_for: int = 1000) -> int:
        """Recover, and die before or after the write number `lives_for` (in half steps)."""
        self.recorder.steps = iter(range(lives_for))
        return record_lost(self.sent, self.journal, self.recorder, self.settlement, snapshot)

    def die(self) -> None:
        self.sent.close()
        self.journal.close()


def begin(
    process: Process,
    number: int,
    *,
    attempts: int = 1,
    growing: Growing | None = None,
    flags: int = 0,
    replica: str = "u",
    held: Any = None,
) -> int:
    record = RequestRecord(
        request_id=bytes(16),
        started_at_ns=0,
        duration_ns=0,
        who=WHO,
        model="m",
        pool="p",
        replica=replica,
        provider="openai_http",
        requested_model="m",
        attempts=attempts,
        run_id="run",
        gateway="gw",
    )
    packed, id = encode_record(record), bytes([number]) * 16
    slot = process.sent.begin(id, START_NS + number, 500, 1234, 100, 64, held, 1, flags, packed)
    if growing is not None:
        process.sent.watch(slot, growing, held)
    return slot


def end(process: Process, number: int, slot: int) -> None:
    record = RequestRecord(request_id=bytes([number]) * 16, started_at_ns=START_NS + number, duration_ns=5, who=WHO)
    life = standalone_chat(b"", record.started_at_ns, 0, UNPRICED)
    life.packed, life.sent_slot = encode_record(record), slot
    process.recorder.write([life])


def records(journal: Journal) -> list[RequestRecord]:
    entries = journal.read(journal.cursor, max_entries=10_000, max_bytes=1 << 28)
    found = [decode_record(unpack_entry(entry)[1]) for entry in entries]
    kept = [record for record in found if isinstance(record, RequestRecord)]
    assert len(kept) == len(found)
    return kept


@pytest.fixture
def directory(tmp_path):
    return tmp_path


def lost_record(directory: Path, snapshot: Snapshot = PRICED) -> RequestRecord:
    process = Process(directory)
    assert process.recover(snapshot) == 1
    [found] = records(process.journal)
    assert process.sent.open_entries == 0
    process.die()
    return found


def test_the_record_says_who_asked_for_what_and_what_is_known_of_the_answer(directory):
    process = Process(directory)
    begin(process, 1, growing=Growing(30), flags=STREAM)
    process.sent.note_progress()
    process.die()
    found = lost_record(directory)
    assert (found.request_id, found.started_at_ns) == (b"\x01" * 16, START_NS + 1)
    assert (found.who, found.model, found.pool, found.replica, found.run_id) == (WHO, "m", "p", "u", "run")
    assert (found.outcome, found.status, found.error_code) == ("error", 500, "lost_in_crash")
    assert (found.stream, found.request_bytes, found.max_tokens, found.reserved_tokens) == (True, 1234, 64, None)
    assert (found.usage, found.count_method) == (Usage(input_text=100, output_text=30), "estimate")
    assert found.cost_pico_usd == found.charged_pico_usd == 100 * 1_000_000 + 30 * 2_000_000
    assert (found.cost_basis, found.price_version) == (CARD.basis, "v1")
    assert found.duration_ns > 0 and found.admission_ns == 500


def test_what_has_no_price_is_unpriced_not_free(directory):
    process = Process(directory)
    begin(process, 1)
    process.die()
    found = lost_record(directory, UNPRICED)
    assert found.cost_pico_usd is None and found.charged_pico_usd is None and found.cost_basis == "unpriced"
    assert found.usage.input_tokens == 100


def test_a_line_of_a_batch_is_priced_as_one(directory):
    half: dict[Leaf, Decimal] = {"input_text": Decimal("0.5"), "output_text": Decimal(1)}
    card = price_card(
        NewPrice("m", "v1", {"input_text": Decimal(1), "output_text": Decimal(2)}, batch_usd_per_mtok=half)
    )
    process = Process(directory)
    begin(process, 1, flags=BATCHED)
    process.die()
    assert lost_record(directory, Snapshot(1, {}, {}, {}, PriceBook([card]))).cost_pico_usd == 50 * 1_000_000


class Held:
    """A reservation whose money a rule counts."""

    class lines:
        counts_money = True

    def __init__(self, pico_usd: int) -> None:
        self._pico_usd = pico_usd

    def reserved(self, place: int) -> int:
        return self._pico_usd


@pytest.mark.interpreted
@pytest.mark.parametrize("snapshot", [PRICED, UNPRICED])
@pytest.mark.parametrize("held", [0, 159_999_999, 160_000_000, 160_000_001])
def test_it_is_charged_no_more_than_it_held(directory, held, snapshot):
    process = Process(directory)
    begin(process, 1, growing=Growing(30), held=Held(held))
    process.sent.note_progress()
    process.die()
    found = lost_record(directory, snapshot)
    cost = 160_000_000
    if snapshot is UNPRICED:
        assert (found.cost_pico_usd, found.charged_pico_usd, found.overdraft_pico_usd) == (None, held, None)
    else:
        assert (found.cost_pico_usd, found.charged_pico_usd) == (cost, min(cost, held))
        assert found.overdraft_pico_usd == max(cost - held, 0)


def test_a_request_with_a_second_target_is_one_record_that_names_it(directory):
    process = Process(directory)
    begin(process, 1, replica="first")
    begin(process, 1, attempts=2, replica="second")
    process.die()
    found = lost_record(directory)
    assert (found.replica, found.attempts) == ("second", 2)


def test_an_entry_that_cannot_be_read_is_dropped_and_logged(directory, caplog):
    process = Process(directory)
    begin(process, 1)
    process.sent.begin(b"2" * 16, 1, 1, 1, 1, None, None, 1, 0, b"no record")
    process.die()
    lost_record(directory)
    assert "requests in progress at the crash cannot be read" in caplog.text


def test_labels_that_are_too_long_leave_no_entry_and_do_no_harm(directory, caplog):
    process = Process(directory)
    slot = process.sent.begin(b"2" * 16, 1, 1, 1, 1, None, None, 1, 0, bytes(1 << 15))
    process.sent.end(slot)
    assert process.sent.open_entries == 0
    assert "a request in progress cannot be stored" in caplog.text
    process.die()


def test_a_file_that_cannot_be_opened_is_logged_and_nothing_is_kept(directory, caplog):
    (directory / "sent-requests").mkdir()
    process = Process(directory)
    process.sent.end(begin(process, 1))
    process.sent.note_progress()
    assert process.recover() == 0
    assert "requests in progress cannot be stored" in caplog.text
    process.die()


def test_without_room_in_the_journal_the_next_start_tries_again(directory, caplog):
    process = Process(directory)
    begin(process, 1)
    process.die()
    process = Process(directory)
    process.recorder.has_room = False
    assert process.recover() == 0
    assert "the next start tries again" in caplog.text
    begin(process, 2)
    process.die()
    process = Process(directory)
    assert process.recover() == 2
    process.die()


@given(
    ends=st.lists(st.sampled_from(("sent", "asked twice", "recorded", "ended")), max_size=8),
    lives=st.lists(st.integers(0, 12), max_size=4),
)
def test_every_request_has_one_record_wherever_processes_die(ends, lives):
    with tempfile.TemporaryDirectory() as home:
        directory = Path(home)
        process = Process(directory)
        for number, how in enumerate(ends):
            slot = begin(process, number)
            if how == "asked twice":  # killed between the second entry and the end of the first
                begin(process, number, attempts=2)
            elif how == "recorded":  # killed between the record and the end of the entry
                end(process, number, -1)
            elif how == "ended":
                end(process, number, slot)
        process.die()
        for steps in lives:
            process = Process(directory)
            try:
                process.recover(lives_for=steps)
            except Killed:
                pass
            process.die()
        process = Process(directory)
        process.recover()
        found = records(process.journal)
        copies = Counter(record.request_id for record in found)
        assert copies == {bytes([number]) * 16: 1 for number in range(len(ends))}
        lost = {record.request_id[0] for record in found if record.error_code == "lost_in_crash"}
        assert lost == {number for number, how in enumerate(ends) if how in ("sent", "asked twice")}
        assert process.sent.open_entries == 0
        process.die()


def test_the_head_has_no_padding():
    assert HEAD.size == 16 + 7 * 8 + 1
