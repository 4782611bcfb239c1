"""The fields that a model has at a place, for suggestions on misspelt ones."""

from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel

from contracts.suggestions import did_you_mean as did_you_mean


def known_fields(model: type[BaseModel], place: Sequence[int | str]) -> list[str]:
    """Return the field names at `place` within a model; empty if that is not a model."""
    here: Any = model
    for step in place:
        found = _models_in(here)
        field = next((each.model_fields[str(step)] for each in found if str(step) in each.model_fields), None)
        if isinstance(step, str) and field is not None:
            here = field.annotation
    return sorted({name for each in _models_in(here) for name in each.model_fields})


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for argument in get_args(annotation) for found in _models_in(argument)]
