"""Preparing a corpus needs memory for its vocabulary, not for its text."""

import itertools
import tracemalloc

from txlbench.config.corpus import CorpusConfig
from txlbench.data.preparation import prepare

SENTENCE = " ".join(f"word{n}" for n in range(40)) + "\n"


def peak(tmp_path, copies):
    """Bytes allocated at most while a text of so many sentences is prepared."""
    path, small = tmp_path / f"{copies}.txt", tmp_path / "small.txt"
    with path.open("w") as file:
        file.writelines(itertools.repeat(SENTENCE, copies))
    small.write_text(SENTENCE)
    config = CorpusConfig(
        name="mine", path=str(path), valid=str(small), test=str(small), level="word"
    )
    tracemalloc.start()
    try:
        assert prepare(config).tokens["train"] == copies * 41
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_five_times_the_text_needs_no_more_memory(tmp_path):
    peak(tmp_path, 2)  # What is imported late counts for no text.
    once = peak(tmp_path, 2_000)
    assert peak(tmp_path, 10_000) < 1.05 * once
