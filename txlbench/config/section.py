"""What all parts of a configuration have in common."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

Split = Literal["train", "valid", "test"]


class Section(BaseModel):
    """A frozen part of a configuration, strictly validated; unknown keys are refused.

    `UNHASHED` names the fields that do not change what is trained. `ADDED` maps a field that
    was added after runs had been published to the value that keeps the old behaviour: with that
    value it is left out of the identity, so published ids stay.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
    UNHASHED: ClassVar[frozenset[str]] = frozenset()
    ADDED: ClassVar[Mapping[str, Any]] = MappingProxyType({})
