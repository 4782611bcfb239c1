"""Guardrail policies of the YAML file."""

from contracts.errors import ConfigurationError
from contracts.guardrails.policy import GuardrailPolicy, policy_of
from gateway.config.entries import ConfigurationFile
from gateway.config.rules import Misplaced


def build_guardrails(parsed: ConfigurationFile) -> tuple[GuardrailPolicy, ...]:
    """Build the policies in order. Raises Misplaced if one is invalid."""
    found = []
    for number, given in enumerate(parsed.guardrails):
        try:
            found.append(policy_of(given.name, given.model_dump(exclude={"name"})))
        except ConfigurationError as error:
            raise Misplaced(("guardrails", number), error.message) from error
    return tuple(found)
