"""What a run should tell of its machine and code."""

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from txlbench.data.corpus import Corpus
from txlbench.execution.commit import current_commit
from txlbench.models.interface import LanguageModel


def gather_facts(
    corpus: Corpus, model: LanguageModel, device: torch.device, precision: str, dropped: int
) -> dict[str, Any]:
    """Commit, versions, device, threads, corpus and size, as `facts.json` keeps them.

    Args:
        dropped: predictions of train that are in no stream.
    """
    cuda = device.type == "cuda"
    return {
        "commit": current_commit(),
        "txlbench": _version("txlbench"),
        "versions": {
            "python": platform.python_version(),
            **{name: _version(name) for name in ("torch", "numpy")},
        },
        "device": str(device),
        "device_name": torch.cuda.get_device_name(device) if cuda else platform.machine(),
        "threads": torch.get_num_threads(),
        "precision": precision,
        "corpus": corpus.facts(),
        "train_dropped": dropped,
        "parameters": sum(weight.numel() for weight in model.parameters()),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
