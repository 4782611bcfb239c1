"""Who was given how much service, and how far two tenants were ever apart."""

from contracts.rules.limits import QueueSpec


class ServiceBook:
    """Weighted tokens by tenant, in the order in which they were given."""

    def __init__(self, spec: QueueSpec) -> None:
        self._input_weight = spec.input_weight
        self._output_weight = spec.output_weight
        self._given: list[tuple[str, float]] = []

    @property
    def entries(self) -> int:
        """Count what was noted."""
        return len(self._given)

    def note(self, now_ns: int, tenant: str, input_tokens: int, output_tokens: int) -> None:
        """Record tokens of a prompt that begins, or of an output that has come."""
        self._given.append((tenant, self._input_weight * input_tokens + self._output_weight * output_tokens))

    def service(self, tenant: str) -> float:
        """Return a tenant's service in all."""
        return sum(amount for name, amount in self._given if name == tenant)

    def largest_difference(self, one: str, other: str) -> float:
        """Return the largest difference between two tenants' service over any interval.

        That is how far the running difference ever strays: its maximum less its minimum, 0 at the beginning.
        """
        difference = highest = lowest = 0.0
        for name, amount in self._given:
            if name in (one, other):
                difference += amount if name == one else -amount
                highest, lowest = max(highest, difference), min(lowest, difference)
        return highest - lowest
