"""The last T queries line up with the last T keys: distances, masks and the shift agree."""

import pytest
import torch

from txlbench.models.mask import distances_S, mask_TS, pad_distances, relative_shift

SHAPES = [(1, 1), (1, 5), (3, 3), (3, 5), (5, 5)]


@pytest.mark.parametrize(("queries", "keys"), SHAPES)
def test_the_shift_puts_each_distance_at_its_key(queries: int, keys: int):
    by_distance = pad_distances(distances_S(keys, None)).expand(2, queries, keys + 1).contiguous()
    by_key = relative_shift(by_distance)
    assert by_key.shape == (2, queries, keys)
    for query in range(queries):
        for key in range(keys - queries + query + 1):
            assert (by_key[:, query, key] == keys - queries + query - key).all()


def test_the_shift_is_a_view():
    by_distance = torch.zeros(3, 6)
    relative_shift(by_distance)[0, 0] = 1
    assert by_distance.sum() == 1


@pytest.mark.parametrize(("queries", "keys"), SHAPES)
@pytest.mark.parametrize("attention_length", [None, 1, 2, 9])
def test_a_query_sees_itself_and_attention_length_minus_one_before(
    queries: int, keys: int, attention_length: int | None
):
    mask = mask_TS(queries, keys, attention_length, like=torch.empty(0, dtype=torch.float64))
    assert mask.dtype == torch.float64
    assert set(mask.flatten().tolist()) <= {0.0, float("-inf")}
    visible = mask == 0
    for query in range(queries):
        own = keys - queries + query
        oldest = 0 if attention_length is None else max(0, own - attention_length + 1)
        assert visible[query].nonzero().flatten().tolist() == list(range(oldest, own + 1))


def test_distances_beyond_clamp_len_count_as_clamp_len():
    assert distances_S(5, 2).tolist() == [2, 2, 2, 1, 0]
    assert distances_S(3, 0).tolist() == [0, 0, 0]
    assert distances_S(3, None).tolist() == [2, 1, 0]


def test_padding_adds_a_row_of_zeros_before_the_distances():
    assert pad_distances(torch.ones(2, 3)).tolist() == [[0, 0, 0], [1, 1, 1], [1, 1, 1]]
    assert pad_distances(torch.ones(2)).tolist() == [0, 1, 1]
