"""When a checkpoint is due beside those of validations: by steps, by minutes, or because asked."""

import threading
import time

from txlbench.config.train import TrainConfig


class SaveSchedule:
    """Counts from the last checkpoint.

    Args:
        step: the step that training goes on from.
        asked: set by whoever wants a checkpoint now; cleared once there is one.
    """

    def __init__(self, config: TrainConfig, step: int, asked: threading.Event) -> None:
        self._config = config
        self._asked = asked
        self.saved(step)

    def saved(self, step: int) -> None:
        """Begins to count anew; a checkpoint that failed counts too, so as not to fail all day."""
        self._step, self._time = step, time.monotonic()
        self._asked.clear()

    def is_due(self, step: int) -> bool:
        """Whether a checkpoint should be written after this step."""
        config = self._config
        steps, minutes = config.checkpoint_interval, config.checkpoint_minutes
        return (
            self._asked.is_set()
            or (steps is not None and step - self._step >= steps)
            or (minutes is not None and time.monotonic() - self._time >= 60 * minutes)
        )
