"""Vaswani et al.'s absolute encoding: a sinusoid added to the embedded tokens."""

from torch import Tensor

from txlbench.models.positions.encoding import Encoding
from txlbench.models.positions.sinusoid import cached_sinusoid


class AbsoluteEncoding(Encoding):
    """Positions 0, ..., T-1 at every segment (Vaswani et al. 2017, section 3.5).

    With recurrence memory keeps the positions of its own segment, which makes the segments
    indistinguishable: the incoherent case before section 3.3 of the Transformer-XL paper,
    computed exactly so.
    """

    def add_to_input(self, hidden_BTD: Tensor) -> Tensor:
        _, queries, width = hidden_BTD.shape
        rows = cached_sinusoid(
            0, queries - 1, None, width, hidden_BTD.dtype, str(hidden_BTD.device)
        )
        return hidden_BTD + rows
