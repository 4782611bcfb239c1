"""Checks signatures: `tollkeeper.*` records are accepted only with a gateway's signature."""

from backends.telemetry.otlp import string_attribute
from collector.arrival import Arrival
from contracts.errors import AuthenticationFailed
from contracts.recording.names import BATCH_ID, BATCH_SIGNATURE
from contracts.recording.record_signature import digest_of_records, is_signature_of


class RecordOrigin:
    """An `ArrivalStep` that refuses requests with packed records that no gateway of this installation signed."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def admit(self, arrival: Arrival) -> None:
        """Raise AuthenticationFailed (401, code unsigned_records) if a part has packed records and no valid signature.

        The whole request is refused. A gateway with a wrong key keeps its records in its journal and retries.
        """
        processor = arrival.processor
        for part in arrival.parts:
            ours = [
                (record.event_name, record.time_unix_nano, record.body.bytes_value)
                for record in processor.records_of(part)
                if processor.is_ours(record)
            ]
            if not ours:
                continue
            # As for the batch id later on: if an attribute occurs twice, the first counts.
            signature, batch_id = (string_attribute(part.resource, name) for name in (BATCH_SIGNATURE, BATCH_ID))
            if not is_signature_of(signature, self._key, batch_id, digest_of_records(ours)):
                raise AuthenticationFailed(
                    f"{len(ours)} records are named tollkeeper.* and "
                    f"{'their signature is another one' if signature else 'are not signed'}: only gateways send those. "
                    "Name other events differently; a gateway needs the collector's secrets/record_signing_key "
                    "(TOLLKEEPER_RECORD_SIGNING_KEY)",
                    code="unsigned_records",
                )
