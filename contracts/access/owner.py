"""Owners of objects that applications store: files, batches, responses."""

import msgspec

from contracts.serving.configuration import KeyEntry


class Owner(msgspec.Struct, frozen=True, gc=False):
    """Who may see stored objects: those of the key's project, of its team if it has no project, or of its tenant if it
    has no team.
    """

    tenant: str
    project: str = ""  # "team/project", or "team/" without a project: teams may have projects of the same name
    since_ns: int = 0  # earlier objects belong to an earlier tenant, team or project with the same id

    @property
    def is_of_team(self) -> bool:
        """Return whether the owner is a team, and so all of its projects."""
        return self.project.endswith("/")


def owner_of(key: KeyEntry) -> Owner:
    """Return the owner of objects that a key stores."""
    who = key.identity
    return Owner(who.tenant, f"{who.team}/{who.project}" if who.team or who.project else "", key.since_ns)
