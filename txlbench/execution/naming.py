"""What models are called where they stand side by side: the shortest suffix that tells them."""

from collections.abc import Sequence


def shortest_suffixes(names: Sequence[str]) -> list[str]:
    """For each of `names` its last parts between slashes, as few as no other name ends in."""
    split = [name.strip("/").split("/") for name in names]
    return ["/".join(_suffix(parts, split)) for parts in split]


def _suffix(parts: list[str], all_parts: Sequence[list[str]]) -> list[str]:
    for length in range(1, len(parts)):
        suffix = parts[-length:]
        if sum(other[-length:] == suffix for other in all_parts) == 1:
            return suffix
    return parts
