"""Completion as a bash asks for it, installed by the line that the docs show."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "terminal.md"
COMPLETE = """
eval "$({line})"
COMP_WORDS=({words}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_txlbench_completion txlbench
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def completed(tmp_path, monkeypatch):
    """What bash offers for a line, after the line of the docs was read."""
    program = tmp_path / "txlbench"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m txlbench "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("PYTHONPATH", str(PAGE.parents[1]))
    (shown,) = re.findall(r'^eval "\$\((.*bash_source.*)\)"$', PAGE.read_text(), re.MULTILINE)

    def complete(*words):
        script = COMPLETE.format(line=shown, words=" ".join(words))
        done = subprocess.run(
            [shutil.which("bash"), "--norc", "-c", script],
            capture_output=True,
            text=True,
            check=True,
        )
        assert not done.stderr
        return done.stdout.split()

    return complete


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_verbs_options_choices_and_keys(completed):
    assert completed("txlbench", "sta") == ["status"]
    assert completed("txlbench", "ablate", "--dry") == ["--dry-run"]
    assert completed("txlbench", "figures", "--format", "p") == ["png", "pdf"]
    assert completed("txlbench", "schema", "train.mem") == [
        "train.mem_len",
        "train.memory_reset",
        "train.memory_reset_from",
    ]
