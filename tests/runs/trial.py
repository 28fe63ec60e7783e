"""A tiny experiment on a text of one's own, and a watcher that notes what it is told."""

import json
import os
import random
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

from txlbench.config.loading import dump_yaml, set_dotted
from txlbench.records.schema import RunState
from txlbench.runs.job import Job
from txlbench.runs.plan import Request, open_experiment
from txlbench.runs.train_run import execute

SPEC = {
    "name": "trial",
    "corpus": {"name": "mine", "path": "mine.txt"},
    "model": {
        "encoding": "xl", "n_layer": 1, "d_model": 16, "n_head": 2, "d_inner": 24, "dropout": 0.2,
    },
    "train": {
        "tgt_len": 8, "mem_len": 8, "batch_size": 4, "max_step": 12, "lr": 0.01, "warmup_step": 3,
        "log_interval": 3, "eval_interval": 5, "eval_tokens": 60, "precision": "fp32",
    },
    "evaluate": {"batch_size": 4, "attention_lengths": [4, 8], "tokens": 60},
}  # fmt: skip


def write_text(path, words=400, seed=1):
    """A text of a few thousand bytes with words that repeat."""
    chance = random.Random(seed)
    known = ["memory", "state", "segment", "of", "the", "a", "reads", "model", "text", "in\n"]
    path.write_text(" ".join(chance.choice(known) for _ in range(words)))


def write_spec(settings=None, /, **top):
    """Writes spec.yaml: small defaults, then `settings` by dotted key, then top-level keys."""
    content = {**deepcopy(SPEC), **top}
    rows = [each.get("set", {}) for each in top.get("rows", [{"set": settings or {}}])]
    if all(each.get("model.kind") == "hf" for each in rows):  # our sizes mean nothing to it
        content["model"] = {}
    for key, value in (settings or {}).items():
        set_dotted(content, key, value, "test")
    path = Path("spec.yaml")
    path.write_text(dump_yaml(content))
    return path


def plan_of(**request):
    """The runs of spec.yaml as planned."""
    return open_experiment(Request(Path("spec.yaml"), **request))[2]


def prepared_job(run, paper=None):
    """The directory of a planned run, ready for a worker."""
    run.directory.path.mkdir(parents=True, exist_ok=True)
    run.directory.write_config(run.config, paper or {}, run.labels[0])
    return Job(run.directory.path, "cpu", run.evaluations)


def execute_all(runs):
    """Trains and measures planned runs in this process."""
    return [execute(prepared_job(run), lambda: False) for run in runs]


def prepared(out="results/trial"):
    """The directory of the only run of spec.yaml, and its job."""
    (run,) = plan_of(out=Path(out))
    return run.directory, prepared_job(run)


def finished(out="results/trial"):
    """The directory of the only run of spec.yaml, trained and measured in this process."""
    run, job = prepared(out)
    assert execute(job, lambda: False) is RunState.FINISHED
    return run


def lines(run):
    """The metric lines of a run."""
    return [json.loads(line) for line in run.metrics_file.read_text().splitlines()]


def stopping_after(steps, error=None):
    """A `should_stop` that says so, or raises `error`, at its call number `steps`."""
    calls = iter(range(1, 10**6))

    def should_stop():
        reached = next(calls) >= steps
        if reached and error is not None:
            raise error
        return reached

    return should_stop


def alive(pid):
    """Whether there is a process of that number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def snapshot(folder):
    """Every file below `folder` with its content and time of modification."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file()
    }


@dataclass
class Watched:
    """A `Watcher` that notes what it is told.

    Attributes:
        on_tick: called at each tick.
    """

    on_tick: object = lambda: None
    warnings: list = field(default_factory=list)
    said: list = field(default_factory=list)
    corpora: list = field(default_factory=list)
    started: list = field(default_factory=list)
    finished_before: int | None = None
    outcomes: list = field(default_factory=list)

    def warn(self, message):
        self.warnings.append(message)

    def corpus(self, corpus):
        self.corpora.append(corpus.name)

    def start(self, waiting, finished, jobs):
        self.started = [run.id for run in waiting]
        self.finished_before = finished

    def tick(self):
        self.on_tick()

    def ended(self, run, state):
        self.outcomes.append((run.labels[0], str(state)))

    def say(self, message):
        self.said.append(message)

    def stop(self):
        pass
