"""Whatever a name is made of and whatever kind of file it leads to: one line, no traceback."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import workplace
from tests.cli.trial import environment
from tests.runs.trial import write_spec
from txlbench.cli.main import main

RUN = "quick/Transformer-XL"
VERBS = [
    "ablate NAME --dry-run",
    "ablate NAME",
    "ablate experiments/quick.yaml --only NAME --dry-run",
    "ablate experiments/quick.yaml --set NAME=1 --dry-run",
    "ablate experiments/quick.yaml --set corpus=NAME --dry-run",
    "ablate experiments/quick.yaml --set corpus=NAME",
    "ablate experiments/quick.yaml --dry-run --out NAME",
    "ablate experiments/quick.yaml --dry-run --device NAME",
    "check NAME",
    "schema NAME",
    "data prepare NAME",
    "data prepare my-text.txt --from-file NAME",
    "data prepare ptb --from-file NAME",
    "data show NAME --level word",
    "data export my-text.txt --out NAME",
    "status NAME",
    "prune NAME",
    "figures NAME",
    "sync NAME",
    "merge NAME",
    "merge my-text.txt --out NAME",
    "eval NAME",
    f"eval {RUN} --corpus NAME",
    f"eval {RUN} --tokens NAME",
    f"eval {RUN} --losses NAME",
    "eval quick/NAME",
    "eval hf:NAME --tokens ids.npy",
    "eval torch:NAME --tokens ids.npy",
    "eval tf:NAME --tokens ids.npy",
    "eval runs:/NAME",
    "generate NAME --prompt a",
    f"generate {RUN} --prompt NAME --tokens 1",
    f"generate {RUN} --prompt-file NAME --tokens 1",
    "import hf:NAME --out results/imported/one",
    "import torch:NAME --out results/imported/one",
    "import tf:NAME --out results/imported/one",
    "import hf:exported --out NAME",
    "export NAME --to hf:exported",
    f"export {RUN} --to hf:NAME",
    "recl --models NAME",
    "recl --models a.npz,NAME",
    "recl --models NAME.npz",
    "recl --models a.npz --out NAME",
    f"recl --models {RUN} --contexts 2,4 --tokens 100 --corpus NAME",
    "truth NAME",
    "speed NAME --attention-lengths 8 --rounds 2",
    "speed NAME.yaml:XL --attention-lengths 8 --rounds 2",
    "speed experiments/quick.yaml:NAME --attention-lengths 8 --rounds 2",
    "bench --against NAME",
    "bench --sizes NAME",
]
NAMES = {
    "long": "x" * 300,
    "bytes that are no text": "a\udcffb",
    "two lines": "a\nb",
    "markup": "[red]<b>$x$_{y}[/red]",
    "empty": "",
    "a directory": "folder",
    "a link to nothing": "dangling",
    "a link to itself": "loop",
    "a socket": "socket",
    "below a file": "my-text.txt/x",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("hostile")
        patch.chdir(place)
        patch.setenv("TXLBENCH_DATA", str(tmp_path_factory.mktemp("data")))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        workplace.make(place)
        yield place


def stop_waiting(*_):
    pytest.fail("it waits for ever")


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("verb", VERBS)
def test_no_name_and_no_kind_of_file_ends_in_a_traceback(verb, kind, folder, monkeypatch, capfd):
    """What the name is at home with may succeed; anything else is one line."""
    (folder / "folder").mkdir(exist_ok=True)
    for link, target in (("dangling", "gone"), ("loop", "loop")):
        if not os.path.lexists(link):
            Path(link).symlink_to(target)
    if not os.path.lexists("socket"):  # stands for devices, which a test should not touch
        socket.socket(socket.AF_UNIX).bind("socket")
    words = [word.replace("NAME", NAMES[kind]) for word in verb.split(" ")]
    monkeypatch.setattr(sys, "argv", ["txlbench", *words])
    before = signal.signal(signal.SIGALRM, stop_waiting)
    signal.alarm(20)
    try:
        with pytest.raises(SystemExit) as end:
            main()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    errors = capfd.readouterr().err
    assert "Traceback" not in errors
    if end.value.code:
        assert end.value.code in (1, 2)
        told = [line for line in errors.splitlines() if line.startswith("Error: ")]
        assert len(told) == 1 or end.value.code == 1, errors


@pytest.mark.full
@pytest.mark.parametrize(
    ("encoding", "words"),
    [("ascii", ["ablate", "spec.yaml"]), ("utf-16", ["status", "results/quick"])],
)
def test_a_terminal_of_any_encoding_is_written_to(encoding, words, folder):
    """Tables and progress have characters that it may lack."""
    write_spec({"corpus.path": "my-text.txt"})
    command = [sys.executable, "-m", "txlbench", *words]
    done = subprocess.run(
        command, capture_output=True, env=environment(PYTHONIOENCODING=encoding), check=False
    )
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    assert "finished" in done.stdout.decode(encoding)
