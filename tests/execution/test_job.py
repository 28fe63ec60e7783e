"""A job passes between processes as one line."""

from pathlib import Path

from txlbench.config.evaluate import EvaluateConfig
from txlbench.execution.job import Job


def test_a_job_comes_back_from_its_line():
    evaluations = (
        EvaluateConfig(),
        EvaluateConfig(split="valid", attention_lengths=(8, 4), tokens=9, tolerance=1e-3),
    )
    job = Job(Path("results/a b/ü\n"), "cuda:1", evaluations)
    line = job.to_json()
    assert "\n" not in line
    assert Job.from_json(line) == job
