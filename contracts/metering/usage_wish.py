"""Whether a stream's caller wants the usage chunk at its end: asked twice on every stream's way, and so compiled."""

from contracts.api.chat import GenerationRequest, TranslatedChat


def wants_usage(request: GenerationRequest) -> bool:
    """Return whether the caller asked for it. Another API has a place of its own for it, and sees no chunks of a
    chat.
    """
    options = request.stream_options
    return options is not None and options.include_usage is True and not isinstance(request, TranslatedChat)
