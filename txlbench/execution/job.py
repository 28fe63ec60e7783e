"""What a training process is asked to do, in a form that passes between processes."""

import json
from dataclasses import dataclass
from pathlib import Path

from txlbench.config.evaluate import EvaluateConfig


@dataclass(frozen=True)
class Job:
    """Train the run in `directory` where it is not trained yet, and measure it.

    Attributes:
        directory: the run's directory, which holds its configuration.
        device: cpu, cuda or cuda:N, never auto.
        evaluations: every way in which a label asks the run to be measured.
        attempts: how often the run had been started when it was planned. If it was started since,
            another process has done something about it, and the job is void. None for whatever.
    """

    directory: Path
    device: str
    evaluations: tuple[EvaluateConfig, ...]
    attempts: int | None = None

    def to_json(self) -> str:
        """One line."""
        evaluations = [each.model_dump(mode="json") for each in self.evaluations]
        content = {"directory": str(self.directory), "device": self.device}
        return json.dumps({**content, "evaluations": evaluations, "attempts": self.attempts})

    @classmethod
    def from_json(cls, line: str) -> "Job":
        content = json.loads(line)
        evaluations = tuple(map(EvaluateConfig.model_validate, content["evaluations"]))
        return cls(Path(content["directory"]), content["device"], evaluations, content["attempts"])
