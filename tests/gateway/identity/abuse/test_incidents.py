"""Incidents: when they begin and end, what is told of them, and how many are kept."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from algorithms.abuse.detection import Detection
from algorithms.abuse.incident import Incident
from algorithms.abuse.spec import abuse_spec
from contracts.errors import AbuseThrottled, ConfigurationError, ControlUnavailable
from contracts.guardrails.finding import About, Shown
from gateway.guardrails.detector_dependencies import DetectorDependencies
from gateway.guardrails.detectors.abuse import AbuseWatch, build
from gateway.identity.abuse.incidents import IncidentBook, Suspect
from gateway.identity.abuse.key_watches import KeyWatches
from gateway.identity.abuse.service import AbuseService
from gateway.request.clock import Clock

_SECOND = 1_000_000_000
_ACME = Suspect("acme", "key_1")
_SAY = "Tell me the price of the blue lamp in the second shop, please."


class _Ids:
    def __init__(self) -> None:
        self.made = 0

    def __call__(self, at_ns: int) -> UUID:
        self.made += 1
        return UUID(int=self.made)


@pytest.fixture
def book() -> IncidentBook:
    return IncidentBook("gw-1", _Ids())


def _seen(observed: int = 6, action: Any = "alert") -> Detection:
    return Detection("flood", action, observed, 5, 60, facts={"variants": 2})


def test_an_incident_goes_on_until_nothing_is_seen_for_its_rules_window(book: IncidentBook) -> None:
    assert book.note(_ACME, _seen(6), 100 * _SECOND)
    assert not book.note(_ACME, _seen(9, "throttle"), 150 * _SECOND)
    book.end_quiet(210 * _SECOND)
    assert len(book) == 1
    book.end_quiet(210 * _SECOND + 1)
    assert len(book) == 0
    (incident,) = book.changes()
    assert (incident.peak, incident.sightings, incident.throttled, incident.is_open) == (9, 2, 1, False)
    assert book.changes() == []


def test_what_comes_after_the_end_is_another_incident(book: IncidentBook) -> None:
    assert book.note(_ACME, _seen(), 0)
    assert book.note(_ACME, _seen(), 61 * _SECOND)
    assert [incident.is_open for incident in book.changes()] == [False, True]


def test_kinds_keys_and_tenants_have_incidents_of_their_own(book: IncidentBook) -> None:
    for suspect in (_ACME, Suspect("acme", "key_2"), Suspect("zeta", "key_1")):
        book.note(suspect, _seen(), 0)
    book.note(_ACME, Detection("harvest", "alert", 6, 5, 60), 0)
    assert len(book) == 4


def test_incidents_are_bounded_and_what_is_left_out_is_counted(book: IncidentBook) -> None:
    for number in range(4000):
        book.note(Suspect("acme", f"key_{number}"), _seen(), 0)
    assert len(book) == 1000
    assert len(book.changes()) == 2000
    assert book.left_out == 4000 - 2000


def test_it_is_explained_without_a_word_of_any_prompt() -> None:
    incident = Incident.begun("i", "gw", "acme", "", "key_1", _seen(41, "throttle"), 0)
    assert incident.summary == "key key_1 of acme: 41 nearly identical prompts in a minute, where 5 are allowed"
    assert "1 of 1 requests above the limit were refused." in incident.explained()
    assert incident.explained()[-1] == "To end it: send each prompt once and store its answer."


def _about(key_id: str = "key_1", second: int = 0) -> About:
    return About(tenant="acme", key_id=key_id, at_ns=second * _SECOND, address="192.0.2.1")


def _shown(text: str = _SAY) -> list[Shown]:
    return [Shown("You are a shop.", "system"), Shown("What came before.", "user"), Shown(text, "user")]


def test_what_is_throttled_is_refused_with_its_own_code_and_written_down(book: IncidentBook) -> None:
    watch = build({"flood": {"limit": 2, "action": "throttle"}}, DetectorDependencies(incidents=book))
    for second in (0, 1):
        assert watch.watch(_shown(), _about(second=second)) == ()
    with pytest.raises(AbuseThrottled) as refused:
        watch.watch(_shown(), _about(second=2))
    assert refused.value.retryable and refused.value.retry_after_seconds
    assert book.standing() == {"open": 1, "sightings": 1, "throttled": 1}


def test_what_is_only_told_of_is_a_finding(book: IncidentBook) -> None:
    watch = build({"flood": {"limit": 1}}, DetectorDependencies(incidents=book))
    watch.watch(_shown(), _about())
    assert [finding.kind for finding in watch.watch(_shown(), _about())] == ["flood"]


def test_a_conversation_that_grows_is_no_flood() -> None:
    watch = build({"flood": {"limit": 2}}, DetectorDependencies())
    said = _shown()
    for turn in range(8):
        said = [*said, Shown(f"An answer, the {turn}th.", "assistant"), Shown(" ".join([f"{turn}word"] * 9), "user")]
        asked = [*said[:-1], Shown(" ".join(f"{chr(97 + turn)}{each}" for each in "abcdefghij"), "user")]
        assert watch.watch(asked, _about()) == ()


def test_keys_are_counted_apart_and_only_those_that_the_policy_names() -> None:
    watch = build({"flood": {"limit": 1, "action": "throttle"}, "keys": ["key_1"]}, DetectorDependencies())
    watch.watch(_shown(), _about())
    for _ in range(3):
        assert watch.watch(_shown(), _about("key_2")) == ()
        assert watch.watch(_shown(), _about("")) == ()  # of an identity provider's token
    with pytest.raises(AbuseThrottled):
        watch.watch(_shown(), _about())


def test_the_keys_that_are_watched_are_bounded() -> None:
    watches = KeyWatches(abuse_spec({"flood": {}}), most=3)
    first = watches.of("acme", "0")
    for number in range(1, 4):
        watches.of("acme", str(number))
    assert len(watches) == 3
    assert watches.of("acme", "0") is not first  # it begins again


def test_a_malformed_policy_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        build({"flood": {"limit": "many"}}, DetectorDependencies())


class _Publisher:
    def __init__(self) -> None:
        self.is_away = True
        self.told: list[Incident] = []

    def publish(self, incidents: Sequence[Incident]) -> None:
        if self.is_away:
            raise ControlUnavailable("the database is away")
        self.told += incidents

    def close(self) -> None:
        pass


async def test_what_cannot_be_published_is_published_later_as_it_is_by_then(book: IncidentBook) -> None:
    publisher = _Publisher()
    service = AbuseService(book, Clock(lambda: 0), publisher)
    book.note(_ACME, _seen(6), 0)
    await service.tell()
    assert service.is_away
    book.note(_ACME, _seen(7), 0)
    publisher.is_away = False
    await service.tell()
    assert [incident.peak for incident in publisher.told] == [7]
    assert not service.is_away


def test_the_watch_is_what_the_frame_asks_for() -> None:
    assert isinstance(build({"flood": {}}, DetectorDependencies()), AbuseWatch)
