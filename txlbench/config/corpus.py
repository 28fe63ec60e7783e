"""The `corpus` section: which text, from where, at which level."""

from typing import Self

from pydantic import Field, model_validator

from txlbench.config.catalogue import CORPORA, UNITS, Level
from txlbench.config.section import Section
from txlbench.registry import suggestion


class CorpusConfig(Section):
    """A corpus of the catalogue by name, or any text by `path`.

    Attributes:
        name: the catalogue's name, or any name for one's own text.
        path: the text, relative to the working directory; alone it is split 90/5/5.
        valid, test: further files; both or neither.
        level: what a token is; a corpus of the catalogue knows its own.
    """

    UNHASHED = frozenset({"path", "valid", "test"})

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    path: str | None = None
    valid: str | None = None
    test: str | None = None
    level: Level | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.path is None:
            if self.valid or self.test:
                raise ValueError("valid and test need a path to the training text")
            if self.name not in CORPORA:
                remedy = suggestion(self.name, CORPORA)
                raise ValueError(f"unknown corpus '{self.name}'; {remedy}; or give its path")
            known = CORPORA[self.name].level
            if self.level not in (None, known):
                raise ValueError(f"level of {self.name} is {known}, not {self.level}")
        elif self.name in CORPORA:
            raise ValueError(f"name '{self.name}' belongs to the catalogue; choose another name")
        elif (self.valid is None) != (self.test is None):
            raise ValueError("give both valid and test, or neither (then the text is split 90/5/5)")
        return self

    @property
    def resolved_level(self) -> Level:
        """The level given, else the catalogue's, else bytes."""
        return self.level or (CORPORA[self.name].level if self.path is None else "byte")

    @property
    def unit(self) -> str:
        """The unit in which losses are shown: bpc or ppl."""
        return UNITS[self.resolved_level]

    @property
    def split_rule(self) -> str:
        """How the splits come about: part of a run's identity."""
        if self.path is None:
            return CORPORA[self.name].split_rule
        return "90/5/5" if self.valid is None else "files"
