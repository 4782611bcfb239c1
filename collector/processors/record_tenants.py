"""Moves records that name another tenant than their resource into parts with a resource of that tenant.

The steps that refuse or limit tenants check only resources, but a row's tenant is the one that its record names.
"""

from typing import Any, Final

from collector.arrival import Arrival
from collector.processors.attributes import drop_attribute, tenant_in
from contracts.recording.names import TENANT

_NAME: Final = TENANT.encode()


class RecordTenants:
    """Splits parts so that all third-party records of a part belong to the tenant that its resource names."""

    def admit(self, arrival: Arrival) -> None:
        """Move records that name another tenant than their resource to new parts, at the end of the message."""
        parts = list(arrival.parts)
        named = sum(one.key == TENANT for part in parts for one in part.resource.attributes)
        if arrival.body is not None and arrival.body.count(_NAME) == named:
            return  # fast path: no record has a tenant attribute of its own
        for part in parts:
            self._split(arrival, part)

    def _split(self, arrival: Arrival, part: Any) -> None:
        processor = arrival.processor
        own = tenant_in(part.resource.attributes)
        made: dict[str, Any] = {}
        for scope in getattr(part, processor.scopes):
            records = getattr(scope, processor.records)
            stay: list[Any] = []
            moved: dict[str, list[Any]] = {}
            for record in records:
                whose = {own: record} if processor.is_ours(record) else processor.by_tenant(record, own)
                for tenant, piece in whose.items():
                    (stay if tenant == own else moved.setdefault(tenant, [])).append(piece)
            for tenant, pieces in moved.items():
                target = made.get(tenant)
                if target is None:
                    target = made[tenant] = _part_of(arrival, part, tenant)
                beside = getattr(target, processor.scopes).add(scope=scope.scope, schema_url=scope.schema_url)
                getattr(beside, processor.records).extend(pieces)
            if moved:
                arrival.body = None
                del records[:]
                records.extend(stay)


def _part_of(arrival: Arrival, part: Any, tenant: str) -> Any:
    made = arrival.parts.add(resource=part.resource, schema_url=part.schema_url)
    drop_attribute(made.resource, TENANT)
    made.resource.attributes.add(key=TENANT).value.string_value = tenant
    return made
