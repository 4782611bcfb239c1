"""Reasoning efforts in order, and the effect of a cap on a request."""

from typing import Final, get_args

from contracts.api.chat import ChatRequest, ReasoningEffort

EFFORTS: Final[tuple[ReasoningEffort, ...]] = get_args(ReasoningEffort)  # lowest first


def clip_effort(asked: ReasoningEffort | None, cap: ReasoningEffort | None) -> ReasoningEffort | None:
    """Return the effort to send to a model: the requested one, at most the cap; `None`: send none.

    Without a requested effort the cap itself is sent, because the model's default may be higher.
    """
    if cap is None or asked is None:
        return asked if cap is None else cap
    return min(asked, cap, key=EFFORTS.index)


def asked_effort(request: ChatRequest) -> ReasoningEffort | None:
    """Return the effort that a request asks for, in its own field or, with precedence, for the chat template.

    Return `None` if it asks for none, or for one that is not in `EFFORTS`.
    """
    stated = (request.chat_template_kwargs or {}).get("reasoning_effort", request.reasoning_effort)
    return next((effort for effort in EFFORTS if effort == stated), None)
