"""One tenant's slow intake holds up that tenant alone, in its order."""

import threading

from backends.engine.intake_pool import IntakePool

PATIENCE_SECONDS = 120.0


def test_others_are_taken_in_while_one_tenants_task_runs_and_its_own_wait_in_order() -> None:
    pool = IntakePool("m")
    release, begun, done = threading.Event(), threading.Event(), threading.Event()
    seen: list[str] = []

    def slow() -> None:
        begun.set()
        release.wait(PATIENCE_SECONDS)
        seen.append("a1")

    pool.submit("a", slow)
    for number in range(2, 10):
        pool.submit("a", lambda number=number: seen.append(f"a{number}"))  # type: ignore[misc]
    assert begun.wait(PATIENCE_SECONDS)
    for number in range(20):
        pool.submit(f"b{number}", lambda: seen.append("b"))
    other = threading.Event()
    pool.submit("c", other.set)
    assert other.wait(PATIENCE_SECONDS)
    assert not any(one.startswith("a") for one in seen)
    release.set()
    pool.submit("a", done.set)
    assert done.wait(PATIENCE_SECONDS)
    assert [one for one in seen if one != "b"] == [f"a{number}" for number in range(1, 10)]
    pool.shutdown(wait=True)


def test_a_task_that_fails_does_not_end_its_tenants_intake() -> None:
    pool = IntakePool("m")
    done = threading.Event()

    def fail() -> None:
        raise ValueError

    pool.submit("a", fail)
    pool.submit("a", done.set)
    assert done.wait(PATIENCE_SECONDS)
    pool.shutdown(wait=True)


def test_a_shutdown_drops_what_has_not_begun() -> None:
    pool = IntakePool("m")
    release, begun = threading.Event(), threading.Event()
    seen: list[int] = []

    def slow() -> None:
        begun.set()
        release.wait(PATIENCE_SECONDS)

    pool.submit("a", slow)
    pool.submit("a", lambda: seen.append(1))
    assert begun.wait(PATIENCE_SECONDS)
    pool.shutdown(wait=False)
    release.set()
    pool.shutdown(wait=True)
    assert seen == []
