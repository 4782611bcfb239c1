"""A page: its name, its address, what it draws, and which filters and roles are its own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from contracts.control import Role
from dashboard.filters import DEFAULT_RANGE

if TYPE_CHECKING:
    from dashboard.visit import Visit

FilterName = Literal["range", "compare", "tenant", "team", "project", "key", "model"]

# A directory's token is not a person, and a developer sees what is their own alone.
PEOPLE: Final = frozenset(Role) - {Role.DIRECTORY}
EVERYONE: Final = PEOPLE - {Role.DEVELOPER}


@dataclass(frozen=True, slots=True)
class Page:
    """One page. `draw` is called with each visit, and again while the range moves with the clock (`is_live`).

    `filters` stand in the bar in their order; those that a page does not name do not narrow it. Viewers of other
    `roles` do not have it in their navigation. `about` is one sentence, shown at the title. `default_range` is what an
    address without a range means here, a name of `filters.RANGES` or `filters.MONTHS`. `ahead` is called once an hour
    for each viewer who may open the page, whichever they look at: it begins to find what is the same for that hour.
    """

    title: str
    path: str
    icon: str
    draw: "Callable[[Visit], None]"
    filters: tuple[FilterName, ...] = ("range", "tenant", "model")
    is_live: bool = True
    roles: frozenset[Role] = EVERYONE
    about: str = ""
    default_range: str = DEFAULT_RANGE
    ahead: "Callable[[Visit], None] | None" = None
