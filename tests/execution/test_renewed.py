"""An experiment file that was edited half-way: what begins anew, and why."""

import pytest

from tests.execution.in_process import run_suite
from tests.execution.trial import plan_of, prepared_job, stopping_after, write_spec
from txlbench.execution.runner import execute

pytestmark = pytest.mark.usefixtures("one_process")


def test_an_edited_experiment_says_what_differs_and_keeps_what_was_there():
    write_spec()
    (old,) = plan_of()
    execute(prepared_job(old), stopping_after(7))
    write_spec({"train.lr": 0.02, "train.clip": 0.5, "evaluate.tokens": 40})
    _, watched = run_suite()
    assert watched.warnings == [
        "trial (seed 1) begins anew, as train.lr was 0.01 and is 0.02, "
        f"train.clip was 0.25 and is 0.5; {old.id} is kept"
    ]
    assert old.directory.metrics_file.exists()
    assert run_suite()[1].warnings == []


def test_of_several_the_nearest_is_told():
    for settings in ({"train.lr": 0.02, "train.clip": 0.5}, {"train.clip": 0.5}):
        write_spec(settings)
        run_suite()
    write_spec()
    (warning,) = run_suite()[1].warnings
    assert "anew, as train.clip was 0.5 and is 0.25;" in warning


def test_more_rows_and_seeds_are_no_change():
    write_spec(rows=[{"label": "one", "set": {}}])
    run_suite()
    rows = [{"label": "one", "set": {}}, {"label": "two", "set": {"train.lr": 0.3}}]
    write_spec(rows=rows, seeds=[1, 2])
    assert run_suite()[1].warnings == []
