"""In which number format products are computed here and now."""

import torch
from torch import Tensor


def computing_dtype(like: Tensor) -> torch.dtype:
    """Autocast's type where it is on, else that of the parameters.

    Args:
        like: a tensor with the device and dtype of the parameters.
    """
    kind = like.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else like.dtype
