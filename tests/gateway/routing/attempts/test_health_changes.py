"""The one that is left alone, and is called again, stands in a short history with the time and the reason."""

from dataclasses import replace

from contracts.errors import UpstreamError
from contracts.serving.configuration import EMPTY_SNAPSHOT, PoolSpec, TargetSpec
from contracts.serving.failures import FailurePolicy
from gateway.request.clock import Clock
from gateway.routing.health.health_book import HealthBook
from gateway.routing.health.health_changes import HealthChanges

SECOND_NS = 1_000_000_000


def test_a_target_that_is_left_alone_is_noted_with_its_time_and_reason() -> None:
    book = HealthBook(Clock(lambda: 7 * SECOND_NS, lambda: 0), lambda: 0.0)
    target = TargetSpec(id="a", pool="p", kind="scripted")
    book.sync(replace(EMPTY_SNAPSHOT, pools={"p": PoolSpec("p", (target,), failures=FailurePolicy())}))
    assert book.changes.shown() == []
    for _ in range(5):
        book.of(target).note_failure(0, UpstreamError("it failed"))
    (change,) = book.changes.shown()
    assert (change["at_ms"], change["target"], change["change"]) == (7_000, "p/a", "left_alone")
    assert change["why"]


def test_the_history_is_bounded() -> None:
    class Calm:
        is_calm = True
        why = "ignored"

    changes = HealthChanges(lambda: 0)
    for number in range(250):
        changes.note(str(number), Calm())  # type: ignore[arg-type]  # all that is looked at
    shown = changes.shown()
    assert (len(shown), shown[0]["target"], shown[-1]["target"]) == (200, "50", "249")
    assert shown[0]["change"] == "called_again" and shown[0]["why"] == ""
