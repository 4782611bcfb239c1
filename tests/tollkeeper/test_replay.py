"""Replay: against a real data plane with a scripted model, against a server that misbehaves, and by the clock."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from contracts.access.keys import new_key
from contracts.errors import ConfigurationError
from contracts.recording.records import RequestRecord, decode_record
from gateway.process.app import Gateway
from gateway.process.settings import GatewaySettings
from gateway.records.journal import unpack_entry
from tests.tollkeeper.streaming_gateway import StreamingGateway, chunk, serving, usage
from tollkeeper.replay.chat import CANCELLED, GatewayClient, Outcome
from tollkeeper.replay.formats import read_trace
from tollkeeper.replay.payers import Assignment, Payer
from tollkeeper.replay.player import Player, Timed
from tollkeeper.replay.served_model import ServedModel
from tollkeeper.replay.session import Run, prepare, replay
from tollkeeper.replay.summary import Summary
from tollkeeper.replay.trace import Trace, TraceRequest

TRACES = Path(__file__).resolve().parents[2] / "bench" / "traces"
AZURE = TRACES / "azure_llm_2023" / "AzureLLMInferenceTrace_conv.csv"
VTC = TRACES / "vtc" / "vtc_real_trace.csv"
MODEL = ServedModel("scripted-1")
TENANTS = ("acme", "globex", "initech")


class DataPlane:
    """A gateway in this process, with a key for each tenant, and the records it made."""

    def __init__(self, gateway: Gateway, secrets: dict[str, str]) -> None:
        self.gateway = gateway
        self.secrets = secrets
        self.url = f"http://127.0.0.1:{gateway.port}"

    def payers(self, assignment: Assignment) -> list[Payer]:
        return [
            Payer(place, f"key_{place.tenant}", next(itertools.islice(self.secrets.values(), number % 3, None)))
            for number, place in enumerate(assignment.places)
        ]

    def records(self, run_id: str) -> list[RequestRecord]:
        journal = self.gateway.journal
        entries = journal.read(journal.cursor, max_entries=100_000, max_bytes=1 << 30)
        found = [decode_record(unpack_entry(entry)[1]) for entry in entries]
        return [record for record in found if isinstance(record, RequestRecord) and record.run_id == run_id]

    async def replay(self, trace: Trace, stop: asyncio.Event | None = None, **options: Any) -> Summary:
        assignment = Assignment.of(trace, options.pop("tenants", 3))
        run = Run(options.pop("run_id", "run-1"), self.url, options.pop("model", MODEL), **options)
        return await replay(
            run, trace, assignment, self.payers(assignment), stop or asyncio.Event(), lambda player: None
        )


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[DataPlane]:
    secrets = {tenant: new_key(bytes([number]) * 32) for number, tenant in enumerate(TENANTS)}
    fragile = {"fault": "error", "after": 20}
    config = {
        "keys": [{"key": key, "tenant": tenant, "id": f"key_{tenant}"} for tenant, key in secrets.items()],
        "pools": [
            {"name": "good", "targets": [{"name": "s", "kind": "scripted"}]},
            {
                "name": "fragile",
                "targets": [{"name": "f", "kind": "scripted", "settings": {"script": fragile}}],
            },
        ],
        "models": [{"name": "scripted-1", "pool": "good"}, {"name": "scripted-fragile", "pool": "fragile"}],
    }
    path = tmp_path / "gateway.yaml"
    path.write_text(yaml.safe_dump(config))
    settings = GatewaySettings(data=tmp_path / "data", gateway_config=path, gateway_port=0, drain_seconds=0.2)
    gateway = Gateway(settings)
    await gateway.start()
    yield DataPlane(gateway, secrets)
    await gateway.stop()


# through a real data plane


async def test_every_answer_has_its_recorded_length_and_stands_in_the_records_once(plane: DataPlane) -> None:
    trace = read_trace(AZURE, limit=60)
    summary = await plane.replay(trace, speed=100)
    records = plane.records("run-1")
    wanted = sum(each.output_tokens for each in trace.requests)
    assert (summary.requests, summary.ok, summary.errors, summary.is_interrupted) == (60, 60, 0, False)
    assert summary.tokens_out == summary.tokens_out_wanted == wanted
    assert summary.other_length == summary.without_usage == 0
    assert len(records) == 60
    assert sum(record.usage.output_tokens or 0 for record in records) == wanted
    assert Counter(record.usage.output_tokens for record in records) == Counter(
        each.output_tokens for each in trace.requests
    )
    assert summary.tokens_in == sum(record.usage.input_tokens or 0 for record in records)
    assert all(record.stream for record in records)


async def test_prompts_have_about_the_recorded_number_of_tokens(plane: DataPlane) -> None:
    trace = read_trace(AZURE, limit=60)
    await plane.replay(trace, speed=100)
    made = sorted(record.usage.input_tokens or 0 for record in plane.records("run-1"))
    recorded = sorted(request.input_tokens for request in trace.requests)
    assert made == [pytest.approx(tokens, rel=0.02, abs=2) for tokens in recorded]


async def test_tenants_take_turns_where_the_trace_names_no_client(plane: DataPlane) -> None:
    summary = await plane.replay(read_trace(AZURE, limit=31), speed=100)
    assert summary.by_tenant == {"acme": 11, "globex": 10, "initech": 10}
    assert Counter(record.who.tenant for record in plane.records("run-1")) == summary.by_tenant


async def test_a_client_of_the_trace_keeps_its_tenant_and_is_named_as_the_user(plane: DataPlane) -> None:
    trace = read_trace(VTC, limit=40)
    summary = await plane.replay(trace, speed=100, tenants=2)
    by_user: dict[str, set[str]] = {}
    for record in plane.records("run-1"):
        by_user.setdefault(record.who.user, set()).add(record.who.tenant)
    assert by_user.keys() == set(trace.clients)
    assert all(len(tenants) == 1 for tenants in by_user.values())
    assert set(summary.by_tenant) == {"acme", "globex"}


async def test_what_measures_the_model_is_not_in_the_run(plane: DataPlane) -> None:
    await plane.replay(read_trace(AZURE, limit=2), speed=100)
    assert len(plane.records("run-1")) == 2
    assert len(plane.records("run-1-measurement")) == 2


async def test_answers_that_fail_are_counted_by_their_code(plane: DataPlane) -> None:
    requests = tuple(TraceRequest(0.01 * number, 5, 10 + 10 * (number % 2)) for number in range(10))
    summary = await plane.replay(Trace("t", "t", requests), model=ServedModel("scripted-fragile"))
    assert (summary.requests, summary.ok, summary.errors) == (10, 5, 5)
    assert summary.error_codes == {"upstream_error": 5}
    assert summary.tokens_out == 50  # of complete answers only
    assert Counter(record.outcome for record in plane.records("run-1")) == {"ok": 5, "error": 5}


async def test_an_interrupted_run_leaves_what_is_under_way_and_tells_what_was_done(plane: DataPlane) -> None:
    at_once = TraceRequest(0.0, 5, 3)
    never = TraceRequest(3600.0, 5, 3)
    stop = asyncio.Event()

    async def interrupt() -> None:
        while not plane.records("run-1"):
            await asyncio.sleep(0.01)
        stop.set()

    interrupting = asyncio.create_task(interrupt())
    summary = await asyncio.wait_for(plane.replay(Trace("t", "t", (at_once, never)), stop), 10)
    await interrupting
    assert summary.is_interrupted
    assert (summary.requests, summary.ok, summary.errors, summary.cancelled) == (1, 1, 0, 0)


# against a server that misbehaves


def payer(secret: str = "sk-a") -> Payer:
    return Payer(Assignment.of(Trace("", "", ()), 1).places[0], "key_1", secret)


async def play_one(server: StreamingGateway) -> Summary:
    trace = Trace("t", "t", (TraceRequest(0.0, 5, 3),))
    async with serving(server):
        run = Run("run-1", server.url, ServedModel("small"))
        return await replay(run, trace, Assignment.of(trace, 1), [payer()], asyncio.Event(), lambda player: None)


async def test_lengths_are_forced_and_the_run_is_named(plane: DataPlane) -> None:
    server = StreamingGateway()
    summary = await play_one(server)
    headers, body = server.chats[-1]
    assert headers["x-tollkeeper-run-id"] == "run-1"
    assert headers["authorization"] == "bearer sk-a"
    assert (body["max_tokens"], body["min_tokens"], body["ignore_eos"]) == (3, 3, True)
    assert body["stream"] and body["stream_options"] == {"include_usage": True}
    assert len(body["messages"][0]["content"].split()) == 5
    assert (summary.ok, summary.tokens_in, summary.tokens_out) == (1, 5, 3)


@pytest.mark.parametrize(
    ("events", "code"),
    [
        ([chunk("a"), usage(1, 1)], "stream_incomplete"),
        ([chunk("a"), '{"error": {"code": "upstream_broken"}}'], "upstream_broken"),
        ([chunk("a"), '{"error": "no"}', "[DONE]"], "stream_error"),
        ([chunk("a"), "not json", "[DONE]"], "stream_malformed"),
    ],
)
async def test_a_stream_that_does_not_end_well_is_an_error(events: Sequence[str], code: str) -> None:
    summary = await play_one(StreamingGateway(events=events))
    assert (summary.ok, summary.errors, summary.error_codes) == (0, 1, {code: 1})


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (429, '{"error": {"code": "rate_limit_exceeded"}}', "rate_limit_exceeded"),
        (503, "", "status_503"),
        (500, "[]", "status_500"),
    ],
)
async def test_a_refusal_is_an_error_under_its_own_code(status: int, body: str, code: str) -> None:
    summary = await play_one(StreamingGateway(status=status, body=body))
    assert (summary.ok, summary.error_codes) == (0, {code: 1})


async def test_an_answer_of_another_length_or_without_usage_is_noticed() -> None:
    short = await play_one(StreamingGateway(events=[chunk("a"), usage(5, 1), "[DONE]"]))
    assert (short.ok, short.errors, short.other_length, short.without_usage) == (1, 0, 1, 0)
    silent = await play_one(StreamingGateway(events=[chunk("a"), "[DONE]"]))
    assert (silent.ok, silent.errors, silent.other_length, silent.without_usage) == (1, 0, 0, 1)


async def test_a_gateway_that_is_not_there_is_named_in_one_sentence() -> None:
    server = StreamingGateway()
    async with serving(server):
        url = server.url
    client = GatewayClient(url, "r")
    with pytest.raises(ConfigurationError) as raised:
        await prepare(client, MODEL, [payer()])
    await client.close()
    assert raised.value.message == f"no gateway answers at {url}; start one with: tollkeeper up"


async def test_a_key_that_the_gateway_does_not_come_to_know_ends_the_run() -> None:
    async with serving(StreamingGateway(knows_keys=False)) as server:
        client = GatewayClient(server.url, "r")
        with pytest.raises(ConfigurationError, match=r"does not know a key made 0\.1 s ago"):
            await prepare(client, MODEL, [payer()], patience_seconds=0.1)
        await client.close()


# by the clock


class PlayedClock:
    """Time passes only by waiting; the wait before item `slow` takes `delay` longer than it should."""

    def __init__(self, slow: int = -1, delay: float = 0.0) -> None:
        self.time = 100.0
        self.waits = 0
        self.slow = slow
        self.delay = delay

    def now(self) -> float:
        return self.time

    async def sleep_until(self, moment: float) -> None:
        await asyncio.sleep(0)  # what was due before is sent before time moves on
        late = self.delay if self.waits == self.slow else 0.0
        self.waits += 1
        self.time = max(self.time, moment) + late


async def send_times(clock: PlayedClock, at_seconds: Sequence[float]) -> list[Outcome]:
    async def send(number: int, due_at: float) -> Outcome:
        return Outcome(number, "t", 1, due_at, clock.now(), done_at=clock.now())

    player: Player[int] = Player(send, clock)
    items = (Timed(at, number) for number, at in enumerate(at_seconds))
    assert await player.play(items, asyncio.Event())
    return sorted(player.outcomes, key=lambda outcome: outcome.number)


async def test_requests_are_sent_at_their_times() -> None:
    outcomes = await send_times(PlayedClock(), [0.0, 0.5, 0.5, 2.0])
    assert [outcome.due_at - 100.0 for outcome in outcomes] == [0.0, 0.5, 0.5, 2.0]
    assert [outcome.late_seconds for outcome in outcomes] == [0.0, 0.0, 0.0, 0.0]


async def test_lateness_is_how_long_after_its_time_a_request_was_sent_and_moves_no_other() -> None:
    outcomes = await send_times(PlayedClock(slow=1, delay=0.3), [0.0, 1.0, 1.1, 2.0])
    assert [round(outcome.late_seconds, 6) for outcome in outcomes] == [0.0, 0.3, 0.2, 0.0]


async def test_an_answer_that_takes_long_holds_no_later_request_back() -> None:
    release = asyncio.Event()
    sent: list[int] = []

    async def send(number: int, due_at: float) -> Outcome:
        sent.append(number)
        if number == 2:
            release.set()
        await release.wait()
        return Outcome(number, "t", 1, due_at, due_at)

    player: Player[int] = Player(send, PlayedClock())
    assert await asyncio.wait_for(
        player.play([Timed(float(number), number) for number in range(3)], asyncio.Event()), 5
    )
    assert sent == [0, 1, 2] and player.most_in_flight == 3


async def test_answers_that_outlast_the_draining_are_left() -> None:
    async def send(number: int, due_at: float) -> Outcome:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return Outcome(number, "t", 1, due_at, due_at, error=CANCELLED)
        raise AssertionError

    player: Player[int] = Player(send, PlayedClock())
    assert not await player.play([Timed(0.0, 0)], asyncio.Event(), drain_seconds=0.01)
    assert [outcome.error for outcome in player.outcomes] == [CANCELLED]


async def test_speed_divides_the_trace_s_times(plane: DataPlane) -> None:
    trace = Trace("t", "t", (TraceRequest(0.0, 5, 1), TraceRequest(4.0, 5, 1)))
    summary = await plane.replay(trace, speed=10)
    assert 0.4 <= summary.duration_s < 2.0
    times = sorted(record.started_at_ns for record in plane.records("run-1"))
    assert (times[1] - times[0]) / 1e9 == pytest.approx(0.4, abs=0.2)


@pytest.mark.parametrize("speed", [0.0, -1.0, 10_001.0, float("nan")])
def test_a_speed_out_of_range_is_refused(speed: float) -> None:
    with pytest.raises(ConfigurationError, match="the speed must be above 0"):
        Run("r", "http://127.0.0.1:1", MODEL, speed=speed)


@pytest.mark.parametrize("run_id", ["", "a b", "a\r\nb", "é", "x" * 101])
def test_a_run_id_that_is_no_header_is_refused(run_id: str) -> None:
    with pytest.raises(ConfigurationError, match="a run id has 1 to 100 visible ASCII characters"):
        Run(run_id, "http://127.0.0.1:1", MODEL)
