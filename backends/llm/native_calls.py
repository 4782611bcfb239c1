"""Which targets can take a request that could not be translated: those that speak the API it came in."""

from backends.llm.base import ModelCall
from contracts.api.chat import TranslatedChat
from contracts.errors import UnsupportedParameter
from contracts.serving.configuration import TargetSpec
from contracts.serving.spoken_apis import speaks


def check_translated(call: ModelCall, spec: TargetSpec) -> None:
    """Raise UnsupportedParameter if a target is to be given a request that has no translation for it."""
    request = call.request
    native = request.native if isinstance(request, TranslatedChat) else None
    if native is None or native.refusal is None or speaks(spec, native.api):
        return
    raise UnsupportedParameter(native.refusal.message, param=native.refusal.param, code=native.refusal.error_code)
