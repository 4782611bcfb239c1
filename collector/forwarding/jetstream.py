"""Publishes batches to NATS JetStream with their id, so that the stream drops duplicates."""

import asyncio
import contextlib
from collections.abc import Sequence
from math import ceil
from typing import Final

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js import JetStreamContext

from collector.forwarding.forwarder import BatchRefused, DestinationAway
from collector.spool import SpooledBatch
from contracts.errors import ConfigurationError

_SECONDS: Final = 5.0
_TOO_LARGE: Final = "it accepts no message as large as the batch; increase max_payload of NATS"


class JetStreamDestination:
    """Publishes to `SUBJECT.SIGNAL` with the header `Nats-Msg-Id`, and waits for the stream's acknowledgement."""

    name = "nats"
    gathering = None

    def __init__(self, url: str, subject: str, answer_seconds: float = _SECONDS) -> None:
        """Set the server's URL, the subject's prefix, and the timeout of an acknowledgement.

        Raises ConfigurationError if the URL or the subject is invalid.
        """
        if not url.startswith(("nats://", "tls://")):
            raise ConfigurationError(
                "TOLLKEEPER_FORWARD_NATS is not a URL of NATS; give nats://HOST:PORT or tls://HOST:PORT"
            )
        if not subject or any(each in subject for each in " \t*>") or subject.startswith(".") or subject.endswith("."):
            raise ConfigurationError(
                f"TOLLKEEPER_FORWARD_NATS_SUBJECT is {subject!r}; give words with dots between them"
            )
        self._url = url
        self._subject = subject
        self._answer_seconds = answer_seconds
        self._loop = asyncio.new_event_loop()
        self._client: Client | None = None
        self._stream: JetStreamContext | None = None

    def takes(self, batch: SpooledBatch) -> bool:
        """Return True: consumers get all signals, and can decode packed records with `contracts.recording`."""
        return True

    def send(self, batches: Sequence[SpooledBatch]) -> None:
        """Publish batches. Raises DestinationAway if no stream acknowledges one, BatchRefused if it is too large."""
        try:
            for batch in batches:
                self._loop.run_until_complete(self._publish(batch))
        except nats.errors.MaxPayloadError as error:
            raise BatchRefused(_TOO_LARGE) from error
        except nats.js.errors.NoStreamResponseError as error:
            raise DestinationAway(f"no stream has the subject {self._subject}.>; make one") from error
        except (nats.errors.Error, nats.js.errors.Error, OSError, TimeoutError) as error:
            self._loop.run_until_complete(self._leave())
            raise DestinationAway(f"it does not acknowledge ({type(error).__name__})") from error

    def close(self) -> None:
        """Close the connection."""
        self._loop.run_until_complete(self._leave())
        self._loop.close()

    async def _publish(self, batch: SpooledBatch) -> None:
        if self._stream is None:
            self._client = Client()  # assigned before connecting: a client that fails to connect must be closed as well
            await self._client.connect(
                self._url,
                connect_timeout=ceil(self._answer_seconds),
                allow_reconnect=False,
                error_cb=_ignore,
                name="tollkeeper collector",
            )
            self._stream = self._client.jetstream(timeout=self._answer_seconds)
        headers = {"Nats-Msg-Id": batch.batch_id, "Tollkeeper-Received-Ns": str(batch.received_at_ns)}
        await self._stream.publish(f"{self._subject}.{batch.signal}", batch.payload, headers=headers)

    async def _leave(self) -> None:
        client, self._client, self._stream = self._client, None, None
        if client is None or client.is_closed:
            return
        with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
            async with asyncio.timeout(self._answer_seconds):
                await client.close()
                return
        # On a lossy network the client waits here until its buffer is sent.
        writer: asyncio.StreamWriter | None = getattr(client._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()
            await asyncio.sleep(0)  # lets the event loop release it


async def _ignore(error: Exception) -> None:
    """Ignore the error: the failing call reports it."""
