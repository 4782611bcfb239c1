"""One request at a simulated replica, as the rules of batching look at it."""

from algorithms.batching import Order


class SimulatedSequence:
    """`length` tokens so far, of which `remaining` are still to compute; decoding ones leave both as they joined.

    `course` is the request's place in the workload. Of a decoding sequence, `joined` is the step after which it began,
    and `finish_step` the one that gives its last token; -1 while it does not decode.
    """

    __slots__ = (
        "cached",
        "course",
        "finish_step",
        "handle",
        "is_seen",
        "joined",
        "keys",
        "last_ns",
        "length",
        "order",
        "output",
        "produced",
        "published",
        "remaining",
        "residue",
        "shared",
    )

    def __init__(self, course: int, priority: int, length: int, output: int, keys: tuple[int, ...]) -> None:
        self.course = course
        self.handle = 0  # the replica's number for it
        self.order: Order = (priority, 0, 0)
        self.length = length
        self.remaining = length
        self.output = output
        self.produced = 0  # of the output, here and elsewhere
        self.keys = keys
        self.cached = 0
        self.shared: list[int] = []
        self.published = 0
        self.joined = 0
        self.residue = 0
        self.finish_step = -1
        self.is_seen = False  # its first token at this replica was told
        self.last_ns = 0.0  # when its latest token came, for the gap over a preemption

    def lose_replica(self, now: float) -> int:
        """Be as new for another replica, with what was produced so far to go on from; return the tokens lost."""
        computed = self.length - 1 if self.produced and self.remaining == 0 else self.length - self.remaining
        self.remaining = self.length
        self.shared = []
        self.published = 0
        self.is_seen = False
        if self.produced:
            self.last_ns = now
        return max(computed - self.cached, 0)
