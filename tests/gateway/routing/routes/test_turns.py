"""Turns follow the weights as they are now, and no others."""

from collections import Counter

from contracts.serving.routes import Condition
from gateway.routing.routes.route_plan import CompiledEntry, CompiledRoute
from gateway.routing.routes.turns import Turns


def branches_of(**weights: int) -> list[CompiledEntry]:
    return [
        CompiledEntry(label, weight, Condition(), CompiledRoute("inner", (), ())) for label, weight in weights.items()
    ]


def firsts_of(turns: Turns, branches: list[CompiledEntry], count: int, among: list[CompiledEntry] | None = None) -> str:
    found = [turns.order("r", branches, "", takes_turn=True, among=among)[0].label for _ in range(count)]
    return "".join(found)


def test_after_the_weights_change_turns_begin_anew():
    turns = Turns()
    firsts_of(turns, branches_of(a=1000, b=1), 500)
    assert firsts_of(turns, branches_of(a=1, b=1), 4) == "abab"


def test_after_an_entry_has_gone_or_come_turns_begin_anew():
    turns = Turns()
    firsts_of(turns, branches_of(a=1000, b=1, c=1), 501)
    assert firsts_of(turns, branches_of(b=1, c=1), 4) == "bcbc"
    firsts_of(turns, branches_of(a=1000, b=1), 500)
    assert firsts_of(turns, branches_of(b=1, c=1, d=1), 3) == "bcd"


def test_requests_of_before_a_change_do_not_take_the_turns_of_those_after_it():
    turns, firsts = Turns(), ""
    for _ in range(4):
        firsts_of(turns, branches_of(a=1, b=3), 1)
        firsts += firsts_of(turns, branches_of(a=1, b=1), 1)
    assert firsts == "abab"


def test_entries_that_are_closed_to_some_do_not_set_the_turns_back():
    turns, all_of = Turns(), branches_of(a=2, b=1, c=1)
    firsts = Counter[str]()
    for _ in range(60):
        firsts.update(firsts_of(turns, all_of[:2], 1, all_of) + firsts_of(turns, all_of, 1, all_of))
    shares = {"a": 60 * 2 / 3 + 60 / 2, "b": 60 / 3 + 60 / 4, "c": 60 / 4}
    assert all(abs(firsts[label] - share) <= 2 for label, share in shares.items())


def test_a_look_at_whose_turn_it_is_takes_none():
    turns, branches = Turns(), branches_of(a=1, b=1)
    for _ in range(3):
        assert turns.order("r", branches, "", takes_turn=False)[0].label == "a"
    assert firsts_of(turns, branches, 2) == "ab"
