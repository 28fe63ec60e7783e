"""A run's directory: the names of its files, reading and writing them.

The directory is the truth about a run. `metrics.jsonl` holds reproducible values only; what
depends on the machine and the hour is in `timings.jsonl`, `facts.json` and `status.json`. What a
process has claimed it writes only while the claim stands; a run that gives way to another is kept
under another name.
"""

import os
import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from txlbench.config.loading import Document, dump_yaml, read_yaml, validate
from txlbench.config.measurements import Measurement
from txlbench.config.run_config import ImportedConfig, RunConfig
from txlbench.errors import UserError
from txlbench.files import read_json, read_json_lines, write_json, write_text
from txlbench.records.claim import check_claim, is_claimed
from txlbench.records.schema import (
    DenseExponent,
    EvaluationRecord,
    Facts,
    Failure,
    LogLine,
    R,
    RunState,
    Status,
    Summary,
    read_record,
)


def set_aside(path: Path) -> Path:
    """Renames the run directory at `path` to the first free `.stale-N`, and returns it."""
    number = 1
    while (aside := path.with_name(f"{path.name}.stale-{number}")).exists():
        number += 1
    path.rename(aside)
    return aside


@dataclass(frozen=True)
class RunDirectory:
    """Paths, reading and writing of one run."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def evaluations(self) -> Path:
        return self.path / "evaluations"

    @property
    def losses(self) -> Path:
        """Where its context losses lie, as loss files."""
        return self.path / "losses"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def timings_file(self) -> Path:
        return self.path / "timings.jsonl"

    @property
    def log_file(self) -> Path:
        return self.path / "log.txt"

    @property
    def error_file(self) -> Path:
        return self.path / "error.txt"

    # Configuration and facts

    def write_config(self, config: RunConfig, paper: Mapping[str, float | str], label: str) -> None:
        """Writes `config.yaml`: the resolved configuration, its label and the paper's numbers."""
        content = {"label": label, "paper": dict(paper), **config.model_dump(mode="json")}
        write_text(self.path / "config.yaml", dump_yaml(content))

    def read_config(self) -> RunConfig:
        """The resolved configuration; UserError naming file and key if it is not one."""
        document = read_yaml(self.path / "config.yaml")
        if not isinstance(document.value, dict):
            raise document.error((), "not a run's configuration", "restore the file")
        content = {k: v for k, v in document.value.items() if k not in ("label", "paper")}
        return validate(RunConfig, content, document)

    def read_paper(self) -> dict[str, float | str]:
        """The paper's numbers of the row that the run was made for."""
        value = read_yaml(self.path / "config.yaml").value
        paper = value.get("paper") if isinstance(value, dict) else None
        return dict(paper) if isinstance(paper, dict) else {}

    def read_label(self) -> str | None:
        """The label of the row that the run was made for."""
        value = read_yaml(self.path / "config.yaml").value
        return value.get("label") if isinstance(value, dict) else None

    def write_imported(self, config: ImportedConfig) -> None:
        """Writes `config.yaml` of a model that was not trained here."""
        write_text(self.path / "config.yaml", dump_yaml(config.model_dump(mode="json")))

    def read_imported(self) -> ImportedConfig:
        """The configuration of an imported run; UserError as in `read_config`."""
        document = read_yaml(self.path / "config.yaml")
        return validate(ImportedConfig, document.value, document)

    def write_tokens(self, tokens: Sequence[str]) -> None:
        """Writes the model's vocabulary in order of id."""
        self._write("vocab.json", list(tokens))

    def read_tokens(self) -> tuple[str, ...] | None:
        """The model's vocabulary in order of id, None if an imported one brought none."""
        path = self.path / "vocab.json"
        if not path.exists():
            return None
        tokens = read_json(path)
        if not isinstance(tokens, list) or not all(isinstance(each, str) for each in tokens):
            raise UserError(f"{path}: not a list of tokens", "restore it from a copy")
        return tuple(tokens)

    def write_facts(self, facts: Facts) -> None:
        self._write("facts.json", facts.content)

    def read_facts(self) -> Facts:
        """Code, machine, corpus and size; without any before the run has begun."""
        return self._read("facts.json", Facts)

    # State

    def read_status(self) -> Status:
        """State, attempts, times and error; without any if the run was never started."""
        return self._read("status.json", Status)

    @property
    def state(self) -> RunState:
        """The recorded state; where no record is left, what the results tell."""
        return self.read_status().state or self._state_of_results

    @property
    def _state_of_results(self) -> RunState:
        summary = self.read_summary()
        if summary.results is not None:
            return RunState.FINISHED
        return RunState.QUEUED if summary.training is None else RunState.TRAINED

    @property
    def current_state(self) -> RunState:
        """The state as it is now: a run that nobody works on any more was interrupted."""
        try:
            state = self.state
        except UserError:
            return RunState.DAMAGED
        if state is RunState.RUNNING and not self.is_worked_on:
            return RunState.INTERRUPTED
        return state

    @property
    def is_worked_on(self) -> bool:
        """Whether a process, here or on another machine, holds the run's claim."""
        return is_claimed(self.path)

    @property
    def is_usable(self) -> bool:
        """Whether every file can be read, and no process is about to change one."""
        return not self.damage() and not self.is_worked_on

    @property
    def has_weights(self) -> bool:
        """Whether checkpoints lie here, as they do not where records were published."""
        return any(self.checkpoints.glob("*.pt"))

    @property
    def attempts(self) -> int:
        """How often the run was started."""
        return self.read_status().attempts

    def start(self) -> None:
        """Marks the run as running in this process and counts the attempt."""
        status = Status(
            state=RunState.RUNNING,
            attempts=self.attempts + 1,
            started=time.time(),
            pid=os.getpid(),
            host=socket.gethostname(),
        )
        self._write_status(status)
        self.error_file.unlink(missing_ok=True)

    def set_state(self, state: RunState, error: Failure | None = None) -> None:
        """Records the state, with the error that led to it."""
        changes = {"state": state, "updated": time.time()} | ({"error": error} if error else {})
        self._write_status(self.read_status().without("error").model_copy(update=changes))

    def _write_status(self, status: Status) -> None:
        self._write("status.json", status.content)

    def note(self, message: str) -> None:
        """Adds to what people should know of this attempt; said once however often it happens."""
        status = self.read_status()
        if message not in status.notes:
            notes = (*status.notes, message)
            self._write_status(status.model_copy(update={"notes": notes}))

    # Progress

    def read_metrics(self) -> Iterator[LogLine]:
        """The lines of `metrics.jsonl`, training and validation in order of step."""
        return _lines(self.metrics_file)

    def read_timings(self) -> Iterator[LogLine]:
        """The lines of `timings.jsonl` in order of step."""
        return _lines(self.timings_file)

    # Results

    def write_evaluation(self, record: EvaluationRecord) -> None:
        """Stores what a measurement gave, under the measurement's key."""
        self._write(f"evaluations/{record.measurement.key}.json", record.content)

    def read_evaluation(self, measurement: Measurement) -> EvaluationRecord | None:
        """The stored record of `measurement`, None if it has not been made."""
        path = self.evaluations / f"{measurement.key}.json"
        return read_record(path, EvaluationRecord) if path.exists() else None

    def write_summary(self, summary: Summary) -> None:
        self._write("summary.json", summary.content)

    def read_summary(self) -> Summary:
        """Final numbers, each with how it was obtained; without any until the run is trained."""
        return self._read("summary.json", Summary)

    def write_exponent(self, exponent: DenseExponent) -> None:
        self._write("exponent.json", exponent.content)

    def read_exponent(self) -> DenseExponent:
        """One without a value if none was measured."""
        return self._read("exponent.json", DenseExponent)

    # Whole or damaged

    def damage(self) -> str:
        """What is wrong with the first file that cannot be read, in one line; empty if all can."""
        try:
            if (self.path / "config.yaml").exists() and self.state is not RunState.IMPORTED:
                self.read_config()
            _ = self.state, self.read_facts(), self.read_summary(), self.read_exponent()
            for lines in (self.read_metrics(), self.read_timings()):
                deque(lines, maxlen=0)
            for path in sorted(self.evaluations.glob("*.json")):
                read_record(path, EvaluationRecord)
        except UserError as error:
            return str(error)
        except OSError as error:
            return f"{error.filename or self.path}: {error.strerror}; check its permissions"
        return ""

    def check_claim(self) -> None:
        """Raises ClaimLost if this process claimed the run and another one took it over since."""
        check_claim(self.path)

    def _write(self, name: str, content: Any) -> None:
        check_claim(self.path)
        write_json(self.path / name, content)

    def _read(self, name: str, model: type[R]) -> R:
        path = self.path / name
        return read_record(path, model) if path.exists() else model()


def _lines(path: Path) -> Iterator[LogLine]:
    for value, offset in read_json_lines(path):
        yield parse_line(path, value, offset)


def parse_line(path: Path, value: Any, offset: int) -> LogLine:
    """The line of metrics or timings that ends at `offset` in `path`; UserError if it is none."""
    return validate(LogLine, value, Document(f"{path}: line that ends at byte {offset}", value))
