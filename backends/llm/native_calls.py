"""Which targets can take a request that could not be translated, or not without leaving out a part of it."""

from typing import Final

from backends.llm.base import ModelCall
from contracts.api.chat import TranslatedChat
from contracts.api.embedding import TranslatedEmbedding
from contracts.api.media import MediaRequest
from contracts.errors import InvalidRequest, UnsupportedParameter
from contracts.serving.configuration import TargetSpec
from contracts.serving.spoken_apis import drops_unknown, speaks

_TAKES_MEDIA: Final = "openai_http"  # the kind of target that images, sound and moderations go to


def check_translated(call: ModelCall, spec: TargetSpec) -> None:
    """Raise UnsupportedParameter if a target is to be given a request that it cannot take as it is, nor translated."""
    request = call.request
    if isinstance(request, MediaRequest) and spec.kind != _TAKES_MEDIA:
        raise UnsupportedParameter(
            f"{request.model!r} is served by targets that take no requests to {call.path}; ask for a model at a target "
            f"of kind {_TAKES_MEDIA}",
            param="model",
        )
    if not isinstance(request, TranslatedChat | TranslatedEmbedding):
        return
    native, refusal = request.native, request.unless_dropped
    if native is not None:
        if speaks(spec, native.api):
            return
        if native.refusal is not None:
            raise _refusal_of(native.refusal)
    if refusal is not None and not drops_unknown(spec):
        raise _refusal_of(refusal)


def _refusal_of(error: InvalidRequest) -> UnsupportedParameter:
    return UnsupportedParameter(error.message, param=error.param, code=error.error_code)
