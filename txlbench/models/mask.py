"""The causal mask, and which query meets which key: the last T queries stand at the last T keys.

With S keys and T queries, query i stands at key S - T + i, so its distance to key j is
S - T + i - j: zero for itself, negative for the future. This file is the only place that knows.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad


def distance(query: Any, key: Any, queries: int, keys: int) -> Any:
    """Of query i to key j: S - T + i - j."""
    return keys - queries + query - key


def distances_S(keys: int, clamp_len: int | None, device: torch.device | None = None) -> Tensor:
    """Every distance a query can have to a key, the largest first: S-1, ..., 1, 0.

    Args:
        clamp_len: larger distances are replaced by it.
    """
    distances = torch.arange(keys - 1, -1, -1, device=device)
    return distances if clamp_len is None else distances.clamp(max=clamp_len)


def mask_TS(
    queries: int, keys: int, attention_length: int | None, like: Tensor, sinks: int = 0
) -> Tensor:
    """What is added to scores: -inf where a query must not see a key, else 0.

    Added rather than filled in, which is many times slower on a CPU.

    Args:
        attention_length: number of keys a query sees, itself included; None for all.
        like: a tensor with the device and dtype wanted.
        sinks: the first keys, which are among those however far they are.
    """
    query = torch.arange(queries, device=like.device)[:, None]
    key = torch.arange(keys, device=like.device)[None, :]
    apart = distance(query, key, queries, keys)
    blocked = apart < 0
    if attention_length is not None:
        blocked |= (apart >= attention_length - sinks) & (key >= sinks)
    return like.new_zeros(queries, keys).masked_fill_(blocked, float("-inf"))


def blocked_columns(
    queries: int, keys: int, attention_length: int | None, width: int | None = None
) -> list[slice]:
    """Column ranges of `mask_TS` that hold any -inf.

    They are the keys beyond the window of the last query, and the keys after the first query. The
    second range starts one column early, since a width of T is faster.

    Args:
        width: length of the rows, where these are padded behind the keys; the padding is masked.
    """
    columns, width = [], width or keys
    if attention_length is not None and attention_length < keys:
        columns.append(slice(0, keys - attention_length))
    if queries > 1 or width > keys:
        columns.append(slice(keys - queries, width))
    return columns


def mask_reset(mask_TS: Tensor, valid_len_B: Tensor | None) -> Tensor:
    """The mask after memory resets, which hide a stream's oldest keys: [B, T, S], or as it was.

    Args:
        valid_len_B: how many keys before the first query each stream may see; None for all.
    """
    if valid_len_B is None:
        return mask_TS
    queries, keys = mask_TS.shape
    oldest_B = keys - queries - valid_len_B
    reset_BS = torch.arange(keys, device=mask_TS.device) < oldest_B[:, None]
    return mask_TS.masked_fill(reset_BS[:, None], float("-inf"))


def pad_distances(table: Tensor) -> Tensor:
    """Puts a row of zeros before a table [S, ...] of distances, as `relative_shift` needs it."""
    return pad(table, (0, 0) * (table.dim() - 1) + (1, 0))


def relative_shift(by_distance: Tensor, keys: int | None = None) -> Tensor:
    """From scores by distance to scores by key, as a view (Dai et al. 2019, Appendix B).

    Row i of the input holds one unused column and then query i's scores at the distances
    S-1, ..., 0. Query i meets key j at distance S - T + i - j, so its row must move left by
    T - 1 - i. Read flat, the element wanted at (i, j) lies at T + i * S + j, so skipping T
    elements and reading rows of S does it. For T = S = 3, distances 2, 1, 0 and unused x::

        x 2 1 0      0 x 2        row 0: key 0 at distance 0, keys 1 and 2 are the future
        x 2 1 0  ->  1 0 x
        x 2 1 0      2 1 0

    Args:
        by_distance: [..., T, S + 1], contiguous; rows may be longer, by what is meaningless.
        keys: S, where rows are longer.

    Returns:
        [..., T, S]; entries in the future are meaningless and must be masked.
    """
    rows = unshifted_rows(by_distance)
    return rows if keys is None else rows[..., :keys]


def unshifted_rows(by_distance: Tensor) -> Tensor:
    """All that `relative_shift` reads rows of, [..., T, P - 1] of [..., T, P]: S and a gap."""
    queries, length = by_distance.shape[-2:]
    return by_distance.flatten(-2)[..., queries:].unflatten(-1, (queries, length - 1))


@dataclass(frozen=True, kw_only=True)
class Mask:
    """-inf where a query must not see a key, else 0; made when it is needed.

    Attributes:
        queries, keys: T and S.
        attention_length: number of keys a query sees, itself included; None for all.
        valid_len_B: how many keys before the first query each stream may see; None for all.
        like: a tensor with the device and dtype wanted.
        sinks: the first keys, which every query sees.
    """

    queries: int
    keys: int
    attention_length: int | None
    valid_len_B: Tensor | None
    like: Tensor
    sinks: int = 0

    @property
    def is_causal(self) -> bool:
        """Whether it hides the future and nothing else, in a segment without memory."""
        alike = self.attention_length is None and self.valid_len_B is None
        return alike and self.queries == self.keys

    @property
    def window(self) -> int | None:
        """The newest keys that each query may see; None for all, as where first keys are sinks."""
        return None if self.sinks else self.attention_length

    @property
    def columns(self) -> list[slice]:
        """The keys that are hidden from some query, as far as streams are alike."""
        window = self.attention_length
        window = None if window is None else window - self.sinks
        return blocked_columns(self.queries, self.keys, window)

    def alone(self) -> Tensor | None:
        """[1, 1, T, S], or [1, B, T, S] where streams differ; None if it hides nothing."""
        if self.valid_len_B is None and not self.columns:
            return None
        added = mask_TS(self.queries, self.keys, self.attention_length, self.like, self.sinks)
        added = mask_reset(added, self.valid_len_B)
        return added.view(1, -1, self.queries, self.keys)

    def onto(self, scores_HBTS: Tensor) -> Tensor:
        """`scores` with it added: in place, in the columns concerned, where streams are alike."""
        added = self.alone()
        if added is None:
            return scores_HBTS
        if self.valid_len_B is not None:
            return scores_HBTS + added
        for columns in self.columns:
            scores_HBTS[..., columns].add_(added[..., columns])
        return scores_HBTS
