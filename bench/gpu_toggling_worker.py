"""vLLM's metered worker, its meter on and off by the step. Imported by vLLM in the processes that own GPUs."""

from typing import Any

from backends.engine.vllm_engine.metering.worker import MeteredWorker
from bench.gpu_toggling import is_metered


class TogglingWorker(MeteredWorker):
    """Meters all, until it is told to meter every other block of each answer. For one answer at a time."""

    _block_steps = 0
    _begins_metered = True
    _step = 0

    def toggle_metering(self, block_steps: int, begins_metered: bool) -> None:
        """Meter every other block of the given number of steps from now on; 0: all or none, as `set_metering` says."""
        self._block_steps, self._begins_metered = block_steps, begins_metered

    def execute_model(self, scheduler_output: Any) -> Any:
        """Run a step with the meter on or off; who begins and who has ended is always told."""
        if self._block_steps:
            if scheduler_output.scheduled_new_reqs or not scheduler_output.total_num_scheduled_tokens:
                self._step = 0
            self._is_on = not self._step or is_metered(self._step, self._block_steps, self._begins_metered)
            self._step += 1
        return super().execute_model(scheduler_output)
