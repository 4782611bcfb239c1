"""Where each metric's amount stands among those of a request."""

import inspect

import pytest

from contracts.rules.metrics import METRICS, Metric
from gateway.limits.demand import NOTHING, ONE_REQUEST, PLACE, amounts_of


def test_each_metric_can_be_given_an_amount() -> None:
    given = set(inspect.signature(amounts_of).parameters)
    assert given | {"tokens"} == set(METRICS), "gateway/limits/demand.py: amounts_of has a parameter for each metric"
    assert len(ONE_REQUEST) == len(NOTHING) == len(METRICS)


@pytest.mark.parametrize("metric", [metric for metric in METRICS if metric != "tokens"])
def test_an_amount_stands_in_its_metrics_place(metric: Metric) -> None:
    amounts = amounts_of(**{"requests": 0, metric: 7})
    also = {PLACE["tokens"]} if metric in ("input_tokens", "output_tokens") else set()
    assert {place for place, amount in enumerate(amounts) if amount == 7} == {PLACE[metric]} | also
    assert sum(amounts) == 7 * (1 + len(also))
