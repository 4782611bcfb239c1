"""Looks up the key that pays for a batch before each action in its name."""

from contracts.access.owner import Owner, owner_of
from contracts.errors import AuthenticationFailed, PermissionDenied
from contracts.objects.batches import Batch
from contracts.serving.configuration import KeyEntry, Snapshot


def payer_of(batch: Batch, snapshot: Snapshot, now_ns: int) -> KeyEntry:
    """Return the key's entry. Raises AuthenticationFailed or PermissionDenied if the key may no longer pay for the
    batch.
    """
    entry = snapshot.keys.get(batch.payer.digest)
    if entry is None or not _is_good(entry, now_ns):
        # It may have been rotated. Looking at every key is slow, and happens where a batch would else have failed.
        same = (found for found in snapshot.keys.values() if found.identity.key_id == batch.payer.key_id)
        entry = next((found for found in same if batch.payer.key_id and _is_good(found, now_ns)), None)
    if entry is None or not _may_pay(owner_of(entry), batch):
        raise AuthenticationFailed(
            f"the API key {batch.payer.key_id!r} that pays for this batch is unknown, expired or has been revoked; "
            "send what is left with another"
        )
    tenant = snapshot.tenants.get(entry.identity.tenant)
    if tenant is not None and not tenant.is_active:
        raise PermissionDenied(f"the tenant {tenant.id!r} is not active; its administrators can say why")
    return entry


def _may_pay(payer: Owner, batch: Batch) -> bool:
    """Return whether a batch belongs to the payer; a batch from before teams were recorded has no team."""
    owner = batch.owner
    is_older = payer.is_of_team and not owner.project
    is_its = payer.tenant == owner.tenant and (payer.project == owner.project or is_older)
    return is_its and batch.created_unix >= payer.since_ns // 1_000_000_000


def _is_good(entry: KeyEntry, now_ns: int) -> bool:
    is_revoked = entry.revoked_at_ns is not None and entry.revoked_at_ns <= now_ns
    return not is_revoked and (entry.expires_at_ns is None or entry.expires_at_ns > now_ns)
