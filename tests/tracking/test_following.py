"""The loop of the mirror process, without MLflow."""

import subprocess
import sys

PROGRAM = """
import sys
from txlbench.tracking import following
following.POLL_SECONDS, following.LAST_WAITS = 0.02, (0.0, 0.01, 0.01)
attempts = []
def attempt():
    attempts.append(1)
    print(len(attempts), flush=True)
    return {answer}
print("done", following.follow(attempt), flush=True)
"""


def start(answer: bool) -> subprocess.Popen[str]:
    program = PROGRAM.format(answer=answer)
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, text=True)


def test_it_goes_on_until_its_input_closes_then_once_more() -> None:
    process = start(answer=True)
    assert process.stdout is not None
    seen = [process.stdout.readline() for _ in range(3)]
    assert seen == ["1\n", "2\n", "3\n"]
    assert process.poll() is None
    rest, _ = process.communicate(timeout=30)
    assert rest.split("\n")[-2] == "done True"
    assert process.returncode == 0


def test_it_gives_up_after_the_last_tries() -> None:
    process = start(answer=False)
    out, _ = process.communicate(timeout=30)
    assert out.split("\n")[-2] == "done False"
    assert len(out.split("\n")) >= 3 + 2
