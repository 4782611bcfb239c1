"""A change of spending is explained without a remainder, by the driver that moved it."""

from hypothesis import given
from hypothesis import strategies as st

from analytics.anomaly.drivers import DRIVERS, Use, explain

MILLION = 10**6


@st.composite
def uses(draw: st.DrawFn) -> dict[str, Use]:
    found = {}
    for model in draw(st.sets(st.sampled_from("abcd"), max_size=4)):
        tokens = draw(st.integers(0, 10**12))
        found[model] = Use(
            draw(st.integers(0, 10**7)),
            tokens,
            draw(st.integers(0, tokens)),
            draw(st.integers(0, 10**11)),
            draw(st.integers(0, 10**20)),
        )
    return found


@given(before=uses(), after=uses())
def test_parts_sum_to_the_change_exactly(before: dict[str, Use], after: dict[str, Use]) -> None:
    change = explain(before, after)
    total = sum(use.pico_usd for use in after.values()) - sum(use.pico_usd for use in before.values())
    assert change.total == total == sum(change.parts.values())
    assert set(change.parts) == set(DRIVERS)
    assert all(isinstance(part, int) for part in change.parts.values())
    assert change.driver in DRIVERS


@given(before=uses())
def test_nothing_changed_is_explained_by_nothing(before: dict[str, Use]) -> None:
    change = explain(before, before)
    assert change.total == 0
    if any(use.requests for use in before.values()):
        assert set(change.parts.values()) == {0}


def use(requests: int = 100, tokens: int = 1_000, cached: int = 0, output: int = 200, rate: int = MILLION) -> Use:
    """Return a model's use: tokens are per request, `rate` pico-USD a token of input, a tenth cached, four times
    out.
    """
    weighted = 10 * (tokens - cached) + cached + 40 * output
    return Use(requests, requests * tokens, requests * cached, requests * output, requests * weighted * rate // 10)


def parts_that_moved(before: dict[str, Use], after: dict[str, Use]) -> set[str]:
    return {name for name, part in explain(before, after).parts.items() if part}


def test_each_driver_alone_is_told_from_the_others() -> None:
    before = {"small": use(), "large": use(rate=20 * MILLION)}
    twice = {name: use(200, rate=rate) for name, rate in (("small", MILLION), ("large", 20 * MILLION))}
    assert parts_that_moved(before, twice) == {"volume"}
    assert parts_that_moved(before, {"small": use(50), "large": use(150, rate=20 * MILLION)}) == {"mix"}
    assert parts_that_moved(before, {"small": use(output=400), "large": use(rate=20 * MILLION)}) == {"mix"}
    assert parts_that_moved(before, {**before, "large": use(cached=800, rate=20 * MILLION)}) == {"cache"}
    assert parts_that_moved(before, {**before, "large": use(rate=30 * MILLION)}) == {"price"}
    assert parts_that_moved({}, before) == {"volume"}


def test_the_driver_is_the_part_in_the_changes_direction() -> None:
    before, after = {"m": use(100)}, {"m": use(300, rate=MILLION // 2)}
    change = explain(before, after)
    assert change.total > 0 and change.parts["price"] < 0
    assert change.driver == "volume"
    assert explain(after, before).driver == "volume"
