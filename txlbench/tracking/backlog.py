"""The backlog of experiments and findings: all that MLflow lacks, by notes beside the files.

Imports no MLflow.
"""

import hashlib
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, TypeAdapter, ValidationError

from txlbench.config.grid import Experiment
from txlbench.config.run_config import RunConfig
from txlbench.errors import UserError
from txlbench.files import write_json
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import RunState
from txlbench.tracking.store import Store, store_of, ui_command

NOTES = "mlflow.json"
LOCAL_SERVER = "http://127.0.0.1:5000"
"""The address at which `mlflow ui` listens."""
RUN_FILES = ("config.yaml", "facts.json", "summary.json", "error.txt")
EXPERIMENT_FILES = (
    *("spec.yaml", "table.csv", "table.json", "table.md", "table.tex", "report.html", "figures/*"),
)


@dataclass
class Delivered:
    """Notes on the part of one folder that a store has, of a run or of the parent run.

    Attributes:
        store: the store's URI.
        token: names the MLflow run before it exists, so that one whose creation was not
            acknowledged is found again instead of made twice.
        run_id: the MLflow run.
        experiment_id: the MLflow experiment that it belongs to.
        offset: bytes of metrics.jsonl delivered.
        status: MLflow's word for the run's state.
        files: digest of each file as delivered.
    """

    store: str
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    run_id: str | None = None
    experiment_id: str | None = None
    offset: Annotated[int, Field(ge=0)] = 0
    status: str | None = None
    files: dict[str, str] = field(default_factory=dict)

    @property
    def run(self) -> str:
        """The MLflow run, which exists."""
        assert self.run_id is not None
        return self.run_id

    @classmethod
    def read(cls, folder: Path, store: Store) -> "Delivered":
        """Reads the notes in `folder`; empty ones if there are none, or none for this store."""
        found = _notes_at(folder / NOTES)
        return found if found is not None and found.store == store.uri else cls(store.uri)

    def write(self, folder: Path) -> None:
        write_json(folder / NOTES, asdict(self))

    def changed(self, folder: Path, patterns: tuple[str, ...]) -> Iterator[tuple[Path, str]]:
        """Yields (file, digest) of the files that the store lacks or has in another version."""
        for path in files_of(folder, patterns):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
            if self.files.get(str(path.relative_to(folder))) != digest:
                yield path, digest


def _notes_at(path: Path) -> Delivered | None:
    """Reads the notes at `path`; unreadable ones are none, so that all is delivered again."""
    try:
        return TypeAdapter(Delivered).validate_json(path.read_bytes(), strict=True)
    except (OSError, ValidationError):
        return None


