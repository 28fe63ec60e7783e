"""One process a run: claimed while it lives, free when it is gone, on one machine and on many."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from txlbench.records import claim
from txlbench.records.claim import (
    OWNER,
    SILENCE_SECONDS,
    ClaimLost,
    Holder,
    check_claim,
    claimed,
    holder,
    is_claimed,
)

ROOT = Path(__file__).parents[2]


def test_a_claimed_run_is_refused_until_it_is_free(tmp_path):
    with claimed(tmp_path) as mine, claimed(tmp_path, patience=0.05) as theirs:
        assert mine
        assert theirs is None
    with claimed(tmp_path) as again:
        assert again


def test_a_dead_process_holds_nothing(tmp_path):
    code = (
        "import os, pathlib\n"
        "from txlbench.records.claim import claimed\n"
        f"with claimed(pathlib.Path({str(tmp_path)!r})) as mine:\n"
        "    print(mine is not None, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)}
    )
    assert (done.stdout, done.returncode) == ("True\n", -9)
    assert not is_claimed(tmp_path)
    with claimed(tmp_path, patience=0) as mine:
        assert mine


def test_looking_takes_nothing(tmp_path):
    assert not is_claimed(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with claimed(tmp_path):
        assert is_claimed(tmp_path)
    assert not is_claimed(tmp_path)


def test_whoever_looks_all_the_time_keeps_nobody_out(tmp_path):
    """A worker that met a look would leave its run undone."""
    over = threading.Event()

    def look():
        while not over.is_set():
            is_claimed(tmp_path)

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(50):
            with claimed(tmp_path) as mine:
                assert mine
    finally:
        over.set()
        for looker in lookers:
            looker.join()


def test_many_claims_leave_few_files(tmp_path):
    for _ in range(20):
        with claimed(tmp_path) as mine:
            assert mine
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".claim",
        *(f".claim.{number}" for number in (17, 18, 19, 20)),
    ]


# Other machines


class Host:
    """A process of another machine that holds the run; see `other_host`."""

    def __init__(self, run, name, silence=SILENCE_SECONDS, mode="hold"):
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.records.other_host", run, name, str(silence), mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def says(self):
        return self.process.stdout.readline().strip()

    def asked(self, line):
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.says()

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def host(tmp_path):
    hosts = []

    def started(*arguments, **options):
        hosts.append(Host(tmp_path, *arguments, **options))
        return hosts[-1]

    yield started
    for each in hosts:
        each.kill()
        each.process.communicate()


def test_what_another_machine_holds_is_left_to_it_until_it_ends(tmp_path, host, monkeypatch):
    other = host("elsewhere")
    assert other.says() == "mine"
    assert is_claimed(tmp_path)
    monkeypatch.setattr(time, "time", lambda: 4e9)  # this machine's clock is decades ahead
    assert is_claimed(tmp_path)
    with claimed(tmp_path, patience=0.05) as mine:
        assert mine is None
    other.asked("end")
    assert not is_claimed(tmp_path)
    with claimed(tmp_path, patience=0) as mine:
        assert mine


def test_a_machine_that_died_is_given_up_after_its_silence(tmp_path, host, monkeypatch):
    other = host("elsewhere")
    assert other.says() == "mine"
    other.kill()
    assert is_claimed(tmp_path)
    (lease,) = tmp_path.glob(".claim.*")
    long_ago = time.time() - SILENCE_SECONDS - 1
    os.utime(lease, (long_ago, long_ago))
    assert not is_claimed(tmp_path)
    with claimed(tmp_path, patience=0) as mine:
        assert mine


def test_the_heartbeat_goes_on_while_the_process_is_busy(tmp_path):
    long_ago = time.time() - 2 * SILENCE_SECONDS
    with claimed(tmp_path) as mine:
        with mine.kept(interval=0.01):
            for _ in range(3):
                os.utime(mine.path, (long_ago, long_ago))
                deadline = time.monotonic() + 10
                while mine.path.stat().st_mtime < long_ago + 1:
                    assert time.monotonic() < deadline
                    time.sleep(0.005)
        os.utime(mine.path, (long_ago, long_ago))
        time.sleep(0.05)
        assert mine.path.stat().st_mtime == pytest.approx(long_ago)


def test_the_heartbeat_tells_of_a_later_claim_once(tmp_path):
    told = []
    with claimed(tmp_path) as mine, mine.kept(lambda: told.append(1), interval=0.01):
        (tmp_path / ".claim.2").touch()
        deadline = time.monotonic() + 10
        while not told:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        time.sleep(0.05)
    assert told == [1]


def test_a_suspended_holder_that_was_replaced_writes_nothing_more(tmp_path, host):
    first = host("one", 0.5)
    assert first.says() == "mine"
    assert first.asked("write") == "written"
    first.process.send_signal(signal.SIGSTOP)
    second = host("two", 0.5)
    assert second.says() == "mine"
    assert second.asked("write") == "written"
    first.process.send_signal(signal.SIGCONT)
    assert first.asked("write") == "lost"
    assert second.asked("write") == "written"
    assert (tmp_path / "log").read_text().split() == ["one", "two", "two"]


def test_a_holder_that_was_suspended_but_not_replaced_goes_on(tmp_path, host):
    first = host("one", 0.5)
    assert first.says() == "mine"
    first.process.send_signal(signal.SIGSTOP)
    time.sleep(1.0)
    first.process.send_signal(signal.SIGCONT)
    assert first.asked("write") == "written"


def test_one_of_many_machines_takes_over(tmp_path, host):
    dead = host("dead", 2.0)
    assert dead.says() == "mine"
    others = [host(f"host{number}", 2.0) for number in range(5)]
    time.sleep(0.5)
    dead.kill()
    deadline = time.monotonic() + 20
    while len(leases := list(tmp_path.glob(".claim.*"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(1.5)  # the others go on trying
    assert len(leases) == 2
    (winner,) = [each for each in others if each.name == holder_machine(tmp_path)]
    assert winner.says() == "mine"
    assert winner.asked("write") == "written"


def holder_machine(run):
    return claim._latest(run).content()["machine"]


def test_machines_that_contend_all_the_time_are_never_two(tmp_path, host):
    contenders = [host(f"host{number}", mode="contend") for number in range(4)]
    for each in contenders:
        each.process.stdin.write("2\n")
        each.process.stdin.flush()
    found = [tuple(map(int, each.says().split())) for each in contenders]
    assert sum(had for had, _ in found) > 20
    assert [shared for _, shared in found] == [0] * 4


def test_a_lease_that_cannot_be_written_is_judged_by_its_heartbeat(tmp_path):
    """As on a full disk, which takes an empty file."""
    (tmp_path / ".claim").touch()
    (tmp_path / ".claim.3").touch()
    assert is_claimed(tmp_path)
    os.utime(tmp_path / ".claim.3", (0, 0))
    with claimed(tmp_path, patience=0) as mine:
        assert mine.path.name == ".claim.4"


def test_a_claim_is_lost_to_a_later_one_or_with_its_directory(tmp_path):
    (run := tmp_path / "run").mkdir()
    check_claim(run)  # nobody's
    with claimed(run) as mine:
        check_claim(run)
        (run / ".claim.2").touch()
        with pytest.raises(ClaimLost, match="took the run over"):
            check_claim(run)
        (run / ".claim.2").unlink()
        check_claim(run)
        run.rename(tmp_path / "run.stale-1")
        assert mine.is_lost()
    assert (tmp_path / "run.stale-1" / ".claim.1").stat().st_mtime == 0


def test_a_job_that_is_started_again_follows_itself_at_once(tmp_path, host, monkeypatch):
    """Its first life's machine died; only the scheduler can know."""
    monkeypatch.setenv(OWNER, "slurm 7")
    dead = host("elsewhere")
    assert dead.says() == "mine"
    dead.kill()
    assert holder(tmp_path).owner == "slurm 7"
    monkeypatch.setenv(OWNER, "slurm 8")
    assert is_claimed(tmp_path)
    monkeypatch.setenv(OWNER, "slurm 7")
    with claimed(tmp_path, patience=0) as mine:
        assert mine


