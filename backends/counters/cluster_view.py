"""Parse a Redis Cluster node's answer to `CLUSTER NODES`."""

from dataclasses import dataclass

from backends.counters.address import Host


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """One node: its id, its address for clients, the epoch of its claim, and the slots it serves as a primary."""

    id: str
    host: Host
    epoch: int
    is_failed: bool
    slots: tuple[tuple[int, int], ...]  # first and last


@dataclass(frozen=True, slots=True)
class ClusterView:
    """All nodes as one of them sees them. Clusters have no id; the ids of their nodes identify them."""

    nodes: tuple[ClusterNode, ...]
    ids: frozenset[str]

    @property
    def epoch(self) -> int:
        """Return the latest epoch that is known here."""
        return max((node.epoch for node in self.nodes), default=0)

    def owner(self, slot: int) -> ClusterNode | None:
        """Return the node that serves a slot; `None` if no node does, or if it has failed."""
        owners = [
            node for node in self.nodes if not node.is_failed and any(low <= slot <= high for low, high in node.slots)
        ]
        return max(owners, key=lambda node: node.epoch, default=None)


def parse_view(text: bytes | str, asked: Host) -> ClusterView:
    """Return the view in a node's answer. Lines of nodes without an address are left out."""
    lines = (text.decode() if isinstance(text, bytes) else text).splitlines()
    nodes = [node for line in lines if (node := _node(line.split(), asked)) is not None]
    return ClusterView(tuple(nodes), frozenset(node.id for node in nodes))


def _node(fields: list[str], asked: Host) -> ClusterNode | None:
    if len(fields) < 8:
        return None
    flags = fields[2].split(",")
    address = fields[1].split(",")[0].split("@")[0]
    host, _, port = address.rpartition(":")
    if "noaddr" in flags or "handshake" in flags or not port.isdecimal() or port == "0":
        return None
    slots = [_slots(field) for field in fields[8:] if not field.startswith("[")]
    is_failed = "fail" in flags
    return ClusterNode(fields[0], (host or asked[0], int(port)), int(fields[6]), is_failed, tuple(slots))


def _slots(field: str) -> tuple[int, int]:
    low, _, high = field.partition("-")
    return int(low), int(high or low)
