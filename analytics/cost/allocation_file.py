"""Reads saved allocations: a YAML file of rules by name, for the command line and the dashboard."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import msgspec
import yaml
from sqlalchemy.orm import Session

from analytics.cost.allocation import Allocation, AllocationRules, allocate_costs, check_rules
from analytics.cost.drill import CostRange
from analytics.cost.question import CostQuestion
from backends.control.rates import load_rates
from backends.store.client import StoreClient
from contracts.errors import ConfigurationError, NotFound
from contracts.pricing.rates import RateBook


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    allocations: dict[str, AllocationRules]


def read_allocations(file: Path) -> Mapping[str, AllocationRules]:
    """Read a file's allocations by name. Raises ConfigurationError with the line or field, InvalidRequest for
    contradictory rules."""
    try:
        found = msgspec.convert(yaml.safe_load(file.read_text(encoding="utf-8")), _File)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f", line {mark.line + 1}"
        raise ConfigurationError(f"{file}{where}: not YAML") from error
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{file}: {error}") from error
    for rules in found.allocations.values():
        check_rules(rules)
    return found.allocations


def allocation_of(file: Path, name: str) -> AllocationRules:
    """Read one allocation of a file. Raises as `read_allocations`, and NotFound."""
    found = read_allocations(file)
    if name not in found:
        raise NotFound(f"{file} has no allocation {name!r}; it has: {', '.join(sorted(found)) or 'none'}")
    return found[name]


@dataclass(frozen=True, slots=True)
class SavedAllocation:
    """An allocation and the GPU rates, compared by their contents, so that pages can cache results by it."""

    name: str
    text: bytes  # the rules as JSON
    changes: tuple[datetime, ...]  # times at which rates change
    rules: AllocationRules = field(compare=False, repr=False)
    rates: RateBook = field(compare=False, repr=False)


def saved_allocation(session: Session, file: Path, name: str) -> SavedAllocation:
    """Read an allocation and the GPU rates. Raises as `allocation_of`."""
    rules, rates = allocation_of(file, name), load_rates(session)
    return SavedAllocation(name, msgspec.json.encode(rules), tuple(rates.changes()), rules, rates)


def allocate_saved(store: StoreClient, saved: SavedAllocation, within: CostRange) -> Allocation:
    """Distribute a range's shared costs by a saved allocation. Raises as `allocate_costs`."""
    question = CostQuestion(within.period.start, within.period.end, (), None, within.zone, asked_at=within.asked_at)
    return allocate_costs(store, question, saved.rules, saved.rates)
