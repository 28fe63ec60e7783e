"""What a repository holds of results: small, without the machine's traces, and enough to make
every table, figure and page again."""

import json
import shutil
from pathlib import Path

import pytest

from tests.reporting import recl_records
from tests.reporting.laboratory import Laboratory
from tests.reporting.speed_records import COMMAND, write_record
from txlbench.errors import UserError
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.records.run_directory import RunDirectory
from txlbench.reporting.publication import copy_records, publish_experiment, publish_finding

TYPED = "txlbench ablate small.yaml"


@pytest.fixture
def experiment(tmp_path):
    """A finished experiment with one run on its way, and what stays behind."""
    laboratory = Laboratory(tmp_path / "results")
    directory = laboratory.finished(seeds=[1, 2])
    directory.add_commands([TYPED])
    line, config, run = laboratory.runs(directory)[-1]
    (run.path / "summary.json").unlink()
    laboratory.start(run, config, line)
    for _, _, run in laboratory.runs(directory):
        for name in ("checkpoints/best.pt", "losses/a.npz", "log.txt", "vocab.json"):
            (run.path / name).parent.mkdir(exist_ok=True)
            (run.path / name).write_bytes(b"x")
    return directory


def files(folder):
    return {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}


def published(experiments, findings, folder):
    copies, paths = copy_records(experiments, findings, folder)
    for path in paths:
        publish_finding(path)
    for copy in copies:
        assert publish_experiment(copy)[1] == ()
    return {name: path.read_bytes() for name, path in files(folder).items()}


def test_records_and_pages_are_there_and_nothing_else(experiment, tmp_path):
    found = published([experiment], [], tmp_path / "out")
    beside = {name.split("/", 2)[1] for name in found}
    tables = {f"table.{suffix}" for suffix in ("csv", "json", "md", "tex")}
    assert beside == {"spec.yaml", "commands.txt", "report.html", "figures", "runs", *tables}
    kept = {"config.yaml", "facts.json", "metrics.jsonl", "status.json", "summary.json"}
    assert {Path(name).name for name in found if "/runs/" in name} == kept
    assert all(name.endswith(".svg") for name in found if "/figures/" in name)
    assert len({name for name in found if name.endswith("summary.json")}) == 5
    assert b"running" not in b"".join(found.values()), "what is on its way is no result"
    assert TYPED.encode() in found["small/report.html"]


def test_of_a_run_s_state_only_what_is_a_result(experiment, tmp_path):
    published([experiment], [], tmp_path / "out")
    for path in (tmp_path / "out").glob("*/runs/*"):
        assert json.loads((path / "status.json").read_text()) == {"state": "finished"}
        original = RunDirectory(experiment.runs_directory / path.name)
        assert RunDirectory(path).read_summary() == original.read_summary()


def test_what_was_published_gives_the_same_bytes_again(experiment, tmp_path):
    (tmp_path / "results/speed-1").mkdir()
    finding = write_record(tmp_path / "results/speed-1") / "speed.json"
    first = published([experiment], [finding], tmp_path / "first")
    again = published(
        [ExperimentDirectory(tmp_path / "first/small")],
        [tmp_path / "first/speed-1/speed.json"],
        tmp_path / "second",
    )
    assert again == first
    assert f"command: {COMMAND}".encode() in first["speed-1/speed.html"]


def test_a_loss_file_elsewhere_is_named_without_its_folders(tmp_path):
    (tmp_path / "results").mkdir()
    recl_records.write_record(tmp_path / "results/recl-1")
    path = tmp_path / "results/recl-1/recl.json"
    record = json.loads(path.read_text())
    names = iter(record["models"])
    record["models"][next(names)]["path"] = "/home/somebody/losses/a.npz"
    record["models"][next(names)]["path"] = "results/a/losses/b.npz"
    path.write_text(json.dumps(record))
    found = published([], [path], tmp_path / "out")
    assert b"somebody" not in b"".join(found.values())
    assert b"results/a/losses/b.npz" in found["recl-1/recl.html"]


