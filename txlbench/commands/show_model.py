"""`models show`: what a model is and what can be asked of it, without reading its weights."""

from collections.abc import Iterator
from pathlib import Path

from txlbench.commands.model_ref import ModelRef, resolve
from txlbench.commands.shipped_models import SHIPPED
from txlbench.config.counting import parameters

Shown = int | str | None


def describe(reference: str, checkpoint: str = "best") -> dict[str, Shown]:
    """Facts on the model that `reference` names, in the order to show; None where unknown.

    Raises:
        UserError: if there is no such model.
    """
    ref = resolve(reference, checkpoint)
    facts = _pretrained(ref) if ref.pretrained is not None else _own(ref)
    return {"model": reference, **facts, "asks": "; ".join(_asks(ref))}


def _pretrained(ref: ModelRef) -> dict[str, Shown]:
    source = ref.pretrained
    assert source is not None
    tokenizer = source.tokenizer
    begins = "no BOS" if tokenizer.bos is None else f"BOS {tokenizer.bos} before every window"
    return {
        "architecture": source.architecture,
        "layers": source.depth,
        "parameters": source.parameters,
        "vocabulary": source.vocabulary_size,
        "positions": source.positions or "without limit",
        "tokenizer": f"{len(tokenizer):,} tokens, {begins}",
        "licence": _licence(ref, source.folder),
        "files": str(source.files[0] if source.gguf else source.folder),
    }


def _own(ref: ModelRef) -> dict[str, Shown]:
    config, known = ref.config, ref.capabilities
    assert config is not None
    level = known.level or "symbol"
    return {
        "architecture": config.model.name,
        "layers": config.model.n_layer,
        "parameters": parameters(config.model, known.vocabulary_size),
        "vocabulary": known.vocabulary_size,
        "positions": known.longest_context or "without limit",
        "tokenizer": f"{known.vocabulary_size:,} {level}s" if known.tokens else "unknown",
        "licence": None,
        "files": str(ref.run.path) if ref.run else None,
    }


def _licence(ref: ModelRef, folder: Path) -> str | None:
    """The licence in the catalogue, or in the head of the folder's model card."""
    if ref.reference in SHIPPED:
        return SHIPPED[ref.reference].licence
    card = folder / "README.md"
    if not card.is_file():
        return None
    lines = card.read_text(encoding="utf-8", errors="replace").splitlines()[:40]
    found = (line.partition(":")[2].strip() for line in lines if line.startswith("license:"))
    return next(found, None)


def _asks(ref: ModelRef) -> Iterator[str]:
    """What can be asked of the model, an item each."""
    known = ref.capabilities
    yield "eval, recl, generate" if ref.pretrained or known.tokens else "eval and recl on ids"
    limit = known.positions or known.longest_context
    yield "contexts without limit" if limit is None else f"contexts up to {limit:,}"
    if ref.pretrained is None and known.attends:
        yield "attention lengths"
    if ref.pretrained is not None and ref.pretrained.takes_attention_length:
        yield "attention lengths and sinks"
    if known.reads_in_segments:
        yield "reading in segments with memory"
    if ref.pretrained is not None:
        yield "fp32 and bf16"
