"""What is read of structs by place has to stand there."""

from msgspec.structs import astuple

from contracts.api.chat import ChatChunk, ChatReply, ChunkChoice, ChunkDelta
from contracts.metering.usage import LEAVES, Usage


def test_fields_that_are_read_by_their_places_stand_there():
    assert ChatChunk.__struct_fields__ == ("choices", "usage", "model", "system_fingerprint", "error", "service_tier")
    assert ChatReply.__struct_fields__ == ("choices", "usage", "model", "system_fingerprint", "service_tier")
    assert ChunkChoice.__struct_fields__ == ("index", "delta", "text", "finish_reason", "stop_reason")
    assert ChunkDelta.__struct_fields__[0] == "content" and not any(astuple(ChunkDelta()))
    assert Usage.__struct_fields__ == LEAVES
