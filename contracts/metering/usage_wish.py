"""Whether a stream's caller wants the usage chunk at its end: asked twice for every stream, and so compiled."""

from contracts.api.chat import GenerationRequest, TranslatedChat


def wants_usage(request: GenerationRequest) -> bool:
    """Return whether the caller asked for it. Other APIs report usage elsewhere, and get no chat chunks."""
    options = request.stream_options
    return options is not None and options.include_usage is True and not isinstance(request, TranslatedChat)
