"""What the README promises can be run as it stands there."""

import re
from pathlib import Path

import numpy as np

from txlbench.records.loss_file import read_loss_file

README = Path(__file__).parents[1] / "README.md"


def test_its_loss_file_is_one(tmp_path, monkeypatch):
    """The ten lines with which any program writes one."""
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    tokens = np.random.default_rng(1).integers(50, size=3000)
    exec(block, {"tokens": tokens, "my_model_loss": lambda before, token: len(before) / 1000})
    found = read_loss_file(Path("mine.npz"))
    assert found.losses[:, 0].tolist() == [np.float32(c / 1000) for c in (100, 200, 300)]
    assert (found.name, found.split, len(found.positions)) == ("mine", "test", 2000)
