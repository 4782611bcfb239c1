"""A request at a simulated replica, in the form that the batching rules use."""

from algorithms.batching import Order


class SimulatedSequence:
    """A request: `length` tokens so far, of which `remaining` are to compute; both are constant while it decodes.

    `course` is the request's index in the workload. While it decodes, `joined` is the step after which decoding began
    and `finish_step` the step of its last token; else -1.
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
        self.produced = 0  # output tokens, here and at earlier replicas
        self.keys = keys
        self.cached = 0
        self.shared: list[int] = []
        self.published = 0
        self.joined = 0
        self.residue = 0
        self.finish_step = -1
        self.is_seen = False  # its first token at this replica was reported
        self.last_ns = 0.0  # time of its latest token, for the gap over a preemption

    def lose_replica(self, now: float) -> int:
        """Reset for another replica, which continues after the produced tokens; return how many tokens it must compute
        again.
        """
        computed = self.length - 1 if self.produced and self.remaining == 0 else self.length - self.remaining
        self.remaining = self.length
        self.shared = []
        self.published = 0
        self.is_seen = False
        if self.produced:
            self.last_ns = now
        return max(computed - self.cached, 0)
