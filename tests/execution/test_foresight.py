"""A dry run refuses what the real call would, as far as that can be told without preparing."""

import pytest
from click.testing import CliRunner

from tests.execution.trial import execute_all, plan_of, snapshot, write_spec, write_text
from txlbench.cli.ablate import ablate
from txlbench.errors import UserError
from txlbench.execution.foresight import foresee


def dry_run(*arguments):
    command = ["spec.yaml", "--dry-run", *arguments]
    return CliRunner().invoke(ablate, command, catch_exceptions=False).stdout


@pytest.mark.parametrize(
    ("settings", "arguments", "message"),
    [
        ({}, ("--device", "gpu"), "--device gpu: unknown"),
        ({}, ("--device", "cuda:x"), "--device cuda:x: unknown"),
        ({"corpus.path": "gone.txt"}, (), "gone.txt: no such file"),
        ({"model.cutoffs": [100, 300]}, (), "beyond the vocabulary of 256"),
    ],
)
def test_what_the_real_call_would_refuse_is_refused(settings, arguments, message):
    write_spec(settings)
    with pytest.raises(UserError) as caught:
        dry_run(*arguments)
    assert message in str(caught.value)


def test_a_run_on_an_edited_text_is_to_be_trained_anew(folder):
    write_spec()
    execute_all(plan_of())
    assert "finished, needs nothing" in dry_run()
    write_text(folder / "mine.txt", seed=2)
    before = snapshot(folder)
    assert "finished, but mine has changed since; it is trained anew, needs training" in dry_run()
    assert snapshot(folder) == before


def test_texts_of_their_own_for_each_split_are_told_too(folder):
    for name in ("valid.txt", "test.txt"):
        write_text(folder / name, seed=3)
    write_spec({"corpus.valid": "valid.txt", "corpus.test": "test.txt"})
    execute_all(plan_of())
    assert foresee(plan_of(), "cpu") == {}
    write_text(folder / "test.txt", seed=4)
    assert len(foresee(plan_of(), "auto")) == 1
