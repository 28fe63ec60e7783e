"""An experiment's directory knows its runs, and its file means the same when read again."""

from pathlib import Path

from txlbench.config.grid import expand
from txlbench.config.loading import parse_yaml
from txlbench.records.experiment_directory import ExperimentDirectory, find_experiments

SPEC = """
name: trial
corpus: enwiki-sample
train: {lr: 1e-3, max_step: 5}
seeds: [1, 2]
grid: {model.encoding: [xl, shaw]}
rows:
  - label: "1e-3"
    set: {train.lr: 1e-5}
    paper: {ppl: 27.02, ppl_best: "26.77"}
"""


def test_the_file_as_it_took_effect_expands_to_the_same_runs(tmp_path: Path):
    experiment = expand(parse_yaml(SPEC, "trial.yaml"), ["train.max_step=7"])
    directory = ExperimentDirectory(tmp_path)
    directory.write_spec(experiment)
    again = directory.read_spec()
    assert again == experiment
    assert list(again.runs()) == list(experiment.runs())
    assert {config.train.max_step for config in again.runs().values()} == {7}


def test_runs_are_the_directories_that_are_not_stale(tmp_path: Path):
    directory = ExperimentDirectory(tmp_path)
    assert directory.runs() == []
    for name in ("b", "a", "a.stale-1"):
        (directory.runs_directory / name).mkdir(parents=True)
    (directory.runs_directory / "notes.txt").write_text("")
    assert [run.id for run in directory.runs()] == ["a", "b"]
    assert directory.run("a") == directory.runs()[0]


def test_experiments_are_the_directories_with_a_spec(tmp_path: Path):
    assert list(find_experiments(tmp_path / "none")) == []
    for name in ("two", "one", "other"):
        (tmp_path / name).mkdir()
    for name in ("two", "one"):
        (tmp_path / name / "spec.yaml").write_text(SPEC)
    (tmp_path / "mlflow.db").write_text("")
    assert [found.path.name for found in find_experiments(tmp_path)] == ["one", "two"]
