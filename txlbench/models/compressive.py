"""Compressive memory: what leaves memory is kept in fewer states (Rae et al. 2020)."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear, mse_loss

from txlbench.config.model import ModelConfig
from txlbench.models.memory import Kept, Memory, with_memory

if TYPE_CHECKING:
    from txlbench.models.transformer import Block


class Compressor(nn.Module):
    """A convolution of each layer makes one state of `compress_rate` that memory gives up.

    Of the mem_len states that are kept, half are compressed, so that models of one mem_len keep
    equally many; the paper chooses both sizes by hand. Each convolution learns by what attention
    loses through it alone (the paper's attention-reconstruction loss, its best): no other gradient
    reaches it, and its own reaches nothing else. Keys count by their places in [compressed, memory,
    segment], as in the paper, so that a compressed state counts as one step of distance.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, self.rate = config.d_model, config.compress_rate
        self.convolutions = nn.ModuleList(
            nn.Conv1d(width, width, self.rate, stride=self.rate) for _ in range(config.n_layer)
        )

    def remember(self, state: Memory, layer: int, block: "Block", input_BTD: Tensor) -> Kept:
        """What `layer` keeps after a segment: mem_len states at most, half of them compressed.

        The loss is there in training alone.
        """
        span, old_BCD, loss = state.span, state.compressed[layer], None
        entering_BLD = input_BTD.detach()[:, : span.stride]
        if span.mem_len == 0:
            return Kept(entering_BLD[:, :0].clone(), old_BCD)
        recent_BMD = with_memory(state.layers[layer], entering_BLD)
        whole = span.mem_len - span.mem_len // 2
        over = max(0, recent_BMD.shape[1] - whole)
        leaving = min(-(-over // self.rate), recent_BMD.shape[1] // self.rate) * self.rate
        leaving_BLD, staying_BMD = recent_BMD[:, :leaving], recent_BMD[:, leaving:][:, -whole:]
        if leaving:
            new_BCD = self.compressed(layer, leaving_BLD)
            if self.training and torch.is_grad_enabled():
                loss = reconstruction_loss(block, input_BTD, leaving_BLD, new_BCD)
            old_BCD = torch.cat([old_BCD, new_BCD.detach().to(old_BCD.dtype)], dim=1)
        room = span.mem_len - staying_BMD.shape[1]
        kept_BCD = old_BCD[:, max(0, old_BCD.shape[1] - room) :]
        return Kept(staying_BMD.clone(), kept_BCD.clone(), loss)

    def compressed(self, layer: int, leaving_BLD: Tensor) -> Tensor:
        """One state for each `rate` of them: [B, L / rate, D]."""
        convolution = self.convolutions[layer]
        dtype = next(convolution.parameters()).dtype
        made: Tensor = convolution(leaving_BLD.mT.to(dtype))
        return made.mT


def reconstruction_loss(
    block: "Block", input_BTD: Tensor, old_BLD: Tensor, new_BCD: Tensor
) -> Tensor:
    """Mean squared change of what the segment reads, by content alone, from new states for old.

    Gradients reach `new_BCD` alone. Computed in float32 at least.
    """
    attention, dtype = block.attention, torch.promote_types(new_BCD.dtype, torch.float32)
    query, key_value = (
        net.weight.detach().to(dtype) for net in (attention.q_net, attention.kv_net)
    )
    normed = _frozen_norm(block)

    def split(projected: Tensor) -> Tensor:
        return projected.unflatten(-1, (-1, attention.size)).transpose(1, 2)

    def read(states_BLD: Tensor) -> Tensor:
        key, value = map(split, linear(normed(states_BLD.to(dtype)), key_value).chunk(2, dim=-1))
        scores_BHTL = asked @ key.mT * attention.size**-0.5
        mixed: Tensor = scores_BHTL.softmax(-1) @ value
        return mixed

    with torch.autocast(new_BCD.device.type, enabled=False):
        asked = split(linear(normed(input_BTD.detach().to(dtype)), query))
        return mse_loss(read(new_BCD), read(old_BLD.detach()))


def _frozen_norm(block: "Block") -> Callable[[Tensor], Tensor]:
    """What `block.pre_norm` does, without a gradient for its weights."""
    if not block.pre_lnorm:
        return lambda states: states
    norm = block.attention_norm
    weight, bias = norm.weight.detach(), norm.bias.detach()
    return lambda states: layer_norm(states, norm.normalized_shape, weight, bias, norm.eps)
