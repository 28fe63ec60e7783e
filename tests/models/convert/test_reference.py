"""The golden files against Hugging Face's class itself, in an environment made for the purpose."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.models.convert.scored import CASES, GOLDEN, HERE, golden, losses, of_our_own
from txlbench.models.convert.hf import read_hf, write_hf

REQUIREMENTS = ["torch==2.13.0", "transformers==4.35.2", "sacremoses"]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has the class."""
    folder = tmp_path_factory.mktemp("reference")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *REQUIREMENTS], check=True)
    return python


def make_golden(python: Path, *arguments: Path | str) -> None:
    """Runs the script; its own output appears where it fails."""
    command = [python, HERE / "make_golden.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.full
def test_every_loss_is_the_classs_own(python: Path, tmp_path: Path):
    make_golden(python, tmp_path)
    for case in CASES:
        converted = read_hf(tmp_path / case)
        for memory in ("empty", "zeros"):
            live = np.load(tmp_path / case / "losses.npz")[memory]
            ours = losses(converted, tmp_path / case, memory)
            np.testing.assert_allclose(ours, live, rtol=0, atol=1e-4)
            np.testing.assert_allclose(golden(case, memory), live, rtol=0, atol=1e-4)


@pytest.mark.full
def test_what_is_written_loads_in_the_class_and_gives_our_losses(python: Path, tmp_path: Path):
    lengths = {"mem_len": 20, "tgt_len": 16}
    span = {"clamp_len": 25, "same_length": True}
    cut = {"cutoffs": [5, 9, 20], "div_val": 2, "tie_projs": [True, False, True, False]}
    models = {case: read_hf(GOLDEN / case) for case in CASES} | {
        "mixed-ties": replace(of_our_own(**cut, **span), **lengths),
        "one-projection": replace(of_our_own(d_embed=7, tie_projs=[True], **span), **lengths),
        "pre-lnorm": replace(
            of_our_own(pre_lnorm=True, untie_r=True, dropatt=0.2, **span), **lengths
        ),
    }
    for name, model in models.items():
        write_hf(model, tmp_path / name)
    make_golden(python, "--score", *(tmp_path / name for name in models))
    for name, model in models.items():
        theirs = np.load(tmp_path / name / "losses.npz")["empty"]
        ours = losses(model, tmp_path / name)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)
