"""Try a policy on a text: nothing is sent, called or stored."""

from dataclasses import dataclass
from typing import Final

from contracts.guardrails.finding import Shown, Side
from contracts.guardrails.plain_text import plain_text
from contracts.guardrails.policy import GuardrailPolicy
from gateway.guardrails.checking import dependencies_of_checks
from gateway.guardrails.guard_plan import compile_plan
from gateway.guardrails.request_texts import without

MOST_TEXT: Final = 200_000  # characters


@dataclass(frozen=True, slots=True)
class PolicyTrial:
    """Verdicts as on records, and the resulting text; `None` if `blocked_by` stops it."""

    verdicts: list[str]
    blocked_by: str
    text: str | None


def try_policy(policy: GuardrailPolicy, text: str, side: Side) -> PolicyTrial:
    """Run the stages of a policy that inspect texts locally on a text. Raises ConfigurationError.

    Rules about requests, detectors that count requests, and stages that call services are not included.
    """
    plan = compile_plan([policy], dependencies_of_checks())
    if side == "input":
        screening = plan.input.check([Shown(plain_text(text), "user")])
        blocked = screening.blocked
        verdicts = screening.verdicts
        passed = without(text, screening.cuts.get(0, ()))
    else:
        screening = plan.output.whole.check([Shown(plain_text(text), "assistant")])
        acting, watching = plan.output.stream(), plan.output.watch()
        watching.take(text)
        watching.flush()
        passed = acting.take(text) + acting.flush()
        blocked = acting.blocked or screening.blocked
        verdicts = [*acting.verdicts, *watching.verdicts, *screening.verdicts]
    told = [verdict.text for verdict in verdicts]
    return PolicyTrial(told, "" if blocked is None else blocked.stage, None if blocked is not None else passed)