def test_publishing_again_leaves_no_run_that_is_gone(experiment, tmp_path):
    published([experiment], [], tmp_path / "out")
    text = experiment.spec_file.read_text()
    experiment.spec_file.write_text(text.replace("- 2\n", ""))
    names = published([experiment], [], tmp_path / "out")
    assert len({name for name in names if name.endswith("summary.json")}) == 3


def test_originals_are_not_replaced(experiment, tmp_path):
    with pytest.raises(UserError, match=r"small: would be replaced by itself; choose another fol"):
        copy_records([experiment], [], tmp_path / "results")
    other = Laboratory(tmp_path / "other").experiment()
    before = files(tmp_path / "results")
    with pytest.raises(UserError, match=r"weights, so .*small is no copy; choose another folder"):
        copy_records([other], [], tmp_path / "results")
    assert files(tmp_path / "results") == before


def contents(folder):
    """Of every file, and whether the folder is there at all."""
    return folder.exists(), {name: path.read_bytes() for name, path in files(folder).items()}


@pytest.mark.parametrize("gone", ["one", "all"])
def test_published_runs_are_not_lost_where_the_source_lacks_them(experiment, tmp_path, gone):
    published([experiment], [], tmp_path / "out")
    before = contents(tmp_path / "out")
    first = sorted((tmp_path / "out/small/runs").iterdir())[0].name
    shutil.rmtree(experiment.runs_directory / (first if gone == "one" else ""))
    count, more = (
        ("1 published run", ";") if gone == "one" else ("5 published runs", ", .* and 2 more;")
    )
    refusal = rf"small: {count} that .* be lost: {first}{more} restore them in .*"
    with pytest.raises(UserError, match=refusal + "/out/small/runs first$"):
        copy_records([experiment], [], tmp_path / "out")
    assert contents(tmp_path / "out") == before


@pytest.mark.parametrize("name", ["summary.json", "status.json", "metrics.jsonl"])
def test_a_damaged_record_leaves_the_folder_as_it_was(experiment, tmp_path, name):
    published([experiment], [], tmp_path / "out")
    before = contents(tmp_path / "out")
    run = sorted((tmp_path / "out/small/runs").iterdir())[-1].name
    (experiment.runs_directory / run / name).write_text("{\n")
    for folder, found in ((tmp_path / "out", before), (tmp_path / "fresh", (False, {}))):
        with pytest.raises(UserError, match=rf"{run}/{name}.*; nothing was published"):
            copy_records([experiment], [], folder)
        assert contents(folder) == found
    assert {path.name for path in tmp_path.iterdir()} == {"results", "out"}


def test_a_disk_that_refuses_leaves_the_folder_as_it_was(experiment, tmp_path, monkeypatch):
    published([experiment], [], tmp_path / "out")
    before = contents(tmp_path / "out")
    experiment.add_commands(["another"])
    rename = Path.rename

    def refuse(path, target):
        if path.name == "spec.yaml" and path.parent.parent.name == "new":
            raise OSError("full")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="full"):
        copy_records([experiment], [], tmp_path / "out")
    assert contents(tmp_path / "out") == before


def test_two_results_of_one_name_are_refused_and_one_named_twice_is_one(experiment, tmp_path):
    other = Laboratory(tmp_path / "other").finished(seeds=[1])
    with pytest.raises(UserError, match=r"both would be .*out/small; publish them into two"):
        copy_records([experiment, other], [], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert published([experiment, experiment], [], tmp_path / "out")


def test_no_result_is_published_into_a_result(experiment, tmp_path):
    other = Laboratory(tmp_path / "other").experiment(name="other").path
    before = files(tmp_path)
    for folder in (experiment.path, experiment.path / "figures", other):
        with pytest.raises(UserError, match="is a result or lies in one; choose another folder"):
            copy_records([experiment], [], folder)
    assert files(tmp_path) == before
