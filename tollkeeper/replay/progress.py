"""Shows a run's progress as a bar on stderr, a few times a second; nothing if stderr is not a terminal."""

from types import TracebackType
from typing import Any, Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tollkeeper.replay.player import Player

_REDRAWS_PER_SECOND: Final = 4  # low, because the engine may share the core


class ReplayProgress:
    """Shows a player's progress; pass `follow` to the player as its callback."""

    def __init__(self, total: int, console: Console) -> None:
        self._progress = Progress(
            TextColumn("replay"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("answered, {task.fields[in_flight]} in progress, {task.fields[failed]} failed"),
            TimeElapsedColumn(),
            console=console,
            refresh_per_second=_REDRAWS_PER_SECOND,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("replay", total=total, in_flight=0, failed=0)
        self._seen = 0
        self._failed = 0

    def follow(self, player: Player[Any]) -> None:
        """Update the displayed progress; another thread draws it."""
        ended = player.outcomes[self._seen :]
        self._seen += len(ended)
        self._failed += sum(bool(outcome.error) for outcome in ended)
        self._progress.update(self._task, completed=self._seen, in_flight=player.in_flight, failed=self._failed)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
