"""Works stay comparable however long the machine is up, or nobody is asked."""

import pytest

from algorithms.routing.policy_input import RoutingRequest
from algorithms.routing.work_book import WorkBook
from contracts.serving.configuration import ModelSpec, PoolSpec, TargetSpec
from gateway.replies.progress import Progress
from gateway.request.clock import Clock
from gateway.routing.replicas.router import Router

HALF_LIFE = 600_000_000_000
DAY = 86_400_000_000_000


def book_of(tokens: int, now: int) -> WorkBook:
    book = WorkBook()
    for name in ("a", "b"):
        book.join(name)
    book.add("a", tokens, now)
    return book


@pytest.mark.parametrize("half_lives", [99, 100, 100.001, 101, 1_023, 1_024, 100_000, 10_000_000])
def test_work_can_be_counted_whatever_the_time(half_lives):
    now = round(half_lives * HALF_LIFE)
    book = book_of(100, now)
    book.add("b", 50, now)
    assert book.of["b"] == pytest.approx(book.of["a"] / 2)
    assert book.total == pytest.approx(book.of["a"] + book.of["b"])
    assert book.of["a"] == pytest.approx(100 * book.weight(now))


@pytest.mark.parametrize("half_lives", [1, 100, 101, 900])
def test_what_was_done_is_half_forgotten_every_half_life_also_where_all_is_scaled_down(half_lives):
    book = book_of(100, 0)
    now = half_lives * HALF_LIFE
    book.add("b", 100, now)
    assert book.of["a"] / book.of["b"] == pytest.approx(0.5**half_lives)


def test_after_a_pool_was_idle_for_a_year_its_old_work_counts_nothing():
    book = book_of(100, 8 * DAY)
    book.add("b", 100, 373 * DAY)
    assert book.of == {"a": 0.0, "b": 100.0} and book.total == 100.0


@pytest.mark.parametrize("policy", ["cost", "least_outstanding", "random"])
@pytest.mark.parametrize("days", [7, 8, 400])
def test_requests_are_placed_on_a_machine_that_is_up_for_long(policy, days):
    router = Router(Clock(wall_ns=lambda: days * DAY, monotonic_ns=lambda: days * DAY))
    pool = PoolSpec("p", tuple(TargetSpec(name, "p", "scripted") for name in ("a", "b")), policy)
    choice = router.place(ModelSpec("m", "p"), pool, RoutingRequest(100))
    assert choice.begin(choice.candidates[0], Progress()) is not None
