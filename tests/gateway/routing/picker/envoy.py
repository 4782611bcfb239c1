"""Envoy's part of external processing, in Envoy's own messages (`envoy-data-plane`) over gRPC."""

import json
import warnings
from typing import Any

import grpc.aio

with warnings.catch_warnings():  # the generated validators are written for an earlier pydantic
    warnings.simplefilter("ignore")
    from envoy_data_plane.envoy.config.core.v3 import HeaderMap, HeaderValue, Metadata
    from envoy_data_plane.envoy.extensions.filters.http.ext_proc.v3 import ProcessingModeBodySendMode as Mode
    from envoy_data_plane.envoy.service.ext_proc.v3 import (
        HttpBody,
        HttpHeaders,
        ProcessingRequest,
        ProcessingResponse,
        ProtocolConfiguration,
    )
    from envoy_data_plane.google.protobuf import ListValue, Struct, Value

DESTINATION = "x-gateway-destination-endpoint"
PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"


def headers_of(**more: str) -> HttpHeaders:
    named = {":method": "POST", ":path": "/v1/chat/completions", "content-type": "application/json", **more}
    return HttpHeaders(headers=HeaderMap(headers=[HeaderValue(key=k, raw_value=v.encode()) for k, v in named.items()]))


def body_of(model: str = "m", prompt: str = "hello", **more: Any) -> bytes:
    return json.dumps({"model": model, "messages": [{"role": "user", "content": prompt}], **more}).encode()


class Exchange:
    """One request that Envoy has, step by step."""

    def __init__(self, channel: grpc.aio.Channel, *, duplex: bool = False, sees_answer: bool = True) -> None:
        method = channel.stream_stream(
            PROCESS, request_serializer=bytes, response_deserializer=ProcessingResponse.parse
        )
        self._call = method()
        self._is_duplex = duplex
        self._config = ProtocolConfiguration(
            request_body_mode=Mode.FULL_DUPLEX_STREAMED if duplex else Mode.BUFFERED,
            response_body_mode=Mode.STREAMED if sees_answer else Mode.NONE,
        )
        self.body = b""  # as it came back, where it does

    async def send(self, **message: Any) -> None:
        await self._call.write(ProcessingRequest(**message))

    async def answer(self) -> ProcessingResponse:
        found: Any = await self._call.read()
        assert found is not grpc.aio.EOF, "the picker ended the stream"
        return found

    async def pick(
        self, body: bytes, subset: list[str] | None = None, pieces: int = 1, **headers: str
    ) -> ProcessingResponse:
        """Send headers and body; return the answer that has the pick, or refuses."""
        context = None
        if subset is not None:
            named = Value(list_value=ListValue(values=[Value(string_value=one) for one in subset]))
            fields = {"x-gateway-destination-endpoint-subset": named}
            context = Metadata(filter_metadata={"envoy.lb.subset_hint": Struct(fields=fields)})
        await self.send(request_headers=headers_of(**headers), protocol_config=self._config, metadata_context=context)
        if not self._is_duplex:
            assert (await self.answer()).request_headers is not None
            await self.send(request_body=HttpBody(body=body, end_of_stream=True))
            return await self.answer()
        size = max(len(body) // pieces, 1)
        for begin in range(0, len(body), size):
            part = body[begin : begin + size]
            await self.send(request_body=HttpBody(body=part, end_of_stream=begin + size >= len(body)))
        first = await self.answer()
        is_last = first.immediate_response is not None
        while not is_last:
            streamed = (await self.answer()).request_body.response.body_mutation.streamed_response
            self.body += streamed.body
            is_last = streamed.end_of_stream
        return first

    async def respond(self, status: str = "200", pieces: int = 1) -> None:
        """Send what the endpoint answers."""
        answered = HttpHeaders(headers=HeaderMap(headers=[HeaderValue(key=":status", raw_value=status.encode())]))
        await self.send(response_headers=answered)
        assert (await self.answer()).response_headers is not None
        for number in range(pieces):
            await self.send(response_body=HttpBody(body=b"data: x\n\n", end_of_stream=number == pieces - 1))
            assert (await self.answer()).response_body is not None

    async def close(self) -> None:
        await self._call.done_writing()
        assert await self._call.read() is grpc.aio.EOF


def picked(answer: ProcessingResponse) -> list[str]:
    """Return the endpoints of an answer, which the header and the metadata tell alike."""
    common = (answer.request_headers or answer.request_body).response
    told = {one.header.key: one.header.raw_value.decode() for one in common.header_mutation.set_headers}
    metadata = answer.dynamic_metadata.fields["envoy.lb"].struct_value.fields[DESTINATION].string_value
    assert told[DESTINATION] == metadata
    assert common.clear_route_cache
    return metadata.split(",")
