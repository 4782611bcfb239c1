"""Result of a load test: highest sustainable rate, goodput, and cost per million tokens."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Final

from analytics.runs import RunTotals
from tollkeeper.loadtest.knee import Knee
from tollkeeper.loadtest.objective import Objective
from tollkeeper.loadtest.step import Step

_MILLION: Final = 1_000_000
_CENTS_OF_A_CENT: Final = Decimal("0.0001")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """USD per million tokens at the knee, as decimal text; `None` if unknown.

    `charged_*`: recorded cost (price card or standard cost card) over output tokens and over all tokens.
    `machine_per_million_out`: the machine's hourly price over the goodput.
    """

    charged_per_million_out: str | None = None
    charged_per_million: str | None = None
    machine_per_million_out: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a load test."""

    run_id: str
    model: str
    objective: Objective
    knee: Knee[Step]
    cost: Cost
    is_interrupted: bool = False

    def as_json(self) -> Mapping[str, object]:
        """Return the result as JSON types. `knee` is null if even the lowest rate missed the objective."""
        best = self.knee.best
        return {
            "run_id": self.run_id,
            "model": self.model,
            "slo": asdict(self.objective),
            "knee": None if best is None else asdict(best),
            "knee_is_bounded": self.knee.is_bounded,
            "goodput_per_s": None if best is None else best.goodput_per_s,
            "goodput_tokens_per_s": None if best is None else best.goodput_tokens_per_s,
            "usd_per_million_tokens": asdict(self.cost),
            "is_interrupted": self.is_interrupted,
            "steps": [asdict(step) for step in self.knee.steps],
        }


def cost_at(knee: Knee[Step], totals: RunTotals | None, usd_per_hour: Decimal | None) -> Cost:
    """Compute the cost at the knee from the step's sums in the store and the machine's price."""
    if knee.best is None:
        return Cost()
    charged_out = charged_all = machine = None
    if totals is not None and totals.unpriced == 0:
        charged_out = _per_million(totals.cost_usd, totals.output_tokens)
        charged_all = _per_million(totals.cost_usd, totals.output_tokens + totals.input_tokens)
    if usd_per_hour is not None and knee.best.goodput_tokens_per_s > 0:
        per_hour = Decimal(str(knee.best.goodput_tokens_per_s)) * 3600
        machine = str((usd_per_hour * _MILLION / per_hour).quantize(_CENTS_OF_A_CENT))
    return Cost(charged_per_million_out=charged_out, charged_per_million=charged_all, machine_per_million_out=machine)


def _per_million(cost_usd: Decimal, tokens: int) -> str | None:
    return str((cost_usd * _MILLION / tokens).quantize(_CENTS_OF_A_CENT)) if tokens else None
