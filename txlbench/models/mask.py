"""Which keys a segment's queries must not see, as something that is added to scores."""

from dataclasses import dataclass

from torch import Tensor

from txlbench.models.alignment import blocked_columns, hide_forgotten, mask_TS


@dataclass(frozen=True)
class Mask:
    """-inf where a query must not see a key, else 0; made when it is needed.

    Attributes:
        queries, keys: T and S.
        attention_length: number of keys a query sees, itself included; None for all.
        known_B: how many keys before the first query each stream still knows; None for all.
        like: a tensor with the device and dtype wanted.
    """

    queries: int
    keys: int
    attention_length: int | None
    known_B: Tensor | None
    like: Tensor

    @property
    def is_causal(self) -> bool:
        """Whether it hides the future and nothing else, in a segment without memory."""
        return self.queries == self.keys and self.attention_length is None and self.known_B is None

    @property
    def columns(self) -> list[slice]:
        """The keys that are hidden from some query, as far as streams are alike."""
        return blocked_columns(self.queries, self.keys, self.attention_length)

    def alone(self) -> Tensor | None:
        """[1, 1, T, S], or [1, B, T, S] where streams differ; None if it hides nothing."""
        if self.known_B is None and not self.columns:
            return None
        added = mask_TS(self.queries, self.keys, self.attention_length, self.like)
        added = hide_forgotten(added, self.known_B)
        return added.view(1, -1, self.queries, self.keys)

    def onto(self, scores_HBTS: Tensor) -> Tensor:
        """`scores` with it added: in place, in the columns concerned, where streams are alike."""
        added = self.alone()
        if added is None:
            return scores_HBTS
        if self.known_B is not None:
            return scores_HBTS + added
        for columns in self.columns:
            scores_HBTS[..., columns] += added[..., columns]
        return scores_HBTS