def files_of(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    """Lists the files that go to MLflow as artifacts, in a fixed order."""
    found = (path for pattern in patterns for path in sorted(folder.glob(pattern)))
    return [path for path in found if path.is_file() and not path.name.startswith(".")]


def mlflow_status(run: RunDirectory) -> str:
    """Returns MLflow's word for a run's state."""
    state = run.current_state
    if state.is_bad:
        return "FAILED"
    if state in (RunState.FINISHED, RunState.IMPORTED):
        return "FINISHED"
    is_open = state in (RunState.RUNNING, RunState.TRAINED) and run.is_worked_on
    return "RUNNING" if is_open else "KILLED"


def overall_status(runs: Iterable[RunDirectory]) -> str:
    """Returns the parent run's status: the worst of its children."""
    found = {mlflow_status(run) for run in runs}
    return next((s for s in ("RUNNING", "FAILED", "KILLED") if s in found), "FINISHED")


def name_and_config(run: RunDirectory, experiment: Experiment) -> tuple[str, RunConfig]:
    """Returns the label of `run`, with its seed if there are several, and its configuration."""
    for line in experiment.lines:
        for identity, config in zip(line.run_ids, line.configs, strict=True):
            if identity == run.id:
                seed = f", seed {config.seed}" if len(line.configs) > 1 else ""
                return f"{line.label}{seed}", config
    return run.id, run.read_config()  # of a row that the experiment no longer has


def started_runs(experiment: ExperimentDirectory) -> list[RunDirectory]:
    """Lists the runs that MLflow should show, without those whose files cannot be read."""
    unknown = (RunState.QUEUED, RunState.DAMAGED)
    return [run for run in experiment.runs() if run.current_state not in unknown]


def damaged_runs(experiment: ExperimentDirectory) -> list[str]:
    """Says in one line each what is wrong with runs whose state cannot be read."""
    runs = (run for run in experiment.runs() if run.current_state is RunState.DAMAGED)
    return [run.damage() for run in runs]


def end_of_metrics(run: RunDirectory) -> int:
    """Counts the bytes of whole lines; a line that is still being written is left out."""
    if not run.metrics_file.exists():
        return 0
    return run.metrics_file.read_bytes().rfind(b"\n") + 1


def next_offset(run: RunDirectory, notes: Delivered) -> int | None:
    """Returns where to read on in metrics.jsonl; None while delivered lines come again.

    A run that continues from a checkpoint takes back the lines after it and writes the same
    ones again. If the file then ends earlier, or other lines came, all are delivered again.
    """
    end = end_of_metrics(run)
    if notes.offset > end:
        return None if mlflow_status(run) == "RUNNING" else 0
    if notes.offset and run.metrics_file.read_bytes()[notes.offset - 1 : notes.offset] != b"\n":
        return 0
    return notes.offset


def lines_left(run: RunDirectory, notes: Delivered) -> int:
    """Counts the lines of metrics that the store lacks."""
    if not run.metrics_file.exists():
        return 0
    return run.metrics_file.read_bytes()[notes.offset :].count(b"\n")


def is_delivered(run: RunDirectory, notes: Delivered) -> bool:
    """Whether the store has all there is of `run`."""
    return (
        notes.run_id is not None
        and notes.status == mlflow_status(run)
        and notes.offset == end_of_metrics(run)
        and not any(notes.changed(run.path, RUN_FILES))
    )


def backlog(directory: Path) -> tuple[int, int]:
    """Counts the runs, and their lines of metrics, that the store lacks."""
    store = store_of(directory)
    notes = [
        (run, Delivered.read(run.path, store))
        for run in started_runs(ExperimentDirectory(directory))
    ]
    waiting = [(run, note) for run, note in notes if not is_delivered(run, note)]
    return len(waiting), sum(lines_left(run, note) for run, note in waiting)


def what_is_left(path: Path, reason: str) -> str:
    """Says in one line what MLflow lacks of an experiment or finding, why, and what delivers it."""
    if is_finding(path):
        return f"{path}: MLflow lacks it ({reason}); deliver it with `txlbench sync {path.parent}`"
    runs, lines = backlog(path)
    whose = f"{runs} run{'s' * (runs != 1)}"
    if not runs:
        what = "tables or figures of the experiment"
    elif lines:
        what = f"{lines} lines of {whose}"
    else:
        what = f"the results or the state of {whose}"
    return f"{path}: MLflow lacks {what} ({reason}); deliver them with `txlbench sync {path}`"


def where_to_look(path: Path) -> str:
    """Returns the command that shows an experiment or finding, and the address of its page.

    The address asks for MLflow's view of training, as its own default is that of "GenAI".
    """
    folder = path.parent if is_finding(path) else path
    store = store_of(folder)
    experiment = Delivered.read(folder, store).experiment_id
    page = f"#/experiments/{experiment}?workflowType=machine_learning" if experiment else ""
    if urlsplit(store.uri).scheme in ("http", "https"):
        return f"{store.uri}/{page}"
    command = ui_command(store)
    return f"{command}  # {LOCAL_SERVER}/{page}" if page else command


def nothing_to_deliver(path: Path) -> bool:
    """Whether the store has everything of an experiment or finding; imports no MLflow."""
    folder = path.parent if is_finding(path) else path
    store = store_of(folder)
    own = Delivered.read(folder, store)
    files = files_of_finding(path) if is_finding(path) else EXPERIMENT_FILES
    if own.run_id is None or any(own.changed(folder, files)):
        return False
    if is_finding(path):
        return not store.lacks([own.run_id])
    experiment = ExperimentDirectory(path)
    started = started_runs(experiment)
    if own.status != overall_status(started) or damaged_runs(experiment):
        return False
    runs = [(run, Delivered.read(run.path, store)) for run in started]
    if not all(is_delivered(run, notes) for run, notes in runs):
        return False
    return not store.lacks([own.run_id, *(notes.run for _, notes in runs)])


def run_directory_of(mlflow_run: str, results: Path) -> Path:
    """Finds the run directory below `results` that was delivered as this MLflow run.

    Raises:
        UserError: if none was.
    """
    for path in sorted(results.glob(f"*/runs/*/{NOTES}")):
        notes = _notes_at(path)
        if notes is not None and notes.run_id == mlflow_run:
            return path.parent
    raise UserError(
        f"runs:/{mlflow_run}: no run below {results} was delivered to MLflow under that id",
        "give the run's directory",
    )


def is_finding(path: Path) -> bool:
    """Whether `path` is the JSON file of a finding rather than an experiment's directory."""
    return path.suffix == ".json" and not path.is_dir()


def files_of_finding(path: Path) -> tuple[str, ...]:
    """Returns patterns of the files that belong to the finding at `path`."""
    return f"{path.stem}.*", "figures/*"
