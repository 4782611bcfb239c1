"""POST /v1/responses/input_tokens: how many tokens the input of a response would have."""

from typing import Final

from gateway.apis.messages.count_tokens import Counting
from gateway.apis.operations import Operation

PATH: Final = "/v1/responses/input_tokens"


def responses_counting(operation: Operation) -> Counting:
    """Return how prompts of the operation, that of responses, are counted."""
    return Counting(PATH, operation, operation.read, _answer)


def _answer(tokens: int) -> object:
    return {"object": "response.input_tokens", "input_tokens": tokens}
