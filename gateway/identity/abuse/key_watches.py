"""The key watches of one policy: a bounded number; the least recently used are dropped."""

from collections import OrderedDict
from typing import Final

from algorithms.abuse.key_watch import KeyWatch
from algorithms.abuse.spec import AbuseSpec

MOST_KEYS: Final = 500  # watched at once: some tens of kilobytes each at the most


class KeyWatches:
    """Holds each key's watch. The counts of a key that was dropped start from zero."""

    def __init__(self, spec: AbuseSpec, most: int = MOST_KEYS) -> None:
        self._spec = spec
        self._most = most
        self._watches: OrderedDict[tuple[str, str], KeyWatch] = OrderedDict()

    def __len__(self) -> int:
        return len(self._watches)

    @property
    def size(self) -> int:
        """Return the number of stored sketches and names of all keys."""
        return sum([watch.size for watch in self._watches.values()])

    def of(self, tenant: str, key_id: str) -> KeyWatch | None:
        """Return a key's watch; `None` if the policy does not cover the key."""
        if self._spec.keys and key_id not in self._spec.keys:
            return None
        place = (tenant, key_id)
        watch = self._watches.get(place)
        if watch is None:
            watch = self._watches[place] = KeyWatch(self._spec)
            if len(self._watches) > self._most:
                self._watches.popitem(last=False)
        else:
            self._watches.move_to_end(place)
        return watch
