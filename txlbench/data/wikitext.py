"""`wt103` and `wt2`: the WikiText corpora of Merity et al. 2017, word for word as published."""

from collections.abc import Mapping
from typing import ClassVar

from txlbench.config.catalogue import CORPORA
from txlbench.data.fetching import PublishedFile
from txlbench.data.published import Published
from txlbench.data.splits import SPLITS

ADDRESSES = (
    "https://wikitext.smerity.com",
    "https://s3.amazonaws.com/research.metamind.io/wikitext",  # Answers 403 nowadays.
)


def _archive(name: str, sha256: str) -> PublishedFile:
    return PublishedFile(name, tuple(f"{address}/{name}" for address in ADDRESSES), sha256)


class WikiText103(Published):
    """Case is kept, each line ends in `<eos>`, also a blank one; vocabulary of train."""

    name = "wt103"
    level = CORPORA[name].level
    split_rule = CORPORA[name].split_rule
    archive = _archive(
        "wikitext-103-v1.zip", "242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590"
    )
    members: ClassVar[Mapping[str, str]] = {
        split: f"wikitext-103/wiki.{split}.tokens" for split in SPLITS
    }


class WikiText2(Published):
    """As WikiText-103, but the official code counts the words of all three splits."""

    name = "wt2"
    level = CORPORA[name].level
    split_rule = CORPORA[name].split_rule
    counted = SPLITS
    archive = _archive(
        "wikitext-2-v1.zip", "92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c"
    )
    members: ClassVar[Mapping[str, str]] = {
        split: f"wikitext-2/wiki.{split}.tokens" for split in SPLITS
    }
