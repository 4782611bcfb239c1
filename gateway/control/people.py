"""The installation's rules for users of an identity provider, and for self-service keys."""

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class OwnKeyRules:
    """Rules for keys that people create for themselves: the maximum number, and the maximum cost of each per calendar
    month.
    """

    most: int
    usd: Decimal


@dataclass(frozen=True, slots=True)
class Person:
    """A person who signs in, as confirmed by the identity provider."""

    email: str
    name: str = ""
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SignInGroups:
    """The account that a person gets at sign-in: one of `tenant`, in the team of a group.

    If `tenant` is empty, only existing accounts sign in.
    """

    tenant: str = ""
    prefix: str = ""

    def teams_of(self, person: Person) -> tuple[str, ...]:
        """Return the groups of a person that become teams, by the names that their teams get."""
        named = [group for group in person.groups if group.startswith(self.prefix)]
        return tuple(name for group in named if (name := group.removeprefix(self.prefix).strip()))
