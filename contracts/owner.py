"""Whose it is what applications keep at the gateway: files, batches, responses."""

import msgspec

from contracts.identity import Identity


class Owner(msgspec.Struct, frozen=True, gc=False):
    """Who sees what is kept. A key of a project sees that project's only; one of none, all of its tenant's."""

    tenant: str
    project: str = ""  # "team/project": two teams may each have a project of one name


def owner_of(who: Identity) -> Owner:
    """Give the owner of what a payer keeps."""
    return Owner(who.tenant, f"{who.team}/{who.project}" if who.project else "")
