"""The definition of a page: title, path, draw function, filters and roles."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from contracts.control import Role
from dashboard.filters import DEFAULT_RANGE

if TYPE_CHECKING:
    from dashboard.visit import Visit

FilterName = Literal["range", "compare", "tenant", "team", "project", "key", "model"]

# A directory token is not a person, and developers see only their own keys and requests.
PEOPLE: Final = frozenset(Role) - {Role.DIRECTORY}
EVERYONE: Final = PEOPLE - {Role.DEVELOPER}


@dataclass(frozen=True, slots=True)
class Page:
    """One page. `draw` is called for each visit, and on each refresh while the range is relative to now (`is_live`).

    `filters`: names of the filters in the bar, in order; other filters do not apply to the page. `roles`: who sees the
    page in the navigation. `about`: one sentence, shown at the title. `default_range`: range if the URL has none, a
    name of `filters.RANGES` or `filters.MONTHS`. `ahead`: called once an hour for each viewer who may open the page;
    it starts the slow queries whose results hold for that hour.
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
