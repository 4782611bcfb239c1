"""Groups a key's nearly identical prompts into clusters: a bounded number of clusters, each of bounded size."""

from collections import deque
from typing import Final

from algorithms.abuse.sketch import Sketch, index_of, similarity
from algorithms.abuse.window_count import WindowCount

MOST_CLUSTERS: Final = 16  # per key; a new one replaces one without recent members, or the smallest
_MOST_KNOWN: Final = 16  # latest members per cluster, to tell repetitions from variants


class PromptCluster:
    """Prompts similar to the first of them. `members` counts all in the window, `variants` those that are not
    repetitions.

    `size` is the number of members since the beginning, `latest_ns` the time of the last one.
    """

    __slots__ = ("sketch", "members", "variants", "size", "latest_ns", "_known")

    def __init__(self, sketch: Sketch, window_seconds: float) -> None:
        self.sketch = sketch
        self.members = WindowCount(window_seconds)
        self.variants = WindowCount(window_seconds)
        self.size = 0
        self.latest_ns = 0
        self._known: deque[int] = deque(maxlen=_MOST_KNOWN)

    def knows(self, text_hash: int) -> bool:
        """Return whether exactly this prompt is among the latest members."""
        return text_hash in self._known

    def add(self, text_hash: int, now_ns: int) -> None:
        """Count a member."""
        self.members.add(now_ns)
        self.size += 1
        self.latest_ns = now_ns
        if not self.knows(text_hash):
            self._known.append(text_hash)
            self.variants.add(now_ns)


class PromptClusters:
    """The clusters of one key's prompts, by minimum similarity to each cluster's first prompt."""

    def __init__(self, least_similarity: float, window_seconds: float, most: int = MOST_CLUSTERS) -> None:
        self._least_similarity = least_similarity
        self._window_seconds = window_seconds
        self._window_ns = int(window_seconds * 1_000_000_000)
        self._most = most
        self._clusters: list[PromptCluster] = []
        self._index: dict[int, list[PromptCluster]] = {}

    def __len__(self) -> int:
        return len(self._clusters)

    def find(self, sketch: Sketch) -> PromptCluster | None:
        """Return the cluster that a prompt is most similar to; `None` if none is similar enough."""
        best: PromptCluster | None = None
        best_similarity = 0.0
        seen: set[int] = set()
        for entry in index_of(sketch):
            for cluster in self._index.get(entry, ()):
                if id(cluster) in seen:
                    continue
                seen.add(id(cluster))
                found = similarity(sketch, cluster.sketch)
                if found >= self._least_similarity and found > best_similarity:
                    best, best_similarity = cluster, found
        return best

    def begin(self, sketch: Sketch, now_ns: int) -> PromptCluster:
        """Start a cluster with a prompt that is in none, replacing another cluster if there is no room."""
        if len(self._clusters) >= self._most:
            self._drop(self._least(now_ns))
        cluster = PromptCluster(sketch, self._window_seconds)
        self._clusters.append(cluster)
        for entry in index_of(sketch):
            self._index.setdefault(entry, []).append(cluster)
        return cluster

    def _least(self, now_ns: int) -> PromptCluster:
        """Return the first cluster without a member for a window, otherwise the smallest, the oldest of these."""
        least = self._clusters[0]
        for cluster in self._clusters:
            if now_ns - cluster.latest_ns > self._window_ns:
                return cluster
            if cluster.size < least.size:
                least = cluster
        return least

    def _drop(self, cluster: PromptCluster) -> None:
        self._clusters.remove(cluster)
        for entry in index_of(cluster.sketch):
            left = [each for each in self._index[entry] if each is not cluster]
            if left:
                self._index[entry] = left
            else:
                del self._index[entry]
