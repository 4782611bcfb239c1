"""Builds answers to refused and failed requests, without confidential details."""

from contracts.engine.wire import Answer, Embedded, Finished
from contracts.errors import TollkeeperError
from contracts.metering.usage import Usage
from contracts.recording.records import GpuShare

_NOTHING = Usage(input_text=0, cache_read_text=0, output_text=0)


def named(error: Exception) -> tuple[str, str]:
    """Return the code and message of an error; for an internal error, a general message."""
    if isinstance(error, TollkeeperError):
        return error.error_code, error.message
    return TollkeeperError.code, "the engine host failed at this request; its log says why"


def refusal(request_id: bytes, error: Exception) -> Finished:
    """Return the account of a generation that was refused: no usage."""
    code, message = named(error)
    return Finished(
        request_id=request_id, finish_reason="error", usage=_NOTHING, error_code=code, error_message=message
    )


def embed_refusal(
    request_id: bytes, error: Exception, *, input_tokens: int = 0, gpu: GpuShare | None = None
) -> Embedded:
    """Return the answer to a failed embedding request, with its usage until then."""
    code, message = named(error)
    return Embedded(request_id=request_id, input_tokens=input_tokens, gpu=gpu, error_code=code, error_message=message)


def call_refusal(call_id: int, error: Exception) -> Answer:
    """Return the answer to a failed call; call id 0 stands for the connection."""
    code, message = named(error)
    return Answer(call_id=call_id, ok=False, error_code=code, error_message=message)
