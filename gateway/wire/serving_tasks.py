"""The tasks that answer requests: each is tracked until its end, even after its client has disconnected."""

import asyncio
from collections.abc import Coroutine


class ServingTasks:
    """Starts tasks, and waits for them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, serving: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run a coroutine in a task."""
        task = asyncio.get_running_loop().create_task(serving)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def settled(self) -> None:
        """Wait for every task in progress."""
        while self._tasks:
            await asyncio.wait(self._tasks)
