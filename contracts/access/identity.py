"""The identity of a request: tenant, team, project, key, end user, and tags. Resolved once, at admission."""

from collections.abc import Mapping
from typing import Final

import msgspec

MAX_TAGS: Final = 16
MAX_TAG_LENGTH: Final = 128
MAX_USER_LENGTH: Final = 256


class Identity(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The payer of a request. Ids are the control plane's; empty means not set below the tenant.

    `tags` are free key=value pairs from the caller (at most 16, each side at most 128 characters).
    """

    tenant: str
    team: str = ""
    project: str = ""
    key_id: str = ""
    user: str = ""
    tags: dict[str, str] = {}

    def with_caller(self, user: str, tags: Mapping[str, str]) -> "Identity":
        """Return the identity with a request's end user and tags, except those that the key or token sets itself."""
        if not user and not tags:
            return self
        return Identity(self.tenant, self.team, self.project, self.key_id, self.user or user, {**tags, **self.tags})


ANONYMOUS: Final = Identity(tenant="")
