"""What a training step minimises: the summed loss of the positions that are scored."""

from torch import Tensor

from txlbench.models.interface import LanguageModel, State


def scored_loss(
    model: LanguageModel, tokens_BT: Tensor, targets_BT: Tensor, scored: int, state: State
) -> tuple[Tensor, State]:
    """The sum of losses over each row's last `scored` positions, and the next state.

    With half loss those are the positions i >= tgt_len // 2; the paper does not publish how it
    coded this. The other positions get no gradient from their own targets.
    """
    hidden_BTD, state = model.forward(tokens_BT, state)
    losses = model.losses(hidden_BTD[:, -scored:], targets_BT[:, -scored:])
    return losses.float().sum() if losses.dtype.itemsize < 4 else losses.sum(), state
