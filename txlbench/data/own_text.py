"""Any text of the user's: one file that is split 90/5/5, or a file for each split."""

from collections.abc import Mapping
from pathlib import Path

from txlbench.config.corpus import CorpusConfig
from txlbench.config.section import Split
from txlbench.data.checksums import combined_checksum
from txlbench.data.source import Source
from txlbench.data.splits import SPLITS, cut
from txlbench.data.text import Text


class OwnText(Source):
    """The files that `config` names, read where they are."""

    def __init__(self, config: CorpusConfig) -> None:
        given = (config.path, config.valid, config.test)
        self.name = config.name
        self.level = config.resolved_level
        self.split_rule = config.split_rule
        self.paths = [Path(path).expanduser() for path in given if path is not None]

    def checksum(self) -> str:
        return combined_checksum(self.paths)

    def texts(self, scratch: Path) -> Mapping[Split, Text]:  # noqa: ARG002
        if len(self.paths) == 1:
            return cut(self.paths[0], self.level)
        return dict(zip(SPLITS, map(Text, self.paths), strict=True))
