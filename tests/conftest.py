"""One thread: tests share the machine, and results must not depend on how many there are."""

import torch

torch.set_num_threads(1)
