"""Every field of a request's record is in each list that needs it; a failure names the field and the place."""

import ast
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import gateway
from contracts.access.identity import Identity
from contracts.api.answer_parts import CalledTool, Findings
from contracts.api.chat import ChatRequest
from contracts.api.generation import Delta, Result
from contracts.guardrails.finding import About
from contracts.guardrails.policy import GuardrailPolicy, StageSpec
from contracts.metering.usage import Usage
from contracts.pricing.prices import Cost, PriceBook
from contracts.recording.records import RequestRecord, decode_record, encode_record
from contracts.serving.configuration import KeyEntry, ModelSpec, PoolSpec, Snapshot, TargetSpec
from gateway.apis.operations import CHAT
from gateway.guardrails.detector_dependencies import DetectorDependencies
from gateway.guardrails.guard_plan import compile_plan
from gateway.guardrails.request_guard import RequestGuard
from gateway.limits.demand import FREE
from gateway.limits.estimates.counting import TokenEstimator
from gateway.limits.estimates.output_estimates import OutputEstimator, SteadyEstimates
from gateway.records.journal import Journal, unpack_entry
from gateway.records.lost_requests import record_lost
from gateway.records.recorder import Recorder
from gateway.records.sent_requests import SentRequests
from gateway.records.trace_context import TraceContext
from gateway.request.attempt import Attempt
from gateway.request.charges.settlement import Settlement
from gateway.request.clock import Clock
from gateway.request.plans.forecast import Forecast
from gateway.request.plans.plan import PlannedTarget, RequestPlan
from gateway.request.plans.record_shapes import AT_DEFAULT, OF_CALLER, VARYING, WHEN_SENT, RecordShape
from gateway.request.request_state import RequestState
from gateway.routing.drill.standalone import standalone_chat
from gateway.routing.health.health_book import HealthBook

ROOT = Path(gateway.__file__).parents[1]
SHAPES = "gateway/request/plans/record_shapes.py"
FIELDS = RequestRecord.__struct_fields__
DEFAULTS = RequestRecord(request_id=bytes(16), started_at_ns=0, duration_ns=0)
UNUSED = {"prompt_name", "prompt_version"}  # columns that nothing fills yet

START_NS, BEGAN_NS = 1_790_000_000_000_000_000, 1_000_000
TARGET = TargetSpec("replica", "pool", "openai_http")
MODEL = ModelSpec("m", "pool")
WHO = Identity(tenant="acme", key_id="key_1")


