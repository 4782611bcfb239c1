"""What objectives in danger ask for: about whom, and not where it would hit others than the objective is about."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

import pytest

from analytics.alerts.slo_burn import holds_of
from analytics.alerts.sources import AlertInputs
from backends.control.slos import Hold
from contracts.rules.objectives import BURN_PAIRS, HOOKS, BurnPair, Objective


@dataclass
class Burning:
    """Stands for a look that finds one objective burning at one pair."""

    objective: Objective
    pair: BurnPair = BURN_PAIRS[0]

    def burning(self) -> list[tuple[Objective, tuple[BurnPair, ...]]]:
        return [(self.objective, (self.pair,))]


def held(pair: BurnPair = BURN_PAIRS[0], **about: Any) -> list[Hold]:
    objective = Objective("up", "availability", Decimal(99), hooks=HOOKS, **about)
    return holds_of(cast(AlertInputs, Burning(objective, pair)))


def test_a_hold_is_about_what_its_objective_is_about() -> None:
    found = held(tenant="acme", model="small", route="support")
    assert [(hold.hook, hold.tenant, hold.model, hold.route) for hold in found] == [
        (hook, "acme", "small", "support") for hook in HOOKS
    ]


def test_batches_are_not_shed_for_prompts_of_one_length() -> None:
    """Such objectives are refused, but older versions took them."""
    assert [hold.hook for hold in held(prompt_class="short")] == ["freeze_canaries"]


@pytest.mark.parametrize(("pair", "holds"), [(BURN_PAIRS[1], 2), (BURN_PAIRS[2], 0)])
def test_only_what_pages_people_holds_anything(pair: BurnPair, holds: int) -> None:
    assert len(held(pair)) == holds
