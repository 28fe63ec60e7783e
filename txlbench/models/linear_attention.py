"""Gated linear recurrences over a matrix-valued state, computed chunk by chunk.

Both rules keep one state S [K, V] a head and read it with a query, o_t = S_t^T q_t:

    gla          S_t = diag(exp g_t) S_{t-1} + k_t v_t^T          (Yang et al. 2023, equation 3)
    gated delta  S_t = exp(g_t) (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T
                                                                  (Yang et al. 2024, equation 10)

with log decays g <= 0: one for each entry of the key, or one a head. Inside a chunk of C tokens
the recurrence is a product of [C, C] matrices; states are handed from chunk to chunk. Every
exponent is a sum of log decays and so at most 0: nothing overflows, however strong the decay.
Inputs should be float32 at least, with autocast off.

Letters beyond those of `interface`: N chunks, C tokens of a chunk, K and V the sizes of a head's
keys and values.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from txlbench.config.kinds import CHUNK


def gated_linear_attention(
    query_BHTK: Tensor,
    key_BHTK: Tensor,
    value_BHTV: Tensor,
    decay_BHTK: Tensor,
    state_BHKV: Tensor,
) -> tuple[Tensor, Tensor]:
    """Outputs [B, H, T, V] of the rule `gla`, and the state after the last token.

    Args:
        decay_BHTK: log decays g_t, at most 0.
        state_BHKV: the state before the first token.
    """
    length = query_BHTK.shape[2]
    if length == 1:
        state_BHKV = decay_BHTK.exp().mT * state_BHKV + key_BHTK.mT * value_BHTV
        return query_BHTK @ state_BHKV, state_BHKV
    query, key, value, decay = (
        _chunks(each) for each in (query_BHTK, key_BHTK, value_BHTV, decay_BHTK)
    )
    sums_BHNCK = decay.cumsum(3)
    whole_BHN1K = sums_BHNCK[:, :, :, -1:]
    added_BHNKV = (key * (whole_BHN1K - sums_BHNCK).exp()).mT @ value
    kept_BHNK1 = whole_BHN1K.exp().mT
    before = []
    for kept_BHK1, added_BHKV in zip(kept_BHNK1.unbind(2), added_BHNKV.unbind(2), strict=True):
        before.append(state_BHKV)
        state_BHKV = torch.addcmul(added_BHKV, kept_BHK1, state_BHKV)
    scores_BHNCC = _decayed_scores(query, key, sums_BHNCK)
    out = scores_BHNCC @ value + (query * sums_BHNCK.exp()) @ torch.stack(before, 2)
    return out.flatten(2, 3)[:, :, :length], state_BHKV


def _decayed_scores(query_BHNCK: Tensor, key_BHNCK: Tensor, sums_BHNCK: Tensor) -> Tensor:
    """sum_k q_ik k_jk exp(sums_ik - sums_jk) for j <= i, else 0: [B, H, N, C, C].

    Blocks of 1, 2, 4, ... tokens are joined in pairs. The scores of the later block against the
    earlier one are one product, of queries that decayed since the earlier block's end and keys that
    decay until there. Products of exp(sums_i) and exp(-sums_j), the paper's parallel form, would
    overflow (its secondary chunking, section 4.3, is one level of this).
    """
    scores = (query_BHNCK * key_BHNCK).sum(-1)[..., None, None]
    size, chunk = 1, query_BHNCK.shape[3]
    while size < chunk:
        pairs = (chunk // (2 * size), 2, size)
        query, key, sums = (
            each.unflatten(3, pairs) for each in (query_BHNCK, key_BHNCK, sums_BHNCK)
        )
        end = sums[:, :, :, :, 0, -1:]
        later = query[:, :, :, :, 1] * (sums[:, :, :, :, 1] - end).exp()
        earlier = key[:, :, :, :, 0] * (end - sums[:, :, :, :, 0]).exp()
        across = later @ earlier.mT
        first, second = scores.unflatten(3, (-1, 2)).unbind(4)
        scores = torch.cat([pad(first, (0, size)), torch.cat([across, second], -1)], -2)
        size *= 2
    return scores.squeeze(3)


def gated_delta_rule(
    query_BHTK: Tensor,
    key_BHTK: Tensor,
    value_BHTV: Tensor,
    decay_BHT: Tensor,
    beta_BHT: Tensor,
    state_BHKV: Tensor,
) -> tuple[Tensor, Tensor]:
    """Outputs [B, H, T, V] of the rule `gated delta`, and the state after the last token.

    The delta rule writes beta (v - S^T k), with S as it decayed: what a token writes depends on
    what those before it in the chunk wrote. One triangular system a chunk resolves that (the
    paper's WY representation, section 3.3).

    Args:
        decay_BHT: log decays g_t, at most 0.
        beta_BHT: writing strengths, 0 to 1; keys should have length 1.
        state_BHKV: the state before the first token.
    """
    length = query_BHTK.shape[2]
    if length == 1:
        state_BHKV = decay_BHT.exp()[..., None] * state_BHKV
        written = beta_BHT[..., None] * (value_BHTV - key_BHTK @ state_BHKV)
        state_BHKV = state_BHKV + key_BHTK.mT * written
        return query_BHTK @ state_BHKV, state_BHKV
    query, key, value = (_chunks(each) for each in (query_BHTK, key_BHTK, value_BHTV))
    sums, beta = _chunks(decay_BHT[..., None]).cumsum(3), _chunks(beta_BHT[..., None])
    whole_BHN11 = sums[:, :, :, -1:]
    future = sums.new_ones(sums.shape[3], sums.shape[3], dtype=torch.bool).triu(1)
    decays_BHNCC = (sums - sums.mT).masked_fill(future, -torch.inf).exp()
    system = (beta * key @ key.mT) * decays_BHNCC  # its diagonal counts as 1
    given = torch.cat([beta * value, beta * sums.exp() * key], -1)
    written, read = torch.linalg.solve_triangular(
        system, given, upper=False, unitriangular=True
    ).split([value.shape[-1], key.shape[-1]], -1)
    last, kept = key * (whole_BHN11 - sums).exp(), whole_BHN11.exp()
    before, news = [], []
    for chunk in range(query.shape[2]):
        new = written[:, :, chunk] - read[:, :, chunk] @ state_BHKV
        before.append(state_BHKV)
        news.append(new)
        state_BHKV = kept[:, :, chunk] * state_BHKV + last[:, :, chunk].mT @ new
    scores_BHNCC = (query @ key.mT) * decays_BHNCC
    out = scores_BHNCC @ torch.stack(news, 2)
    out = out + (query * sums.exp()) @ torch.stack(before, 2)
    return out.flatten(2, 3)[:, :, :length], state_BHKV


def _chunks(values_BHTX: Tensor) -> Tensor:
    """[B, H, N, C, X], ended with zeros: such keys and decays leave the state as it is."""
    length = values_BHTX.shape[2]
    size = min(CHUNK, 1 << (length - 1).bit_length())
    padded = pad(values_BHTX, (0, 0, 0, -length % size))
    return padded.unflatten(2, (-1, size))
