"""Owners of objects that applications store: files, batches, responses."""

import msgspec

from contracts.serving.configuration import KeyEntry


class Owner(msgspec.Struct, frozen=True, gc=False):
    """Who sees what is kept. A key sees what is its project's, its team's where it has no project, or its tenant's
    where it has no team either.
    """

    tenant: str
    project: str = ""  # "team/project", or "team/" of no project: two teams may each have a project of one name
    since_ns: int = 0  # what was kept before is of an earlier tenant, team or project with the same id

    @property
    def is_of_team(self) -> bool:
        """Return whether it is a team's, and so of all of its projects."""
        return self.project.endswith("/")


def owner_of(key: KeyEntry) -> Owner:
    """Return the owner of objects that a key stores."""
    who = key.identity
    return Owner(who.tenant, f"{who.team}/{who.project}" if who.team or who.project else "", key.since_ns)
