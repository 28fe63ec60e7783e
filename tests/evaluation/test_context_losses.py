"""Context losses equal what each target's own tokens give alone, and no window is read twice.

Windows: every pair of context and position once, from as few windows as can be.

Partial losses: what was appended is there after a kill, and only one process appends.
"""

import numpy as np
import pytest
import torch

from tests.models.subjects import ATTENDING, NOT_RELATIVE, RELATIVE, SUBJECTS, VOCABULARY
from txlbench.config.base import AttentionSpan
from txlbench.errors import UserError
from txlbench.evaluation import context_reading
from txlbench.evaluation.context_losses import PartialLosses, Windows, context_losses
from txlbench.evaluation.context_reading import WindowReader

CPU = torch.device("cpu")
CONTEXTS = np.array([3, 5, 11])
POSITIONS = 11 + 2 * np.arange(8)
LONGEST = 11
SPAN = AttentionSpan(mem_len=LONGEST)
every_model = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: s.name)


@pytest.fixture(autouse=True)
def one_thread():
    """So that no part is begun before the one before it is kept."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def text(length=26):  # the last position is the last token
    return np.random.default_rng(3).integers(VOCABULARY, size=length).astype(np.uint8)


def ignore(done, total):
    pass


def losses(model, path, progress=ignore, *, span=SPAN, segment=LONGEST, longest=LONGEST, **options):
    columns = np.unique(np.minimum(CONTEXTS, longest)) - 1
    reader = WindowReader(model, span, segment, columns)
    with PartialLosses(path / "x.part") as kept:
        return context_losses(
            reader,
            text(),
            CONTEXTS,
            POSITIONS,
            kept,
            longest=longest,
            device=CPU,
            progress=progress,
            **{"at_once": 4, **options},
        )


def alone(model, ids, context, position, span):
    """The loss of a target after its tokens, fed in one segment to a model without memory."""
    window = torch.as_tensor(ids[position - context : position + 1].astype("int64"))[None]
    with torch.no_grad():
        hidden, _ = model(window[:, :-1], model.initial_state(1, span))
        return model.losses(hidden, window[:, 1:])[0, -1].item()


def by_hand(model, contexts=CONTEXTS, span=AttentionSpan(mem_len=0)):  # noqa: B008
    ids = text()
    return np.array([[alone(model, ids, c, t, span) for t in POSITIONS] for c in contexts])


@every_model
@pytest.mark.parametrize("at_once", [1, 4, 100])
def test_each_loss_is_that_of_the_tokens_alone(subject, at_once, tmp_path):
    model = subject.build()
    found = losses(model, tmp_path, at_once=at_once)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, by_hand(model), rtol=0, atol=1e-5)


@pytest.mark.parametrize("subject", RELATIVE, ids=lambda s: s.name)
@pytest.mark.parametrize("segment", [1, 4, 10])
def test_where_windows_are_cut_changes_nothing(subject, segment, tmp_path):
    model = subject.build()
    found = losses(model, tmp_path, segment=segment)
    np.testing.assert_allclose(found, by_hand(model), rtol=0, atol=1e-5)


@pytest.mark.parametrize("subject", ATTENDING, ids=lambda s: s.name)
@pytest.mark.parametrize("segment", [4, LONGEST])
def test_with_an_attention_length_every_query_sees_so_many_keys(subject, segment, tmp_path):
    span = AttentionSpan(mem_len=3, same_length=True)
    model = subject.build()
    if not subject.relative:
        segment = LONGEST
    found = losses(model, tmp_path, span=span, segment=segment)
    np.testing.assert_allclose(found, by_hand(model, span=span), rtol=0, atol=1e-5)
    assert np.abs(found - by_hand(model)).max() > 1e-3


@pytest.mark.parametrize("subject", NOT_RELATIVE, ids=lambda s: s.name)
def test_contexts_beyond_the_longest_are_the_longest(subject, tmp_path):
    model = subject.build()
    found = losses(model, tmp_path, span=AttentionSpan(mem_len=6), segment=6, longest=6)
    np.testing.assert_allclose(found, by_hand(model, contexts=[3, 5, 6]), rtol=0, atol=1e-5)


def test_logits_are_computed_a_few_at_a_time(monkeypatch, tmp_path):
    model, sizes = SUBJECTS[0].build(), []
    plain = model.losses
    monkeypatch.setattr(context_reading, "TARGETS", 3)
    monkeypatch.setattr(model, "losses", lambda h, t: (sizes.append(t.numel()), plain(h, t))[1])
    found = losses(model, tmp_path)
    assert max(sizes) == 3
    windows = POSITIONS.size + (LONGEST - 3) // 2
    assert sum(sizes) <= CONTEXTS.size * windows
    monkeypatch.undo()
    np.testing.assert_allclose(found, by_hand(model), rtol=0, atol=1e-5)


class Counting:
    """Counts the windows that a model reads."""

    def __init__(self, model, monkeypatch):
        self.rows, plain = 0, model.initial_state

        def initial_state(rows, span):
            self.rows += rows
            return plain(rows, span)

        monkeypatch.setattr(model, "initial_state", initial_state)


def test_on_several_threads_the_losses_are_the_same(tmp_path):
    model = SUBJECTS[0].build()
    expected = losses(model, tmp_path / "one")
    torch.set_num_threads(3)
    assert np.array_equal(losses(model, tmp_path / "three"), expected)


def test_windows_are_shared_by_contexts(tmp_path, monkeypatch):
    model, told = SUBJECTS[0].build(), []
    read = Counting(model, monkeypatch)
    losses(model, tmp_path, lambda done, total: told.append((done, total)))
    expected = POSITIONS.size + (11 - 3) // 2
    assert read.rows == expected
    assert told == [(done, expected) for done in (0, 4, 8, 12)]


@pytest.mark.parametrize("torn", [0, 5])
@pytest.mark.parametrize("stop", [4, 8, 12])
def test_interrupted_work_continues_and_gives_the_same_bits(stop, torn, tmp_path, monkeypatch):
    model = SUBJECTS[0].build()
    expected = losses(model, tmp_path / "straight")

    def interrupt(done, total):
        if done == stop:
            raise KeyboardInterrupt

    read = Counting(model, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        losses(model, tmp_path, interrupt)
    with (tmp_path / "x.part").open("ab") as file:
        file.write(b"\x7f" * torn)
    found = losses(model, tmp_path)
    assert np.array_equal(found, expected)
    assert read.rows == 12


def test_losses_that_make_no_sense_end_the_reading_after_the_first_windows(tmp_path, monkeypatch):
    model = SUBJECTS[0].build()
    read = Counting(model, monkeypatch)
    expected = losses(model, tmp_path / "straight")
    whole, read.rows = read.rows, 0

    def refuse(mean):
        assert expected.min() < mean < expected.max()
        raise UserError("wrong vocabulary?")

    with pytest.raises(UserError, match="wrong vocabulary"):
        losses(model, tmp_path, at_once=4, check=refuse)
    assert read.rows == 4 < whole


GRIDS = [((4, 8, 12), 4, 9), ((4, 8, 12), 2, 9), ((1, 2), 1, 5), ((5,), 3, 4), ((16, 256), 240, 3)]


def windows_of(contexts, step, count):
    positions = contexts[-1] + step * np.arange(count)
    return Windows.of(np.array(contexts), positions), positions


@pytest.mark.parametrize(("contexts", "step", "count"), GRIDS, ids=str)
def test_windows_are_as_few_as_positions_and_differences_of_contexts(contexts, step, count):
    windows, _ = windows_of(contexts, step, count)
    most = count + (contexts[-1] - contexts[0]) // step
    assert len(windows) <= most
    dense = len(contexts) == 1 or contexts[1] - contexts[0] <= step * count
    assert (len(windows) == most) == dense


@pytest.mark.parametrize(("contexts", "step", "count"), GRIDS, ids=str)
def test_every_loss_comes_from_the_window_that_ends_at_its_position(contexts, step, count):
    windows, positions = windows_of(contexts, step, count)
    found = {}
    for w, start in enumerate(windows.starts):
        for e in range(windows.offsets[w], windows.offsets[w + 1]):
            found[int(windows.order[e])] = (int(windows.contexts[e]), int(start))
    assert len(found) == windows.offsets[-1] == len(contexts) * count
    for place, (context, start) in found.items():
        row, column = divmod(place, count)
        assert context == contexts[row]
        assert start + context == positions[column]


def test_losses_complete_windows_only_when_all_of_a_windows_are_there():
    windows, _ = windows_of((4, 8, 12), 4, 9)
    for losses in range(int(windows.offsets[-1]) + 1):
        whole = windows.whole(losses)
        assert windows.offsets[whole] <= losses
        assert whole == len(windows) or losses < windows.offsets[whole + 1]


def test_rows_say_which_window_of_a_part_each_loss_is_of():
    windows, _ = windows_of((4, 8, 12), 4, 9)
    part = windows.losses_of(2, 5)
    expected = np.searchsorted(windows.offsets, np.arange(part.start, part.stop), "right") - 1 - 2
    assert windows.rows_of(2, 5).tolist() == expected.tolist()


VALUES = np.array([0.5, 2.25, 3.0], dtype=np.float32)


def test_a_later_process_finds_what_an_earlier_one_appended(tmp_path):
    path = tmp_path / "losses" / "x.part"
    with PartialLosses(path) as partial:
        partial.append(VALUES)
        partial.append(VALUES[:1])
    with PartialLosses(path) as partial:
        assert len(partial) == 4
        partial.truncate(2)
        partial.append(VALUES[2:])
        assert partial.read().tolist() == [0.5, 2.25, 3.0]


def test_a_number_that_was_cut_does_not_count(tmp_path):
    path = tmp_path / "x.part"
    path.write_bytes(VALUES.tobytes()[:-1])
    with PartialLosses(path) as partial:
        assert len(partial) == 2


def test_a_second_process_is_refused_while_the_first_is_at_it(tmp_path):
    path = tmp_path / "x.part"
    with PartialLosses(path), pytest.raises(UserError, match=r"x\.part: another process"):
        PartialLosses(path).__enter__()
    with PartialLosses(path) as partial:
        assert len(partial) == 0


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"x\.part: (File exists|Not a directory); make room"):
        PartialLosses(tmp_path / "file" / "x.part").__enter__()
