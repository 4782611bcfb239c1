"""The type of a check's finding."""

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
    """One problem: its kind, the table or replica (`where`), and the figures."""

    kind: Kind
    where: str
    detail: str

    def line(self) -> str:
        """Return the finding as one line."""
        return f"{self.kind} {self.where}: {self.detail}"
