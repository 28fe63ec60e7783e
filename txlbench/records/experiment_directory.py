"""An experiment's directory: the effective experiment file, its runs, tables and figures.

Findings are what verbs other than `ablate` leave: a JSON file each, beside what is shown of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from txlbench.config.grid import Experiment, load_experiment
from txlbench.config.loading import dump_yaml
from txlbench.errors import UserError
from txlbench.files import write_text
from txlbench.records.attention_schema import AttentionRecord
from txlbench.records.context_schema import ContextRecord
from txlbench.records.finding_schema import (
    BenchRecord,
    Finding,
    ReclRecord,
    SpeedRecord,
    TruthRecord,
)
from txlbench.records.probe_schema import ProbeRecord
from txlbench.records.run_directory import RunDirectory
from txlbench.records.sample_schema import SamplesRecord

FINDINGS: Mapping[str, type[Finding]] = {
    "recl.json": ReclRecord,
    "context.json": ContextRecord,
    "probe.json": ProbeRecord,
    "attention.json": AttentionRecord,
    "samples.json": SamplesRecord,
    "truth.json": TruthRecord,
    "bench.json": BenchRecord,
    "speed.json": SpeedRecord,
}
"""File names that are looked for, and what each holds."""

RESULTS = Path("results")
"""Where experiments go without --out, relative to the working directory."""


@dataclass(frozen=True)
class ExperimentDirectory:
    """Paths of one experiment's results."""

    path: Path

    @property
    def spec_file(self) -> Path:
        return self.path / "spec.yaml"

    @property
    def runs_directory(self) -> Path:
        return self.path / "runs"

    @property
    def figures(self) -> Path:
        return self.path / "figures"

    @property
    def page(self) -> Path:
        """Everything that is shown of it, in one file for a browser."""
        return self.path / "report.html"

    def table(self, suffix: str) -> Path:
        """The result table in one format: csv, json, md or tex."""
        return self.path / f"table.{suffix}"

    def run(self, run_id: str) -> RunDirectory:
        return RunDirectory(self.runs_directory / run_id)

    def runs(self) -> list[RunDirectory]:
        """Every run on disk in order of id; not what is stale, or on its way here."""
        if not self.runs_directory.is_dir():
            return []
        paths = sorted(path for path in self.runs_directory.iterdir() if path.is_dir())
        return [
            RunDirectory(path)
            for path in paths
            if ".stale-" not in path.name and not path.name.startswith(".")
        ]

    def write_spec(self, experiment: Experiment) -> None:
        """Keeps the experiment file as it took effect, command-line settings included."""
        write_text(self.spec_file, dump_yaml(dict(experiment.raw)))

    def read_spec(self) -> Experiment:
        """The experiment, without rows that need a plug-in which was not given."""
        return load_experiment(self.spec_file, partial=True)

    def commands(self) -> list[str]:
        """What was typed to train and measure its runs, each once, in order of first use."""
        if not self._commands_file.is_file():
            return []
        text = self._commands_file.read_text(encoding="utf-8", errors="replace")
        return list(dict.fromkeys(line for line in text.split("\n") if line))

    def add_commands(self, commands: Iterable[str]) -> None:
        """Keeps `commands`, a line each, beside those that are known."""
        known = self.commands()
        lines = [" ".join(command.split()) for command in commands]
        new = "".join(f"{line}\n" for line in dict.fromkeys(lines) if line not in known)
        if new:
            with self._commands_file.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(new)

    @property
    def _commands_file(self) -> Path:
        return self.path / "commands.txt"


def find_experiments(results: Path) -> Iterator[ExperimentDirectory]:
    """The experiments directly under `results`, in order of name."""
    for path in sorted(results.iterdir()) if results.is_dir() else ():
        if (path / "spec.yaml").is_file():
            yield ExperimentDirectory(path)


def under_results(path: Path) -> Path:
    """The directory of that path, else the one of that name under results/, where there is one."""
    named = RESULTS / path
    return named if named.exists() and not path.exists() else path


def experiments_at(paths: Sequence[Path]) -> list[ExperimentDirectory]:
    """The experiments that `paths` name, each an experiment's directory or a folder of them.

    A name under results/ serves as well.

    Raises:
        UserError: for a path that is neither; `results` is taken where none is given.
    """
    found: list[ExperimentDirectory] = []
    for path in map(under_results, paths or [RESULTS]):
        here = ExperimentDirectory(path)
        experiments = [here] if here.spec_file.is_file() else list(find_experiments(path))
        if not experiments:
            absent = "" if path.exists() else ", as it does not exist"
            raise UserError(
                f"{path}: no experiment found{absent}",
                "run one with `txlbench ablate`, or give the directory that holds its spec.yaml",
            )
        found += experiments
    return found


def findings_in(folder: Path) -> Iterator[Path]:
    """The findings of one result directory."""
    return (folder / name for name in FINDINGS if (folder / name).is_file())


def results_at(paths: Sequence[Path]) -> tuple[list[ExperimentDirectory], list[Path]]:
    """The experiments and the findings that `paths` name: result directories or folders of them.

    A name under results/ serves as well.

    Raises:
        UserError: for a path that has neither; `results` is taken where none is given.
    """
    experiments: list[ExperimentDirectory] = []
    findings: list[Path] = []
    for path in map(under_results, paths or [RESULTS]):
        here = ExperimentDirectory(path)
        own = [here] if here.spec_file.is_file() else []
        found = list(findings_in(path))
        if not own and not found:
            own = list(find_experiments(path))
            below = sorted(path.iterdir()) if path.is_dir() else []
            found = [each for folder in below for each in findings_in(folder)]
        if not own and not found:
            raise UserError(
                f"{path}: no result found",
                "run `txlbench ablate`, or give a directory that it or another verb left",
            )
        experiments += own
        findings += found
    return experiments, findings
