"""A run on another machine: what is sent there, what comes back, and in which order."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.runs.trial import execute_all, lines, plan_of, prepared, write_spec
from txlbench.data.download import own_checksum
from txlbench.errors import UserError
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import RunState
from txlbench.runs import remote_run
from txlbench.runs.remote_run import (
    TOKEN,
    Assignment,
    Exchange,
    Orders,
    Outbox,
    carry_out,
    files_of,
    receive,
)


def same(data):
    return data


@pytest.fixture
def sides(folder):
    """The run's folder on a node, and the driver's copy of it."""
    node, driver = folder / "node", folder / "driver"
    node.mkdir()
    driver.mkdir()
    return node, driver


def bring(outbox, driver):
    parts = outbox.changes()
    for part in parts:
        receive(driver, part, same)
    return [part.name for part in parts]


def test_changes_arrive_and_nothing_twice(sides):
    node, driver = sides
    outbox = Outbox(node, same)
    (node / "metrics.jsonl").write_text("one\n")
    (node / "status.json").write_text("{}")
    bring(outbox, driver)
    assert (driver / "metrics.jsonl").read_text() == "one\n"
    assert bring(outbox, driver) == []
    with (node / "metrics.jsonl").open("a") as file:
        file.write("two\n")
    (part,) = outbox.changes()
    assert (part.start, part.data) == (4, b"two\n")
    receive(driver, part, same)
    assert (driver / "metrics.jsonl").read_text() == "one\ntwo\n"


def test_lines_that_training_takes_back_go_on_the_other_side_too(sides):
    node, driver = sides
    (node / "metrics.jsonl").write_text("one\ntwo\nthree\n")
    (driver / "metrics.jsonl").write_text("one\ntwo\nthree\n")
    outbox = Outbox(node, same)
    (node / "metrics.jsonl").write_text("one\nother\n")
    bring(outbox, driver)
    assert (driver / "metrics.jsonl").read_text() == "one\nother\n"


def test_what_another_file_counts_on_arrives_before_it(sides):
    node, driver = sides
    outbox = Outbox(node, same)
    for name in ("checkpoints/last.pt", "evaluations/a.json", "metrics.jsonl", "summary.json"):
        (node / name).parent.mkdir(exist_ok=True)
        (node / name).write_text(name)
    order = ["metrics.jsonl", "checkpoints/last.pt", "evaluations/a.json", "summary.json"]
    assert bring(outbox, driver) == order


def test_a_large_file_comes_in_chunks_and_is_whole_or_not_there(sides, monkeypatch):
    monkeypatch.setattr(remote_run, "CHUNK_BYTES", 10)
    node, driver = sides
    outbox = Outbox(node, same)
    (node / "best.pt").write_bytes(bytes(range(25)))
    parts = outbox.changes()
    assert [(part.start, part.is_last) for part in parts] == [(0, False), (10, False), (20, True)]
    for part in parts:
        assert not (driver / "best.pt").exists()
        receive(driver, part, same)
    assert (driver / "best.pt").read_bytes() == bytes(range(25))
    assert [path.name for path in driver.iterdir()] == ["best.pt"]


def test_what_is_of_one_place_only_stays_there(sides):
    node, driver = sides
    outbox = Outbox(node, same)
    for name in (".claim", "mlflow.json", "losses/a.npz", "checkpoints/.last.pt.x", "error.txt"):
        (node / name).parent.mkdir(exist_ok=True)
        (node / name).write_text("x")
    assert bring(outbox, driver) == ["error.txt"]
    (node / "error.txt").unlink()
    bring(outbox, driver)
    assert not list(driver.iterdir())


class Desk:
    """The driver's side of an exchange, in this process.

    Attributes:
        stop_at: step after which the run is to stop.
    """

    def __init__(self, run, text=None, stop_at=None):
        self.run, self.text, self.stop_at = run, text, stop_at
        self.asked = []

    def say(self, report):
        for part in report.parts:
            receive(self.run.path, part, same)
        self.asked.append((report.asks, report.text))
        done = lines(self.run)[-1:] if self.run.metrics_file.exists() else []
        stop = self.stop_at is not None and bool(done) and done[0]["step"] >= self.stop_at
        files = files_of(self.run, report.text, same) if report.asks else None
        return Orders(stop=stop, files=files)

    def assign(self, job, token="another"):
        corpus = self.run.read_config().corpus
        job = replace(job, directory=job.directory.absolute())
        text = self.text or own_checksum(corpus)
        return carry_out(
            Assignment(job, token, Path.cwd(), corpus, text, 1), Exchange(self.say, same, same)
        )


@pytest.mark.full
def test_a_run_whose_directory_is_not_seen_comes_back_as_if_trained_in_it():
    """The text is sent along if there is none with the same bytes."""
    write_spec()
    execute_all(plan_of(out=Path("here")))
    (here,) = plan_of(out=Path("here"))
    run, job = prepared()
    before = (run.path / "config.yaml").read_bytes()
    desk = Desk(run, text="of another text")
    assert desk.assign(job) is RunState.FINISHED
    assert desk.asked[0] == (True, True)
    assert run.state is RunState.FINISHED
    assert run.metrics_file.read_bytes() == here.directory.metrics_file.read_bytes()
    (found,), (expected,) = (each.read_summary().results for each in (run, here.directory))
    assert (found.init.loss, found.best.loss) == (expected.init.loss, expected.best.loss)
    assert (run.path / "config.yaml").read_bytes() == before


def test_a_run_whose_directory_is_seen_stays_in_it_and_stops_when_told():
    write_spec({"train.max_step": 10**6, "train.eval_interval": 10**6})
    run, job = prepared()
    (run.path / TOKEN).write_text("the same")
    desk = Desk(run, stop_at=3)
    assert desk.assign(job, "the same") is RunState.INTERRUPTED
    assert not any(asks for asks, _ in desk.asked)
    assert run.state is RunState.INTERRUPTED
    assert (run.checkpoints / "last.pt").exists()


def test_another_version_of_the_package_is_refused():
    write_spec()
    run, job = prepared()
    task = Assignment(job, "", Path.cwd(), run.read_config().corpus, None, 1, version="0.0.1")
    with pytest.raises(UserError, match=r"the driver 0\.0\.1"):
        carry_out(task, Exchange(lambda _: Orders(), same, same))


@pytest.mark.full
@pytest.mark.alone
def test_a_driver_out_of_reach_stops_the_run_with_a_checkpoint():
    write_spec({"train.max_step": 10**6, "train.eval_interval": 10**6})
    run, job = prepared()
    (run.path / TOKEN).write_text("the same")

    def say(report):
        if run.metrics_file.exists() and lines(run):
            raise TimeoutError
        return Orders()

    job = replace(job, directory=job.directory.absolute())
    corpus = run.read_config().corpus
    task = Assignment(job, "the same", Path.cwd(), corpus, own_checksum(corpus), 1)
    with pytest.raises(TimeoutError):
        carry_out(task, Exchange(say, same, same))
    assert RunDirectory(job.directory).state is RunState.INTERRUPTED
    assert (run.checkpoints / "last.pt").exists()