def test_whoever_wakes_up_while_it_is_replaced_keeps_the_run(tmp_path, monkeypatch):
    """The holder touches its lease after its successor judged it, and before it looks again."""
    (tmp_path / ".claim.1").touch()
    os.utime(tmp_path / ".claim.1", (1, 1))
    before = claim._latest(tmp_path)
    os.utime(tmp_path / ".claim.1")
    monkeypatch.setattr(claim._Lease, "is_in_force", lambda *_, **__: False)
    assert claim._follow(tmp_path, before, with_locks=True) is None
    assert [path.name for path in tmp_path.glob(".claim.*")] == [".claim.1"]


# File systems without locks


@pytest.fixture
def without_locks(monkeypatch):
    def refuse(file, kind):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(claim.fcntl, "flock", refuse)


def test_without_locks_leases_decide(tmp_path, without_locks):
    with claimed(tmp_path) as mine, claimed(tmp_path, patience=0.05) as theirs:
        assert mine
        assert theirs is None
        assert is_claimed(tmp_path)
        assert holder(tmp_path) == Holder(os.uname().nodename)
    assert not is_claimed(tmp_path)


def test_without_locks_a_dead_process_of_this_machine_is_known_at_once(tmp_path, without_locks):
    code = (
        "import os, pathlib\n"
        "from txlbench.records.claim import claimed\n"
        f"with claimed(pathlib.Path({str(tmp_path)!r})) as mine:\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT)})
    assert not is_claimed(tmp_path)
