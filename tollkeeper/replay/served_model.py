"""The model of a run, and its context length."""

from dataclasses import dataclass
from typing import Final

from backends.control.bootstrap import BUILTIN_MODEL
from contracts.errors import ConfigurationError
from tollkeeper.control_client import ControlClient

SCRIPTED_PREFIX: Final = "scripted-"


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model, by the name that applications use. `context_tokens` is `None` if unknown."""

    id: str
    context_tokens: int | None = None

    @property
    def is_scripted(self) -> bool:
        """Return whether it is a scripted model, whose prompts must state the number of tokens to answer."""
        return self.id.startswith(SCRIPTED_PREFIX)


def choose_model(control: ControlClient, wanted: str = "") -> ServedModel:
    """Return the wanted model; by default the built-in one, or a scripted one if that is not served.

    A model that may cost money is never chosen by default. Raises ConfigurationError if there is none.
    """
    served = {str(row["id"]): row for row in control.get_all("/v1/models") if row["is_active"]}
    known = ", ".join(sorted(served)) or "none"
    scripted = [name for name in sorted(served) if name.startswith(SCRIPTED_PREFIX)]
    candidates = [wanted] if wanted else [BUILTIN_MODEL, *scripted]
    for name in candidates:
        if name in served:
            return ServedModel(name, served[name]["context_tokens"])
    if wanted:
        raise ConfigurationError(f"there is no model {wanted[:80]!r}; the gateway serves: {known}")
    raise ConfigurationError(f"neither the built-in nor a scripted model is served; name one with --model: {known}")
