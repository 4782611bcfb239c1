"""Answers are shared while they are fresh, asked for once, and never those of someone else's reach."""

import csv
import io
import threading
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest

from analytics.access_scope import EVERYTHING, AccessScope, BoundStore
from backends.store.address import StoreAddress
from backends.store.client import StoreClient
from backends.store.row_policies import TENANT_READER
from contracts.errors import ConfigurationError
from dashboard.answers import Answers
from dashboard.exports import as_csv, as_parquet
from dashboard.oidc import Tickets
from dashboard.reader import Readers, question_key
from dashboard.table import Table


def test_an_answer_is_kept_as_long_as_it_may_be_and_not_longer() -> None:
    now = [0.0]
    answers, asked = Answers(clock=lambda: now[0]), iter(range(10))
    for moment, expected in ((0.0, 0), (1.999, 0), (2.0, 1), (3.9, 1)):
        now[0] = moment
        assert answers.get("q", 2.0, lambda: next(asked)) == expected


def test_a_question_that_is_being_asked_is_waited_for() -> None:
    answers, begun, may_end = Answers(), threading.Event(), threading.Event()
    asked: list[int] = []

    def ask() -> int:
        asked.append(1)
        begun.set()
        assert may_end.wait(30)
        return 7

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(answers.get, "q", 60.0, ask)
        assert begun.wait(30)
        others = [pool.submit(answers.get, "q", 60.0, ask) for _ in range(3)]
        may_end.set()
        assert [one.result(30) for one in (first, *others)] == [7, 7, 7, 7]
    assert asked == [1]


def test_a_failure_is_told_and_not_kept() -> None:
    answers = Answers()

    def fail() -> int:
        raise ValueError("away")

    with pytest.raises(ValueError, match="away"):
        answers.get("q", 60.0, fail)
    assert answers.get("q", 60.0, lambda: 1) == 1


def test_what_was_asked_longest_ago_goes_first() -> None:
    answers = Answers(max_answers=2)
    for question in ("a", "b", "a", "c"):
        answers.get(question, 60.0, lambda: 1)
    assert answers.get("a", 60.0, lambda: 2) == 1
    assert answers.get("b", 60.0, lambda: 2) == 2


def test_what_is_too_old_to_be_given_is_not_kept() -> None:
    now = [0.0]
    answers = Answers(clock=lambda: now[0])
    for moment in range(10):  # a range that moves with the clock is another question at each refresh
        now[0] = float(moment)
        answers.get(moment, 2.0, lambda: 1)
        assert len(answers._kept) <= 3


def test_viewers_of_another_reach_never_share_an_answer() -> None:
    reaches = (EVERYTHING, AccessScope("acme"), AccessScope("acme", "search"), AccessScope("globex"))
    keys = {question_key(Answers, access, ("x",), {}) for access in reaches}
    assert len(keys) == len(reaches)


def test_one_bad_moment_of_the_store_does_not_take_its_row_policies_away_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, asked = [0.0], []

    def query(store: StoreClient, sql: str) -> list[object]:
        asked.append(store.address.user)
        if len(asked) == 1:
            raise ConfigurationError("database 'tollkeeper' does not exist; run `python -m migrations`")
        return []

    monkeypatch.setattr(StoreClient, "query", query)
    readers = Readers(StoreAddress("http://127.0.0.1:8123", "tollkeeper", "reader", "x"), clock=lambda: now[0])

    def lent() -> str:
        with readers.borrow(AccessScope("acme")) as store:
            assert isinstance(store, BoundStore) and store._is_policed == (store.address.user == TENANT_READER)
            return store.address.user

    users = []
    for moment in (0.0, 59.9, 60.0, 61.0):
        now[0] = moment
        users.append(lent())
    assert users == ["reader", "reader", TENANT_READER, TENANT_READER]
    assert asked == [TENANT_READER, TENANT_READER]  # once a minute at most, and not again once it is known


def test_a_ticket_is_good_once_and_for_half_a_minute() -> None:
    now = [0.0]
    tickets = Tickets(clock=lambda: now[0])
    first, second = tickets.leave("one"), tickets.leave("two")
    assert (tickets.take(first), tickets.take(first), tickets.take("guess")) == ("one", None, None)
    now[0] = 30.0
    assert tickets.take(second) is None


def test_a_table_as_csv_runs_nothing_when_a_spreadsheet_opens_it() -> None:
    frame = pd.DataFrame({"tenant": ["=1+1", "@x", "acme", None], "cost": [-1.5, 0.0, None, 2.0]})
    lines = as_csv(frame).decode().splitlines()
    assert lines == ["tenant,cost", "'=1+1,-1.5", "'@x,0.0", "acme,", ",2.0"]


FORMULAS = ("=1+1", "+1", "-1+2", "@SUM(A1)", "\uff1d1+1", "\uff0b1", "\uff0d1", "\uff20x", "\ufe66x", "\u22121")
LEADS = (
    "",
    " ",
    "\n",
    "\t",
    "\r",
    "\r\n",
    "\u00a0",
    "\u3000",
    "\ufeff",
    "\u200b",
    "\u2060",
    " \n\u00a0",
    "\x00",
    "\u2028",
)


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("formula", FORMULAS)
def test_no_lead_and_no_other_form_of_a_sign_lets_a_formula_through(lead: str, formula: str) -> None:
    hostile = lead + formula
    [header, cell] = list(csv.reader(io.StringIO(as_csv(Table({hostile: [hostile]})).decode(), newline="")))
    assert (header, cell) == ([f"'{hostile}"], [f"'{hostile}"])


def test_ordinary_text_and_numbers_are_exported_as_they_are() -> None:
    values = ["acme", " acme", "", " ", "a=b", "x@y.example", "Ａcme", "1-2", "é", -1.5, None]
    rows = list(csv.reader(io.StringIO(as_csv(Table({"name": values})).decode())))
    assert [row[0] if row else "" for row in rows[1:]] == ["" if value is None else str(value) for value in values]


def test_a_table_as_parquet_keeps_its_types() -> None:
    frame = pd.DataFrame({"tenant": ["acme"], "requests": [3]})
    assert pd.read_parquet(io.BytesIO(as_parquet(frame))).equals(frame)


def test_who_wants_a_younger_answer_than_is_kept_has_it_asked_again() -> None:
    now = [0.0]
    answers, asked = Answers(clock=lambda: now[0]), iter(range(10))
    for moment, seconds, expected in ((0.0, 5, 0), (0.999, 1, 0), (1.0, 1, 1), (1.5, 5, 1), (3.0, 1, 2)):
        now[0] = moment
        assert answers.get("q", seconds, lambda: next(asked)) == expected
