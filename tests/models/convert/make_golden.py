"""Makes the golden files of Hugging Face's Transformer-XL, or scores folders with it.

It runs in an environment of its own, which needs torch, transformers==4.35.2 and sacremoses, and
imports nothing of the package:

    python make_golden.py golden            writes a folder for each case below
    python make_golden.py --score DIR ...   writes DIR/losses.npz for each DIR

A folder holds a small model with random weights as `save_pretrained` leaves it, and `losses.npz`:
`tokens` [B, T + 1], `cuts`, the lengths of the segments, and the losses of every token with memory
that starts `empty`, and with the `zeros` that the class attends to on its own: float32 [B, T].
"""

import argparse
import shutil
import warnings
from pathlib import Path

import numpy as np
import torch
from transformers import TransfoXLConfig, TransfoXLLMHeadModel

SMALL = {
    **{"vocab_size": 50, "n_layer": 2, "d_model": 16, "d_embed": 16, "n_head": 2, "d_head": 7},
    **{"d_inner": 24, "clamp_len": -1, "same_length": False, "mem_len": 24, "untie_r": True},
}
LIMITED = {"mem_len": 40, "clamp_len": 30, "same_length": True}
CUT = {"cutoffs": [12, 30]}
CASES = {
    "plain": {"cutoffs": [], "div_val": 1, "untie_r": False},
    "one-table": {**CUT, "div_val": 1, "pre_lnorm": True},
    "narrow": {**CUT, "div_val": 1, "d_embed": 10, "untie_r": False},
    "shared": {**CUT, **LIMITED, "div_val": 2, "untie_r": False},
    "own": {**CUT, **LIMITED, "div_val": 2, "proj_share_all_but_first": False},
}
FORMATS = {"plain": {"safe_serialization": False}, "shared": {"max_shard_size": "8KB"}}
"""How a case is saved, where not as one safetensors file."""

CUTS = [16] * 9 + [7]
STREAMS = 2


def main() -> None:
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--score", action="store_true")
    arguments = parser.parse_args()
    if arguments.score:
        for folder in arguments.folders:
            score(folder)
        return
    for seed, (name, settings) in enumerate(CASES.items()):
        folder = arguments.folders[0] / name
        shutil.rmtree(folder, ignore_errors=True)
        model = random_model({**SMALL, **settings}, seed)
        model.save_pretrained(folder, **FORMATS.get(name, {"safe_serialization": True}))
        (folder / "generation_config.json").unlink(missing_ok=True)
        score(folder)


def random_model(settings: dict, seed: int) -> TransfoXLLMHeadModel:
    """A model whose weights are large enough to matter: fresh ones leave attention flat."""
    torch.manual_seed(seed)
    model = TransfoXLLMHeadModel(TransfoXLConfig(**settings))
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, float(name.endswith("layer_norm.weight")), 0.3)
    return model


@torch.no_grad()
def score(folder: Path) -> None:
    """Writes the folder's `losses.npz`."""
    model = TransfoXLLMHeadModel.from_pretrained(folder).eval()
    model.crit.keep_order = True
    generator = torch.Generator().manual_seed(7)
    shape = (STREAMS, sum(CUTS) + 1)
    tokens = torch.randint(model.config.vocab_size, shape, generator=generator)
    nothing = torch.zeros(0, STREAMS, model.config.d_model)
    np.savez(
        folder / "losses.npz",
        tokens=tokens.numpy().astype(np.uint8),
        cuts=np.array(CUTS),
        empty=losses(model, tokens, [nothing] * model.config.n_layer),
        zeros=losses(model, tokens, None),
    )


def losses(model: TransfoXLLMHeadModel, tokens: torch.Tensor, mems: list | None) -> np.ndarray:
    """Losses of every token but the first, segment by segment, with memory carried."""
    found, start = [], 0
    for length in CUTS:
        inputs = tokens[:, start : start + length]
        hidden, mems = model.transformer(inputs, mems=mems, return_dict=False)[:2]
        # The class shifts targets itself and drops the last one: a state too many makes up.
        padded = torch.cat([hidden, hidden[:, :1]], dim=1)
        targets = tokens[:, start : start + length + 1]
        found.append(model.crit(padded, targets).view(STREAMS, length))
        start += length
    return torch.cat(found, dim=1).numpy()


if __name__ == "__main__":
    main()
