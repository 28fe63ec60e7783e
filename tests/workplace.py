"""A folder in which the commands that help and documentation show can be run as they stand."""

import shutil
from pathlib import Path

import numpy as np
import yaml

from tests.commands.loss_files import save
from tests.runs.trial import execute_all, write_text
from txlbench.config.loading import dump_yaml
from txlbench.runs.plan import Request, open_experiment

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
MODEL = {"n_layer": 1, "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 24, "dropout": 0.0}
TRAIN = {
    "tgt_len": 8, "mem_len": 8, "batch_size": 4, "max_step": 4, "warmup_step": 1, "lr": 0.01,
    "log_interval": 2, "eval_interval": 4, "eval_tokens": 60, "precision": "fp32",
}  # fmt: skip


def make_small(content):
    """The same experiment on a small text, trained for a moment."""
    return {
        **content,
        "corpus": {"name": "small", "path": "my-text.txt"},
        "model": {**content["model"], **MODEL},
        "train": {**content["train"], **TRAIN},
        "evaluate": {"batch_size": 4, "attention_lengths": [4, 8], "tokens": 60},
    }


def make(folder):
    """Fills `folder`, the working directory: texts, experiment files and trained results."""
    write_text(folder / "my-text.txt", words=15_000)
    (folder / "start.txt").write_text("the memory of")
    np.save(folder / "ids.npy", np.arange(100) % 64 + 32)
    for name in "abc":
        save(folder / f"{name}.npz", seed=ord(name), name=name)
    shutil.copytree(EXPERIMENTS, folder / "experiments")
    file = folder / "experiments/quick.yaml"
    file.write_text(dump_yaml(make_small(yaml.safe_load(file.read_text()))))
    experiment, directory, plan = open_experiment(Request(Path("experiments/quick.yaml")))
    directory.path.mkdir(parents=True)
    directory.write_spec(experiment)
    execute_all(plan)
    shutil.copytree("results", "other/results")
