"""How much of a GPU a model takes, from what was free before and after it changed."""

import pytest

from backends.engine.memory_book import MemoryBook
from backends.engine.placement import DeviceRoom

SECOND = 1_000_000_000


def free(*sizes: int) -> list[DeviceRoom]:
    return [DeviceRoom(f"GPU-{number}", 100, size) for number, size in enumerate(sizes)]


def loaded(book: MemoryBook, model: str = "m", before: int = 90, after: int = 50) -> None:
    book.begin(model, 0, free(before))
    book.end(model, SECOND)
    book.look(10 * SECOND, free(after))


@pytest.mark.parametrize(("after_ns", "is_measured"), [(0, False), (1_499_999_999, False), (1_500_000_000, True)])
def test_a_change_is_measured_once_a_look_can_show_it(after_ns: int, is_measured: bool) -> None:
    book = MemoryBook()
    book.begin("m", 0, free(90))
    book.look(SECOND, free(50))
    book.end("m", SECOND)
    book.look(SECOND + after_ns, free(50))
    assert book.awake_bytes("m") == (40 if is_measured else None)


def test_sleep_is_measured_by_what_it_gives_back_and_waking_adds_to_what_was_kept() -> None:
    book = MemoryBook()
    loaded(book)
    book.begin("m", 0, free(50))
    book.end("m", 0, asleep=True)
    book.look(2 * SECOND, free(85))
    assert (book.awake_bytes("m"), book.asleep_bytes("m")) == (40, 5)
    book.begin("m", 0, free(85))
    book.end("m", 0)
    book.look(2 * SECOND, free(49))
    assert book.awake_bytes("m") == 41


def test_the_gpu_that_changed_most_counts() -> None:
    book = MemoryBook()
    book.begin("m", 0, free(90, 90))
    book.end("m", 0)
    book.look(2 * SECOND, free(60, 50))
    assert book.awake_bytes("m") == 40


def test_two_changes_at_once_leave_the_first_unmeasured() -> None:
    book = MemoryBook()
    book.begin("a", 0, free(90))
    book.begin("b", 0, free(90))
    book.end("a", 0)
    book.end("b", 0)
    book.look(2 * SECOND, free(50))
    assert (book.awake_bytes("a"), book.awake_bytes("b")) == (None, 40)


@pytest.mark.parametrize("rooms", [[], free(95)])
def test_nothing_is_learned_without_gpus_or_from_memory_that_others_gave_back(rooms: list[DeviceRoom]) -> None:
    book = MemoryBook()
    book.begin("m", 0, free(90))
    book.end("m", 0)
    book.look(2 * SECOND, rooms)
    assert book.awake_bytes("m") is None


def test_what_the_host_holds_is_its_only_model_s_once_it_is_steady() -> None:
    book = MemoryBook()
    for size in (10, 40, 41):
        assert book.awake_bytes("m") is None
        book.alone("m", size, asleep=False)
    assert book.awake_bytes("m") == 41
    book.alone("m", 3, asleep=True)
    book.alone("m", 3, asleep=True)
    assert book.asleep_bytes("m") is None
    book.alone("m", 2, asleep=True)
    assert (book.awake_bytes("m"), book.asleep_bytes("m")) == (41, 2)


def test_a_change_under_way_is_not_taken_for_the_model_s_size() -> None:
    book = MemoryBook()
    book.begin("m", 0, free(90))
    for _ in range(5):
        book.alone("m", 30, asleep=False)
    assert book.awake_bytes("m") is None
