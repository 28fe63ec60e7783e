"""Attention of a segment over cached keys on a CPU: scores in place, some streams at a time.

PyTorch's own kernel reads what positions add to scores from main memory, where all [H, B, T, S]
of it was written before. Here the scores of a head and a few streams stay in the processor's cache
from the first product to the last, in one buffer and without a copy: products by distance are
written to it, its shifted rows (`mask.relative_shift`) are a matrix like any other to which
products by key are added, and each stream's are contiguous, as softmax wants them.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from txlbench.models.kernels.tiles import hidden_columns
from txlbench.models.mask import Mask, relative_shift
from txlbench.models.positions.encoding import ScoreTerms
from txlbench.models.positions.tables import DistanceTable

SCORE_BYTES = 2**20
"""Bytes of scores held at once by each thread: five streams of 64 tokens beside 640 keys. Two and
ten were measured to be as fast, one slower. Fewer bytes in all are left to PyTorch's kernel."""

WHOLE = (torch.float32, torch.float64)
"""Number formats whose scores may be rounded to it between products."""


def takes_segment(terms: ScoreTerms, query_HBTK: Tensor, mask: Mask) -> bool:
    """Whether `segment_attention` computes this, and sooner than PyTorch's own kernel."""
    table, exact = terms.table, query_HBTK.dtype in WHOLE
    if not exact or query_HBTK.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    if not isinstance(table, DistanceTable) or table.rows_HKS is None or not table.scaled:
        return False
    alike = terms.decay_HBS is None and mask.valid_len_B is None
    scores = query_HBTK[..., 0].numel() * mask.keys * query_HBTK.element_size()
    return alike and mask.queries > 1 and scores > SCORE_BYTES


def segment_attention(
    terms: ScoreTerms, query_HBTK: Tensor, key_HBSK: Tensor, value_HBSK: Tensor, mask: Mask
) -> Tensor:
    """The mixed values [H, B, T, K] of placed queries; see `takes_segment`."""
    table, (heads, batch, queries, size) = terms.table, query_HBTK.shape
    assert isinstance(table, DistanceTable), "takes_segment says so"
    content = terms.content_query(query_HBTK) * size**-0.5
    position = terms.position_query(query_HBTK)
    stream_bytes = queries * mask.keys * content.element_size()
    hidden = hidden_columns(
        (queries, mask.keys), mask.keys, mask.attention_length, content.dtype, mask.sinks
    )
    mixed_BTHK = content.new_empty(batch, queries, heads, size)
    buffer = content.new_empty(0)
    for head, streams in _parts(heads, batch, stream_bytes):
        scores = _by_distance(table, head, position[head, streams].flatten(0, 1), buffer)
        scores = relative_shift(scores.unflatten(0, (-1, queries)))
        for columns, added in hidden:
            scores[..., columns] += added
        scores.baddbmm_(content[head, streams], key_HBSK[head, streams].mT)
        for of_stream in scores:
            torch.softmax(of_stream, -1, out=of_stream)
        torch.bmm(scores, value_HBSK[head, streams], out=mixed_BTHK[streams, :, head])
    return mixed_BTHK.permute(2, 0, 1, 3)


def _parts(heads: int, batch: int, stream_bytes: int) -> Iterator[tuple[int, slice]]:
    """Each head with some streams, whose scores fit the caches of the threads."""
    size = max(1, SCORE_BYTES * torch.get_num_threads() // stream_bytes)
    for head in range(heads):
        for first in range(0, batch, size):
            yield head, slice(first, min(batch, first + size))


def _by_distance(table: DistanceTable, head: int, query_NK: Tensor, buffer: Tensor) -> Tensor:
    """The head's scores by distance [N, S + 1], in the memory of `buffer`, which grows to them."""
    rows_HKS, bias_HS = table.rows_HKS, table.bias_HS
    assert rows_HKS is not None
    rows_KS = rows_HKS[head]
    buffer.resize_(len(query_NK), rows_KS.shape[1])
    if bias_HS is None:
        return torch.mm(query_NK, rows_KS, out=buffer)
    return torch.addmm(bias_HS[head], query_NK, rows_KS, out=buffer)
