"""vLLM's exceptions, as those who are told of them read them."""

import pytest
from pydantic import BaseModel, ValidationError, model_validator

from backends.engine.vllm_engine.failures import first_line, request_failure
from contracts.errors import InvalidRequest, Unavailable


class Config(BaseModel):
    """A configuration as vLLM's are."""

    size: int = 1

    @model_validator(mode="after")
    def _check(self) -> "Config":
        if self.size > 1:
            raise ValueError("World size (4) is larger than\n the number of available GPUs (1)")
        return self


def test_a_validation_is_told_by_what_it_found_without_what_it_was_given() -> None:
    with pytest.raises(ValidationError) as raised:
        Config(size=4)
    assert first_line(raised.value) == "World size (4) is larger than the number of available GPUs (1)"


def test_what_says_nothing_is_named_and_what_says_much_is_cut() -> None:
    assert first_line(KeyError()) == "KeyError"
    assert len(first_line(ValueError("x" * 1000))) == 300


class EngineDeadError(Exception):
    """As vLLM names it."""


@pytest.mark.parametrize(
    ("error", "has_begun", "kind", "was_taken"),
    [
        (ValueError("top_k must be"), False, InvalidRequest, False),
        (ValueError("late"), True, Unavailable, True),
        (RuntimeError("inside"), False, Unavailable, False),
        (EngineDeadError(), False, Unavailable, True),
        (InvalidRequest("ours"), False, InvalidRequest, False),
    ],
)
def test_only_what_was_refused_at_once_cost_nothing(
    error: Exception, has_begun: bool, kind: type[Exception], was_taken: bool
) -> None:
    found, taken = request_failure(error, has_begun=has_begun)
    assert type(found) is kind and taken is was_taken
    assert "inside" not in found.message and "late" not in found.message
