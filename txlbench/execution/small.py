"""A configuration made small: the same kind, encoding and flags, in sizes that take no time."""

from typing import Any

from txlbench.config.run import RunConfig

TGT_LEN = 6
VOCABULARY = 17
STEPS = 6


def small(config: RunConfig) -> RunConfig:
    """`config` with a few dimensions, layers and tokens; what decides how it computes stays."""
    raw = config.model_dump(mode="json")
    model, train = _model(raw["model"]), _train(raw["train"], config)
    corpus = {"name": "synthetic", "path": "none"}
    return RunConfig.model_validate({"corpus": corpus, "model": model, "train": train, "seed": 1})


def _model(raw: dict[str, Any]) -> dict[str, Any]:
    """Widths follow from the clusters: the last of them keeps at least one dimension."""
    tails = min(len(raw["cutoffs"]), 4)
    d_embed = max(8, raw["div_val"] ** tails)
    ties = raw["tie_projs"][: tails + 1]
    projected = raw["d_embed"] != raw["d_model"]
    sizes = {
        "n_layer": min(raw["n_layer"], 2),
        "d_model": 2 * d_embed if projected else d_embed,
        "d_embed": d_embed,
        "n_head": min(raw["n_head"], 2),
        "d_head": 5,
        "d_inner": 12,
        "cutoffs": [4 + 3 * index for index in range(tails)],
        "tie_projs": ties,
        "clamp_len": None if raw["clamp_len"] is None else min(raw["clamp_len"], TGT_LEN),
        "max_distance": None,
    }
    return {**raw, **sizes}


def _train(raw: dict[str, Any], config: RunConfig) -> dict[str, Any]:
    train = config.train
    memory = max(1, min(2 * TGT_LEN, round(TGT_LEN * train.memory / train.tgt_len)))
    sizes = {
        "tgt_len": TGT_LEN,
        "mem_len": memory if train.recurrence else 0,
        "batch_size": 4,
        "batch_chunk": min(train.batch_chunk, 2),
        "max_step": STEPS,
        "warmup_step": min(train.warmup_step, 2),
        "eval_interval": STEPS,
        "log_interval": 1,
        "lr": 1e-3,
        "precision": "fp32",
    }
    return {**raw, **sizes}