def given_in(file: str) -> set[str]:
    """Return the fields that a file states of records: keywords of `RequestRecord(...)` and keys of its parts."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "RequestRecord":
            found |= {keyword.arg for keyword in node.keywords if keyword.arg}
        if isinstance(node, ast.Dict):
            found |= {key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    return found


def chat(**facts: Any) -> RequestState:
    life = standalone_chat(b"{}", START_NS, BEGAN_NS, SNAPSHOT)
    life.who, life.is_authenticated, life.model = WHO, True, MODEL
    life.requested_model, life.choices = "m", 2
    life.output_limit, life.is_streamed, life.admitted_ns = 64, True, BEGAN_NS + 500
    life.request = ChatRequest(model="m", messages=[], n=2, stream=True, max_tokens=64, temperature=0.5)
    attempt = Attempt(1, TARGET, "first", START_NS, BEGAN_NS)
    life.attempts.append(attempt)
    for name, value in facts.items():
        setattr(life, name, value)
    return life


def guard() -> RequestGuard:
    """Return the guard of a request in whose texts and answer guardrails have found something."""
    spec = StageSpec(name="mail", detector="pii", direction="both", action="redact")
    found = RequestGuard(compile_plan([GuardrailPolicy(name="p", stages=(spec,))], DetectorDependencies()), About())
    found.take_over(["output/mail/redact:email=1"])
    found.spent_ns = 5
    seen = found.filter_answer()
    assert seen is not None
    seen.held_ns = 7
    return found


# Of a chat that ended well: what makes each varying field differ from its default. Those of the caller first.
OF_CALLERS: dict[str, Any] = {
    "who": WHO.with_caller("ada", {"feature": "search"}),
    "trace": TraceContext(b"t" * 16),
    "span_id": b"s" * 8,
    "run_id": "run",
    "conversation_id": "talk",
    "priority": "batch",
    "guard": guard(),
}
FACTS: dict[str, Any] = {
    **OF_CALLERS,
    "usage": Usage(input_text=3, output_text=2),
    "tokens_out": 2,
    "count_method": "reported",
    "cost": Cost(7, {"input_text": 7}, (), "v1", "price_card"),
    "charged_pico_usd": 6,
    "response_bytes": 11,
    "limit": "lim_1",
    "reserved_tokens": 70,
    "charges": [(5, 60)],
    "overdraft_tokens": 4,
    "overdraft_pico_usd": 1,
    "findings": Findings(1, True, [CalledTool("search", 5)]),
    "prompt_marks": [1, 2],
}
UNUSUAL_COSTS = [
    Cost(7, {"input_text": 7}, ("output_audio",), "v1", "price_card"),
    Cost(7, {"input_text": 7}, (), "v1", "price_card", "flex"),
]


def ended_chat(*, provider_usage: str = "", tokens: int = 2, **facts: Any) -> RequestState:
    """Return a chat that ended well, with these facts of its state and of its attempt."""
    life = chat(ended_ns=BEGAN_NS + 9_000, **facts)
    attempt = life.attempts[0]
    attempt.result = Result(model="m-2027", finish_reason="stop", gap_clock="engine", provider_usage=provider_usage)
    for number in range(tokens):
        attempt.take(Delta(1), BEGAN_NS + 1_000_000 * number + 600)
    return life


def by_template(life: RequestState, whole: RequestRecord) -> RequestRecord:
    """Return the record that a template packs for a request whose record is `whole`."""
    usual = {name: getattr(DEFAULTS, name) for name in VARYING} | {"who": WHO, "priority": "standard"}
    found = decode_record(RecordShape(msgspec.structs.replace(whole, **usual)).template.pack(life))
    assert isinstance(found, RequestRecord)
    return found


SNAPSHOT = Snapshot(1, {}, {"m": MODEL}, {"pool": PoolSpec("pool", (TARGET,))}, PriceBook())


def test_the_recorder_sets_each_field() -> None:
    given = given_in("gateway/records/recorder.py") | given_in("gateway/records/upstream_facts.py")
    missing = set(FIELDS) - given - UNUSED
    assert not missing, f"_request_record of gateway/records/recorder.py does not set {sorted(missing)}"


def test_each_field_of_a_plans_record_varies_or_is_given_by_the_plan_or_keeps_its_default() -> None:
    by_plans = given_in("gateway/request/plans/plan.py") | given_in("gateway/request/plans/cache_plan.py")
    homeless = set(FIELDS) - set(VARYING) - by_plans - AT_DEFAULT
    assert not homeless, (
        f"{SHAPES}: add {sorted(homeless)} to OF_CALLER, WHEN_SENT or AT_END and to RecordTemplate if requests of one "
        "plan can differ in it, to AT_DEFAULT if none sets it; or to the example of plan.py"
    )
    assert len(VARYING) == len(set(VARYING)) and not AT_DEFAULT & (set(VARYING) | by_plans)


def recorded(tmp_path: Path, life: RequestState) -> RequestRecord:
    journal = Journal(tmp_path / "journal", max_bytes=1 << 20)
    Recorder(journal, "gw").record(life)
    found = decode_record(unpack_entry(journal.read(journal.cursor, max_entries=1, max_bytes=1 << 20)[0])[1])
    journal.close()
    assert isinstance(found, RequestRecord)
    return found


def test_a_plans_template_packs_what_the_recorder_says(tmp_path: Path) -> None:
    life = ended_chat(
        **FACTS | {"cost": Cost(7, {}, ("output_audio",), "v1", "price_card", "flex")}, provider_usage="{}"
    )
    whole = recorded(tmp_path, life)
    same = [name for name in VARYING if getattr(whole, name) == getattr(DEFAULTS, name)]
    assert not same, f"FACTS of this test leaves {same} at its default: add it, so that RecordTemplate is seen to"
    found = by_template(life, whole)
    wrong = [name for name in FIELDS if getattr(found, name) != getattr(whole, name)]
    assert not wrong, f"RecordTemplate of {SHAPES} says something else of {wrong} than _request_record of the recorder"


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"tokens": 0},
        {"provider_usage": "{}"},
        *({"cost": cost} for cost in UNUSUAL_COSTS),
        *({name: value} for name, value in FACTS.items()),
    ],
    ids=lambda facts: " ".join(facts) or "nothing",
)
def test_whatever_is_unusual_about_a_request_is_in_its_record(tmp_path: Path, facts: dict[str, Any]) -> None:
    life = ended_chat(**facts)
    life.is_like_its_plan = not OF_CALLERS.keys() & facts.keys()
    whole = recorded(tmp_path, life)
    assert by_template(life, whole) == whole


def lost(tmp_path: Path, life: RequestState) -> Iterator[RequestRecord]:
    """Yield the record that is made of a request after its gateway has died as it was sent."""
    journal = Journal(tmp_path / "journal", max_bytes=1 << 20)
    sent = SentRequests(tmp_path / "sent-requests", Clock())
    Recorder(journal, "gw", sent=sent).note_sent(life)
    sent.close()
    after = SentRequests(tmp_path / "sent-requests", Clock())
    recorder = Recorder(journal, "gw", sent=after)
    assert record_lost(after, journal, recorder, Settlement(TokenEstimator()), SNAPSHOT) == 1
    for entry in journal.read(journal.cursor, max_entries=9, max_bytes=1 << 20):
        found = decode_record(unpack_entry(entry)[1])
        assert isinstance(found, RequestRecord)
        yield found
    after.close()
    journal.close()


@pytest.mark.parametrize("has_context", [False, True])
def test_a_crash_loses_nothing_that_was_known_when_a_request_of_a_plan_was_sent(
    tmp_path: Path, has_context: bool
) -> None:
    life = chat(who=WHO)
    if has_context:
        life = chat(who=WHO.with_caller("ada", {"feature": "search"}), run_id="run", guard=guard())
    (by_itself,) = lost(tmp_path / "unplanned", life)
    shape = RecordShape(
        msgspec.structs.replace(
            by_itself, **{name: getattr(DEFAULTS, name) for name in VARYING} | {"who": WHO, "priority": "standard"}
        )
    )
    outputs = SteadyEstimates(OutputEstimator())
    to = PlannedTarget(
        TARGET,
        None,
        None,
        None,
        HealthBook(Clock(), random.random).of(TARGET),
        shape,
    )
    key = KeyEntry(bytes(32), WHO)
    forecast = Forecast(TokenEstimator(), outputs, "acme", "m")
    plan = RequestPlan(
        SNAPSHOT, key, MODEL, None, FREE, {"replica": to}, forecast, CHAT, is_guarded=False, is_watched=False
    )
    life.plan, life.to, life.template = plan, to, to.template
    life.is_like_its_plan, life.who = not has_context, life.who if has_context else plan.identity
    (by_plan,) = lost(tmp_path / "planned", life)
    wrong = [name for name in (*OF_CALLER, *WHEN_SENT) if getattr(by_plan, name) != getattr(by_itself, name)]
    assert not wrong, (
        f"{wrong} of {SHAPES} is lost in a crash: write it down in _begin_planned of gateway/records/recorder.py and "
        "read it in gateway/records/lost_requests.py, or let is_like_its_plan be false where it is set"
    )


def test_the_packed_example_of_a_shape_is_a_record() -> None:
    assert decode_record(RecordShape(DEFAULTS).packed) == decode_record(encode_record(DEFAULTS))
