"""Whether answers changed, and what was thought of them: the mathematics, and the store's answers."""

import asyncio
import json
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.quality.drift import distance, length_bins, stability_index
from analytics.quality.feedback import Feedback, feedback_summary, write_feedback
from analytics.quality.judge import Judge, JudgeSettings
from analytics.quality.report import LEAST_ANSWERS, Sample, compare, quality_report
from backends.store.client import StoreClient
from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.errors import InvalidRequest, NotFound, Unavailable
from contracts.metering.usage import Usage
from contracts.recording.ids import uuid7
from contracts.recording.names import CONTENT
from contracts.recording.records import ContentRecord, RequestRecord

Record = Callable[[Sequence[RequestRecord]], None]
COUNTS = st.dictionaries(st.integers(0, 500), st.integers(1, 50), min_size=1, max_size=30)


@given(current=COUNTS, reference=COUNTS)
def test_distances_are_symmetric_bounded_and_nothing_from_itself(
    current: dict[int, int], reference: dict[int, int]
) -> None:
    there, back = distance(current, reference), distance(reference, current)
    assert there == back and 0 <= there.statistic <= 1 and 0 <= there.p_value <= 1
    assert distance(current, current).statistic == 0 and distance(current, current).p_value == 1
    now, then = length_bins(current, reference)
    assert sum(now.values()) == sum(current.values()) and sum(then.values()) == sum(reference.values())
    assert stability_index(now, then) >= 0
    assert stability_index(now, now) == 0


def test_the_distance_is_the_one_that_textbooks_have() -> None:
    """Two samples of 80 at 0 against 0.25 of the other half: D by hand; lambda and p by Numerical Recipes 14.3.3."""
    found = distance({0: 60, 1: 20}, {0: 40, 1: 40})
    assert found.statistic == 0.25
    assert found.p_value == pytest.approx(0.0107, abs=0.0005)


@pytest.mark.parametrize(
    ("current", "reference", "statistic", "exact_p"),
    [
        ({1: 30, 2: 50, 3: 20, 5: 60}, {1: 50, 2: 40, 4: 80}, 0.375, 7.45e-11),
        ({1: 200, 2: 300, 3: 500}, {1: 240, 2: 300, 3: 460}, 0.04, 0.40063),
        ({10: 45, 20: 55}, {10: 50, 20: 50}, 0.05, 0.99969),
    ],
)
def test_the_significance_is_near_the_exact_one(
    current: dict[int, int], reference: dict[int, int], statistic: float, exact_p: float
) -> None:
    """Exact ones by SciPy 1.17's ks_2samp(method="exact"), worked out once; ours is Stephens' approximation."""
    found = distance(current, reference)
    assert found.statistic == pytest.approx(statistic)
    assert found.p_value == pytest.approx(exact_p, rel=0.2)


def test_a_shift_of_share_is_judged_at_its_limits() -> None:
    """PSI by hand, without smoothing: (0.5 - 0.25) ln 2 + (0.5 - 0.75) ln(0.5 / 0.75) = 0.2747."""
    assert stability_index({"a": 500_000, "b": 500_000}, {"a": 250_000, "b": 750_000}) == pytest.approx(
        0.2747, abs=1e-4
    )
    same = Sample(1000, {10: 1000}, {"stop": 1000}, with_tools=100, schema_failures=10, with_schema=1000)
    worse = Sample(1000, {10: 500, 80: 500}, {"stop": 600, "content_filter": 400}, 100, 400, 1000)
    verdicts = {change.aspect: change.verdict for change in compare("acme", "m", worse, same).changes}
    assert verdicts == {
        "output_tokens": "changed",
        "finish_reasons": "changed",
        "refusals": "changed",
        "tool_calls": "same",
        "schema_failures": "changed",
    }
    assert {change.verdict for change in compare("acme", "m", same, same).changes} == {"same"}


@pytest.mark.parametrize(("answers", "verdict"), [(LEAST_ANSWERS - 1, "too_few"), (LEAST_ANSWERS, "changed")])
def test_few_answers_are_not_judged(answers: int, verdict: str) -> None:
    few, many = Sample(answers, {500: answers}, {"length": answers}), Sample(1000, {5: 1000}, {"stop": 1000})
    for one, other in ((few, many), (many, few)):
        changes = {change.aspect: change for change in compare("acme", "m", one, other).changes}
        assert changes["output_tokens"].verdict == changes["finish_reasons"].verdict == verdict


def answer(at: datetime, tenant: str, **changes: Any) -> RequestRecord:
    at_ns = int(at.timestamp() * 1000) * 1_000_000
    facts: dict[str, Any] = {
        "request_id": uuid7(at_ns).bytes,
        "started_at_ns": at_ns,
        "duration_ns": 10**9,
        "who": Identity(tenant, "search"),
        "model": "small",
        "outcome": "ok",
        "status": 200,
        "finish_reason": "stop",
        "usage": Usage(input_text=10, output_text=40),
    }
    return RequestRecord(**{**facts, **changes})


