"""One thread: tests share the machine, and results must not depend on how many there are."""

import gc

import torch

torch.set_num_threads(1)


def pytest_collection_finish() -> None:
    """Thousands of collected tests stay to the end: they need not be looked through for garbage."""
    gc.collect()
    gc.freeze()
