"""`--probe`: how fast this machine trains and measures each distinct shape of a plan."""

from pydantic import BaseModel, ConfigDict

from txlbench.config.measurements import Measurement
from txlbench.config.run_config import RunConfig


class ProbeJob(BaseModel):
    """What a probing process is to do.

    Attributes:
        seconds: how long it takes steps for; then each measurement has a fifth of that.
        steps: the most steps it takes.
        measurements: those to time.
    """

    model_config = ConfigDict(frozen=True)

    config: RunConfig
    vocabulary_size: int
    device: str = "cpu"
    seconds: float = 10.0
    steps: int = 1000
    measurements: tuple[Measurement, ...] = ()


class ProbedMeasurement(BaseModel):
    """The speed of one measurement, in necessary FLOPs a second."""

    model_config = ConfigDict(frozen=True)

    key: str
    flops_a_second: float


class Probed(BaseModel):
    """What a probing process found.

    Attributes:
        step_seconds: the median step.
        steps: how many were timed.
        memory_bytes: the largest resident set while training, or the most of a CUDA device.
        grown_bytes: the same beyond what the process had before it built the model.
    """

    model_config = ConfigDict(frozen=True)

    step_seconds: float
    steps: int
    precision: str
    threads: int
    memory_bytes: int
    grown_bytes: int
    measurements: tuple[ProbedMeasurement, ...]
