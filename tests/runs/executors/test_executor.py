"""What was typed about the launcher: sizes, counts, and what does not fit together."""

import pytest

from txlbench.errors import UserError
from txlbench.runs.executors.executor import Launch


def test_resources_are_read():
    launch = Launch.of("slurm", None, ["cpus=4", "gpus=1", "memory=16GiB", "partition=long"])
    assert (launch.cpus, launch.gpus, launch.memory) == (4, 1, 16 * 2**30)
    assert launch.others == {"partition": "long"}
    assert Launch.of("process", None, ()) == Launch()


@pytest.mark.parametrize(
    ("text", "size"),
    [("1000", 1000), ("2k", 2048), ("2kB", 2000), ("1.5GiB", 3 * 2**29), ("16G", 2**34)],
)
def test_a_size_is_in_bytes_whichever_way_it_is_written(text, size):
    assert Launch.of("ray", None, [f"memory={text}"]).memory == size


@pytest.mark.parametrize(
    ("launcher", "address", "resource", "named"),
    [
        ("process", "auto", (), "--launcher ray"),
        ("process", None, ("cpus=2",), "--launcher ray or slurm"),
        ("ray", None, ("cpus=0",), "cpus=0"),
        ("ray", None, ("gpus=half",), "gpus=half"),
        ("ray", None, ("memory=much",), "memory=much"),
        ("ray", None, ("cpus",), "KEY=VALUE"),
        ("slurm", None, ("cpus=2", "cpus=4"), "cpus is 2 already"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(launcher, address, resource, named):
    with pytest.raises(UserError) as refused:
        Launch.of(launcher, address, resource)
    assert named in str(refused.value)
