"""Matches bill lines with requests: models by all their names, targets by their keys."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from analytics.prices.provider_names import price_names
from analytics.reconciliation.formats.words import describe
from analytics.reconciliation.lines import BillLine
from analytics.reconciliation.matching import Bucket
from contracts.metering.usage import LEAVES

_VENDOR: Final = re.compile(r"^(?:anthropic|meta|mistral|amazon|cohere|ai21|deepseek|openai|google|qwen)\.")
_REVISION: Final = re.compile(r"-v\d+(?::\d+)?$")
_OTHER: Final = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class RecordedName:
    """Names of a model in a record: the target, the requested model, the target's name for it, and the answer's."""

    target: str
    model: str
    upstream: str = ""
    answered: str = ""


class Placement:
    """Assigns bill lines and recorded usage to the same buckets.

    `keys` are keys' names in bills with the targets that use them (empty: any). Without keys, all lines belong to this
    installation, and targets are not distinguished. With keys, lines of other keys do not belong to it. Targets are
    distinguished only if every line has a key and every target has one.
    """

    def __init__(
        self,
        provider: str,
        recorded: Iterable[RecordedName],
        lines: Iterable[BillLine],
        keys: Mapping[str, str],
        models: Mapping[str, str],
    ) -> None:
        self._keys = keys
        self._provider = provider
        self._parents: dict[str, str] = {}
        self._display: dict[str, str] = {}
        names_of: dict[str, str] = {}  # model here to one of the provider's names for it
        targets: set[str] = set()
        known = list(recorded)
        for one in known:
            targets.add(one.target)
            given = [name for name in (one.answered, one.upstream) if name] or [one.model]
            self._join(name for full in given for name in self._forms(full))
            names_of.setdefault(one.model, given[0])
            self._display.setdefault(self._find(_squash(given[0])), given[0])
        for name, model in models.items():
            self._join([_squash(name), _squash(names_of.get(model, model))])
        used = set(keys.values())
        self._by_target = (
            bool(keys)
            and "" not in used
            and targets <= used
            and all(line.keys for line in lines if line.kind in LEAVES)
        )
        self._models: dict[str, str] = {}

    def place(self, line: BillLine) -> tuple[Bucket, bool]:
        """Return the bucket of a line, and whether its key is known; an unknown key is used as the target."""
        target = ""
        if self._keys and line.keys:
            found = next((self._keys[key] for key in line.keys if key in self._keys), None)
            if found is None:
                return Bucket(line.day, self.model_of(line.model), line.keys[0]), False
            target = found if self._by_target else ""
        return Bucket(line.day, self.model_of(line.model), target), True

    def bucket(self, day: str, name: RecordedName) -> Bucket:
        """Return the bucket of recorded usage."""
        model = self.model_of(name.answered or name.upstream or name.model)
        return Bucket(day, model, name.target if self._by_target else "")

    def model_of(self, name: str) -> str:
        """Return the canonical name of a model."""
        found = self._models.get(name)
        if found is None:
            roots = [self._find(form) for form in self._forms(name)]
            root = next((root for root in roots if root in self._display), roots[0] if roots else "")
            found = self._models[name] = self._display.get(root, name)
        return found

    def _forms(self, name: str) -> list[str]:
        plain = _REVISION.sub("", name)
        names = [name, *(each.model for each in price_names("litellm", self._provider, plain, self._provider))]
        names += [describe(each).model for each in names]
        return list(dict.fromkeys(filter(None, map(_squash, names))))

    def _join(self, names: Iterable[str]) -> None:
        roots = [self._find(name) for name in names]
        for root in roots[1:]:
            if root != roots[0]:
                self._parents[root] = roots[0]
                if root in self._display:
                    self._display.setdefault(roots[0], self._display.pop(root))

    def _find(self, name: str) -> str:
        while (parent := self._parents.get(name, name)) != name:
            name = parent
        return name


def _squash(name: str) -> str:
    """Return a normalised name, without case, punctuation, vendor and revision."""
    return _OTHER.sub("", _REVISION.sub("", _VENDOR.sub("", name.strip().lower())))
