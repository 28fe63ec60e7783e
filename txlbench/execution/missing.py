"""Which measurements a run lacks: the plan asks before, the measuring itself when it begins."""

from collections.abc import Sequence

from txlbench.config.evaluate import EvaluateConfig
from txlbench.config.measurements import Measurement, all_measurements
from txlbench.config.run import RunConfig
from txlbench.records.run_directory import RunDirectory


def with_evaluation(config: RunConfig, evaluate: EvaluateConfig) -> RunConfig:
    """The configuration of the same run, measured as `evaluate` says."""
    return config.model_copy(update={"evaluate": evaluate})


def missing(
    run: RunDirectory, config: RunConfig, evaluations: Sequence[EvaluateConfig]
) -> list[Measurement]:
    """The measurements asked for that the run has no record of, each once."""
    wanted = {
        measurement.key: measurement
        for evaluate in evaluations
        for measurement in all_measurements(with_evaluation(config, evaluate))
    }
    return [each for each in wanted.values() if run.read_evaluation(each) is None]
