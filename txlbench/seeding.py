"""Every source of randomness: seeded together, captured and restored for an exact resume."""

import random
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


@cache
def bit_source() -> "np.random.SFC64":
    """A fast source of random bits, from which CPU dropout masks are drawn."""
    import numpy as np

    return np.random.SFC64(0)


def seed_everything(seed: int) -> None:
    """Seeds Python, PyTorch on every device, and the bit source."""
    import numpy as np
    import torch

    random.seed(seed)
    torch.manual_seed(seed)
    bit_source().state = np.random.SFC64(seed).state


def capture() -> dict[str, Any]:
    """The state of every source as tensors and plain data, for a checkpoint."""
    import torch

    bits = bit_source().state
    version, words, gauss = random.getstate()
    return {
        "python": [version, list(words), gauss],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "bits": {**bits, "state": [int(word) for word in bits["state"]["state"]]},
    }


def restore(state: dict[str, Any]) -> None:
    """Puts every source where `capture` found it."""
    import numpy as np
    import torch

    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    torch.set_rng_state(state["torch"])
    for device, generator in enumerate(state["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(generator, device)  # there were more where it was captured
    bits: Any = state["bits"]
    bits = {**bits, "state": {"state": np.array(bits["state"], dtype=np.uint64)}}
    bit_source().state = bits
