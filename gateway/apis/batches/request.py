"""Parse and validate POST /v1/batches."""

from collections.abc import Collection
from typing import Final

import msgspec

from contracts.errors import InvalidRequest
from contracts.objects.batches import WINDOW
from gateway.apis.files.upload import read_expiry
from gateway.apis.reading import read_body

_MAX_PAIRS: Final = 16
_MAX_NAME: Final = 64
_MAX_VALUE: Final = 512


class OutputExpiry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Expiry of a batch's output files."""

    anchor: str
    seconds: int


class BatchRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /v1/batches."""

    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: dict[str, str] | None = None
    output_expires_after: OutputExpiry | None = None


_decoder: Final = msgspec.json.Decoder(BatchRequest)


def read_batch_request(content_type: str, body: bytes, endpoints: Collection[str]) -> BatchRequest:
    """Read a body. `endpoints` are the paths whose requests can be batched. Raises InvalidRequest naming the field."""
    request = read_body(_decoder, content_type, body)
    if request.endpoint not in endpoints:
        raise InvalidRequest(
            f"endpoint is {request.endpoint[:60]!r}; it is one of {', '.join(sorted(endpoints))}", param="endpoint"
        )
    if request.completion_window != WINDOW:
        raise InvalidRequest(
            f"completion_window is {request.completion_window[:20]!r}; it is {WINDOW!r}", param="completion_window"
        )
    if request.output_expires_after is not None:
        read_expiry(request.output_expires_after.anchor, request.output_expires_after.seconds, "output_expires_after")
    _check_metadata(request.metadata or {})
    return request


def _check_metadata(metadata: dict[str, str]) -> None:
    if len(metadata) > _MAX_PAIRS:
        raise InvalidRequest(f"metadata has {len(metadata)} pairs; at most {_MAX_PAIRS} are allowed", param="metadata")
    for name, value in metadata.items():
        if not 1 <= len(name) <= _MAX_NAME or len(value) > _MAX_VALUE:
            raise InvalidRequest(
                f"metadata has the pair {name[:_MAX_NAME]!r}, of {len(name)} and {len(value)} characters; at most "
                f"{_MAX_NAME} and {_MAX_VALUE} are allowed",
                param="metadata",
            )
        if "\x00" in name + value:  # which no database keeps in a text
            raise InvalidRequest("metadata contains a NUL character", param="metadata")
