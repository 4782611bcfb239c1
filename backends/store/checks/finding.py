"""One thing that is not as it should be."""

from typing import Literal

import msgspec

Kind = Literal[
    "damaged_part",
    "entries_missing",
    "sequence_gap",
    "sequence_doubled",
    "attempts_missing",
    "rollup_differs",
    "tokens_differ",
    "gpu_time_differs",
]


class Finding(msgspec.Struct, frozen=True):
    """What was found (`kind`), in which table or of which replica (`where`), and the figures."""

    kind: Kind
    where: str
    detail: str

    def line(self) -> str:
        """Return this as one line."""
        return f"{self.kind} {self.where}: {self.detail}"
