"""A Slurm cluster of one node: munged, slurmctld and slurmd, started by hand in a folder.

It needs no systemd and no control groups, so that it runs in a container, as root.
"""

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

CONFIGURATION = """\
ClusterName=trial
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=sched_interval=1
KillWait=20
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=2000 State=UNKNOWN
PartitionName=low Nodes={host} Default=YES MaxTime=INFINITE PriorityTier=1 GraceTime=60
PartitionName=high Nodes={host} MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF
"""
START_SECONDS = 30


class OneNodeSlurm:
    """The cluster; partition `high` preempts `low`, whose jobs then have a minute.

    Args:
        folder: an empty one, whose path is short enough for a socket.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}

    def start(self):
        folder, host = self.folder, socket.gethostname().partition(".")[0]
        for name in ("state", "spool"):
            (folder / name).mkdir()
        text = CONFIGURATION.format(host=host, folder=folder, ports=free_ports(2))
        (folder / "slurm.conf").write_text(text)
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        names = ("socket", "key-file", "pid-file", "log-file", "seed-file")
        places = [folder / f"munge.{name.removesuffix('-file')}" for name in names]
        given = [f"--{name}={place}" for name, place in zip(names, places, strict=True)]
        self.call("munged", "--force", *given)
        self.call("slurmctld")
        self.call("slurmd")
        deadline = time.monotonic() + START_SECONDS
        while "idle" not in (said := self.call("sinfo", "--noheader", "--format", "%T", ok=False)):
            assert time.monotonic() < deadline, f"{said}{self.logs()}"
            time.sleep(0.5)

    def stop(self):
        self.call("scancel", "--user=root", ok=False)
        for name in ("slurmd", "slurmctld", "munge"):
            with contextlib.suppress(OSError, ValueError):
                pid = int((self.folder / f"{name}.pid").read_text())
                os.kill(pid, signal.SIGTERM)
                for _ in range(100):
                    os.kill(pid, 0)
                    time.sleep(0.1)

    def call(self, *command, ok=True):
        done = subprocess.run(command, capture_output=True, text=True, env=self.environment)
        assert not ok or done.returncode == 0, f"{command}: {done.stderr}{self.logs()}"
        return done.stdout

    def begin_again(self, job):
        """Starts a requeued job now, which Slurm lets wait for two minutes."""
        deadline = time.monotonic() + START_SECONDS
        while self.call("squeue", "--noheader", f"--jobs={job}", "--format", "%T") != "PENDING\n":
            assert time.monotonic() < deadline
            time.sleep(0.5)
        self.call("scontrol", "update", f"JobId={job}", "StartTime=now")

    def logs(self):
        paths = sorted(self.folder.glob("*.log"))
        return "".join(f"\n{path.name}: {path.read_text()[-1500:]}" for path in paths)

    def jobs(self):
        """Ids of jobs that wait or run."""
        return self.call("squeue", "--noheader", "--array", "--format", "%i").split()


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
