"""Keys and values of memory and segment in one product whose gradient stops at the memory."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear


class ContextProjection(torch.autograd.Function):
    """A linear map of [memory, segment]; memory gets no gradient, so none is computed."""

    @staticmethod
    def forward(ctx: Any, segment_BTD: Tensor, context_BSD: Tensor, weight_ID: Tensor) -> Tensor:
        ctx.queries = segment_BTD.shape[1]
        ctx.save_for_backward(context_BSD, weight_ID)
        return linear(context_BSD, weight_ID)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BSI: Tensor) -> tuple[Tensor, None, Tensor]:
        context_BSD, weight_ID = ctx.saved_tensors
        of_weight_ID = grad_BSI.flatten(0, 1).T @ context_BSD.flatten(0, 1)
        new_BTI = grad_BSI[:, -ctx.queries :]
        of_segment = new_BTI.reshape(-1, len(weight_ID)) @ weight_ID
        return of_segment.view(*new_BTI.shape[:2], -1), None, of_weight_ID


def project(segment_BTD: Tensor, context_BSD: Tensor, weight_ID: Tensor) -> Tensor:
    """[B, S, I] of a context whose last T states are the segment, without its graph."""
    projected: Tensor = ContextProjection.apply(  # type: ignore[no-untyped-call]
        segment_BTD, context_BSD, weight_ID.to(segment_BTD.dtype)
    )
    return projected
