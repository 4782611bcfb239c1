"""Files of a gateway that would be recreated silently if lost: journal, budget totals, files and batches."""

from pathlib import Path
from typing import Final

from backends.segment_log.pieces import Loss, Pieces, PieceWatch
from gateway.process.settings import GatewaySettings
from gateway.records.journal import Journal

_SQLITE_FILE: Final = "sqlite:///"
_OBJECTS: Final = "objects"


class GatewayPieces:
    """Finds missing parts when it is created, and records which parts are in use while the gateway runs."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._pieces = Pieces(settings.data)
        address = settings.objects_address
        objects = Path(address.removeprefix(_SQLITE_FILE)) if address.startswith(_SQLITE_FILE) else None
        self._objects = objects if objects is not None and settings.worker == 1 else None
        self._own = {path.name: path for path in (settings.own("journal"), settings.own("budgets"))}
        places = {**self._own, **({} if self._objects is None else {_OBJECTS: self._objects})}
        found = [self._pieces.find_loss(name, path) for name, path in places.items()]
        self.losses: tuple[Loss, ...] = tuple(loss for loss in found if loss is not None)
        self._journal: Journal | None = None
        self._watch: PieceWatch | None = None

    def watch(self, journal: Journal) -> None:
        """Start to watch. All parts exist now; one that disappears later is reported."""
        self._journal = journal
        self._watch = PieceWatch(self._note)
        self._watch.start()

    def close(self) -> None:
        """Record the state once more, before the process ends."""
        if self._watch is not None:
            self._watch.stop()

    def _note(self) -> None:
        assert self._journal is not None  # set before it is called
        for name, path in self._own.items():
            if path.exists():
                held = {"bytes_waiting": self._journal.pending_bytes} if name.startswith("journal") else None
                self._pieces.note(name, held)
        if self._objects is not None and self._objects.is_file():
            self._pieces.note(_OBJECTS, {"bytes": self._objects.stat().st_size})
