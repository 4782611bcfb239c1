"""Which targets can take a request that could not be translated, or not without leaving out a part of it."""

from backends.llm.base import ModelCall
from contracts.api.chat import TranslatedChat
from contracts.errors import InvalidRequest, UnsupportedParameter
from contracts.serving.configuration import TargetSpec
from contracts.serving.spoken_apis import drops_unknown, speaks


def check_translated(call: ModelCall, spec: TargetSpec) -> None:
    """Raise UnsupportedParameter if a target is to be given a request that has no translation for it."""
    request = call.request
    if not isinstance(request, TranslatedChat):
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