def test_the_report_compares_the_window_with_what_came_before_it(reader: StoreClient, record: Record) -> None:
    tenant, now, chance = f"tenant-{uuid4()}", datetime.now(UTC), random.Random(5)
    before = [
        answer(now - timedelta(days=2), tenant, usage=Usage(output_text=chance.randrange(30, 50))) for _ in range(150)
    ]
    after = [
        answer(
            now - timedelta(hours=1),
            tenant,
            usage=Usage(output_text=chance.randrange(80, 100)),
            finish_reason="length",
            tool_calls=1,
            schema_failed=False,
        )
        for _ in range(120)
    ]
    failed = [answer(now, tenant, outcome="error", status=500, usage=Usage())]
    record(before + after + failed)
    (found,) = quality_report(reader, now, timedelta(days=1), timedelta(days=7), tenant=tenant)
    changes = {change.aspect: change for change in found.changes}
    assert (found.current.answers, found.reference.answers) == (120, 150)
    assert changes["output_tokens"].verdict == "changed"
    assert changes["output_tokens"].ks is not None and changes["output_tokens"].ks.statistic == 1
    assert (changes["tool_calls"].current, changes["tool_calls"].reference) == (1, 0)
    assert (changes["schema_failures"].current, changes["schema_failures"].reference) == (0, None), "unknown is not 0"
    assert quality_report(reader, now, timedelta(days=1), timedelta(days=7), tenant=tenant, team="other") == []
    with pytest.raises(InvalidRequest, match="requests are kept for 360"):
        quality_report(reader, now, timedelta(days=30), timedelta(days=331))


@pytest.fixture
def writer(store: Any) -> Iterator[StoreClient]:
    client: StoreClient = store.client("writer")
    yield client
    client.close()


def test_feedback_is_joined_with_its_request_and_the_last_word_counts(writer: StoreClient, record: Record) -> None:
    tenant, now = f"tenant-{uuid4()}", datetime.now(UTC)
    made = answer(now, tenant, prompt_name="greet", prompt_version="2")
    record([made])
    request_id = UUID(bytes=made.request_id)

    def say(score: float, later: int, author: str = "key_1", team: str | None = None) -> None:
        given = Feedback(request_id, "helpful", score, "a comment", author, True)
        write_feedback(writer, given, tenant, team, now + timedelta(seconds=later))

    say(1, 0)
    say(0, 1)
    say(0.5, 2, author="key_2", team="search")
    (row,) = feedback_summary(writer, now - timedelta(hours=1), now + timedelta(hours=1), tenant, None)
    assert (row["model"], row["prompt"], row["prompt_version"], row["source"]) == ("small", "greet", "2", "user")
    assert (row["scores"], row["mean_score"], row["low_scores"]) == (2, 0.25, 1)
    assert feedback_summary(writer, now - timedelta(hours=1), now, tenant, "other") == []
    with pytest.raises(NotFound, match="is not in the store"):
        say(1, 3, team="other")
    for stranger in (f"not-{tenant}", "globex"):
        with pytest.raises(NotFound):
            write_feedback(writer, Feedback(request_id, "helpful", 1, "", "key_3", True), stranger, None, now)
    for never in ("00000000-0000-7000-8000-000000000000", "ffffffff-ffff-7fff-bfff-ffffffffffff"):
        with pytest.raises(InvalidRequest, match="of a time before 2020 or after 2100"):
            write_feedback(writer, Feedback(UUID(never), "helpful", 1, "", "key_1", True), tenant, None, now)
    with pytest.raises(InvalidRequest, match="UUID version 7"):
        write_feedback(writer, Feedback(uuid4(), "helpful", 1, "", "key_1", True), tenant, None, now)


class _JudgeService(BaseHTTPRequestHandler):
    """Scores by the length of the completion; says nothing useful of an empty one."""

    seen: list[dict[str, str]] = []

    def do_POST(self) -> None:
        shown = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.seen.append(shown)
        score = min(len(shown["completion"]) / 10, 1) if shown["completion"] else "none"
        body = json.dumps({"score": score, "comment": "seen"}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_judge_is_shown_kept_answers_once_and_its_scores_become_feedback(writer: StoreClient, record: Record) -> None:
    server = HTTPServer(("127.0.0.1", 0), _JudgeService)
    Thread(target=server.serve_forever, daemon=True).start()
    tenant, name, now = f"tenant-{uuid4()}", f"judge-{uuid4()}", datetime.now(UTC)
    made = [answer(now - timedelta(minutes=5 - number), tenant) for number in range(3)]
    record(made)

    def keep(which: RequestRecord, completion: str) -> None:
        kept = ContentRecord(
            request_id=which.request_id,
            started_at_ns=which.started_at_ns,
            tenant=tenant,
            model="small",
            encoding="redacted",
            prompt="Hello",
            completion=completion,
        )
        token = which.request_id.hex()
        writer.insert_arrow("content", arrow_batch(CONTENT, [kept]), deduplication_token=token)

    async def judge_twice() -> list[int]:
        settings = JudgeSettings(f"http://127.0.0.1:{server.server_port}/", name, 1.0, 10)
        judge = Judge(settings, writer, lambda: now)
        keep(made[0], "12345")
        counts = [await judge.judge_some(), await judge.judge_some()]
        keep(made[1], "")
        with pytest.raises(Unavailable, match="without a score from 0 to 1"):
            await judge.judge_some()
        keep(made[2], "1234567890")
        counts.append(await judge.judge_some())  # the one before it is passed over, and not asked about again
        await judge.close()
        return counts

    writer.command("TRUNCATE TABLE content")  # of other tests: a judge looks at all tenants
    try:
        assert asyncio.run(judge_twice()) == [1, 0, 1]
    finally:
        server.shutdown()
        server.server_close()
    (row,) = feedback_summary(writer, now - timedelta(hours=1), now, tenant, None)
    assert (row["name"], row["source"], row["mean_score"]) == ("quality", "judge", 0.75)
    assert [shown["completion"] for shown in _JudgeService.seen] == ["12345", "", "1234567890"]
    assert _JudgeService.seen[0] == {"model": "small", "prompt": "Hello", "completion": "12345"}
