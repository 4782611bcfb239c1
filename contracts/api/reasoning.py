"""Reasoning efforts in order, and the effect of a cap on a request."""

from typing import Final, get_args

from contracts.api.chat import ChatRequest, ReasoningEffort

EFFORTS: Final[tuple[ReasoningEffort, ...]] = get_args(ReasoningEffort)  # the least first


def clip_effort(asked: ReasoningEffort | None, cap: ReasoningEffort | None) -> ReasoningEffort | None:
    """Return the effort a model is to be told: what was asked, at most the cap; `None`: tell it nothing.

    If nothing was asked the cap itself is told, as the model's own default may lie above it.
    """
    if cap is None or asked is None:
        return asked if cap is None else cap
    return min(asked, cap, key=EFFORTS.index)


def asked_effort(request: ChatRequest) -> ReasoningEffort | None:
    """Return the effort that a request asks for, in its own field or, which counts for more, for the chat template.

    `None` if it asks for none, or for one that has no place in the order.
    """
    stated = (request.chat_template_kwargs or {}).get("reasoning_effort", request.reasoning_effort)
    return next((effort for effort in EFFORTS if effort == stated), None)
