"""A user error is one line: the problem, then the remedy."""

from txlbench.errors import ExitStatus, UserError, suggestion


def test_problem_and_remedy_are_joined():
    error = UserError("a.yaml:3: lr: -1 found", "give a positive number")
    assert str(error) == "a.yaml:3: lr: -1 found; give a positive number"
    assert (error.problem, error.remedy) == ("a.yaml:3: lr: -1 found", "give a positive number")
    assert str(UserError("gone")) == "gone"


def test_it_stays_one_line_whatever_was_found():
    assert "\n" not in str(UserError("name 'a\nb\r\nc' found", "choose\nanother"))


def test_exit_statuses_are_those_documented():
    assert {status.name: int(status) for status in ExitStatus} == {
        "DONE": 0,
        "RUN_FAILED": 1,
        "USAGE": 2,
        "INTERRUPTED": 130,
    }


def test_an_unknown_name_gets_the_nearest_spelling():
    assert suggestion("pahth", ["path", "file"]) == "did you mean 'path'? known: path, file"
    assert suggestion("zzz", ["path"]) == "known: path"
