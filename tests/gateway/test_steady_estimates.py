"""An estimate stays what it was until it is clearly wrong, so that who waited asks for no more than it was promised."""

import pytest

from gateway.limits.estimates.output_estimates import OutputEstimator, SteadyEstimates


class Says(OutputEstimator):
    """An estimator that says what it is told to."""

    def __init__(self, tokens):
        self.tokens = tokens

    def estimate(self, tenant, model, max_tokens=None, choices=1):
        return self.tokens


@pytest.mark.parametrize(("newest", "said"), [(79, 79), (80, 100), (119, 100), (120, 100), (121, 121)])
def test_an_estimate_moves_only_where_it_is_off_by_more_than_a_fifth(newest, said):
    says = Says(100)
    steady = SteadyEstimates(says)
    assert steady.estimate("acme", "small") == 100
    says.tokens = newest
    assert steady.estimate("acme", "small") == said


def test_each_tenant_and_model_has_its_own():
    says = Says(100)
    steady = SteadyEstimates(says)
    steady.estimate("acme", "small")
    says.tokens = 110
    assert (steady.estimate("acme", "small"), steady.estimate("beta", "small")) == (100, 110)


@pytest.mark.parametrize(
    ("max_tokens", "choices", "expected"), [(99, 1, 99), (100, 2, 200), (101, 3, 300), (None, 2, 200)]
)
def test_it_is_capped_by_what_the_caller_allows_and_counts_every_choice(max_tokens, choices, expected):
    assert SteadyEstimates(Says(100)).estimate("acme", "small", max_tokens, choices) == expected
