"""Writes TensorFlow checkpoints that hold the weights of the folders of `make_golden.py`.

It runs in an environment of its own, which needs tensorflow-cpu, torch, transformers==4.35.2 and
sacremoses, and imports nothing of the package:

    python make_tf_golden.py golden         writes golden/tf/CASE.index and .data-00000-of-00001

Variables have the names and shapes of the released TensorFlow code; beside them stand a step
counter and an optimiser's slot, as in the published files. Where Hugging Face's own reader knows
the case, it must find the weights again.
"""

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf
from transformers import TransfoXLLMHeadModel
from transformers.models.transfo_xl.modeling_transfo_xl import load_tf_weights_in_transfo_xl

CASES = ["plain", "narrow", "shared", "own"]
UNPROJECTED = "own"
"""Written once more as with `proj_same_dim` off: without projections of the head cluster."""

LAYER = {
    "rel_attn/qkv/kernel": "dec_attn.qkv_net.weight",
    "rel_attn/r/kernel": "dec_attn.r_net.weight",
    "rel_attn/o/kernel": "dec_attn.o_net.weight",
    "rel_attn/LayerNorm/gamma": "dec_attn.layer_norm.weight",
    "rel_attn/LayerNorm/beta": "dec_attn.layer_norm.bias",
    "ff/layer_1/kernel": "pos_ff.CoreNet.0.weight",
    "ff/layer_1/bias": "pos_ff.CoreNet.0.bias",
    "ff/layer_2/kernel": "pos_ff.CoreNet.3.weight",
    "ff/layer_2/bias": "pos_ff.CoreNet.3.bias",
    "ff/LayerNorm/gamma": "pos_ff.layer_norm.weight",
    "ff/LayerNorm/beta": "pos_ff.layer_norm.bias",
}


def main() -> None:
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("golden", type=Path)
    golden = parser.parse_args().golden
    (golden / "tf").mkdir(exist_ok=True)
    for case in CASES:
        model = TransfoXLLMHeadModel.from_pretrained(golden / case)
        variables = dict(variables_of(model))
        write(golden / "tf" / case, variables)
        if model.config.div_val > 1 and model.config.untie_r:
            check(model, golden / "tf" / case)
        if case == UNPROJECTED:
            first = ("adaptive_embed/cutoff_0/proj_W", "adaptive_softmax/cutoff_0/proj")
            kept = {name: value for name, value in variables.items() if name not in first}
            write(golden / "tf" / "unprojected", kept)


def variables_of(model: TransfoXLLMHeadModel) -> Iterator[tuple[str, np.ndarray]]:
    """The released code's variables, without their common scope."""
    config, state = model.config, model.state_dict()
    arrays = {name.removeprefix("transformer."): value.numpy() for name, value in state.items()}
    for bias in ("r_w_bias", "r_r_bias"):
        layers = [arrays[f"layers.{layer}.dec_attn.{bias}"] for layer in range(config.n_layer)]
        yield bias, np.stack(layers) if config.untie_r else layers[0]
    for layer in range(config.n_layer):
        for theirs, name in LAYER.items():
            value = arrays[f"layers.{layer}.{name}"]
            yield f"layer_{layer}/{theirs}", value.T if "kernel" in theirs else value
    yield from embedding(config, arrays)
    yield from softmax(config, arrays)


def embedding(config, arrays: dict[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    for table in range(len(config.cutoffs) + 1 if config.div_val > 1 else 1):
        place = f"adaptive_embed/cutoff_{table}" if config.div_val > 1 else "adaptive_embed"
        yield f"{place}/lookup_table", arrays[f"word_emb.emb_layers.{table}.weight"]
        if f"word_emb.emb_projs.{table}" in arrays:
            yield f"{place}/proj_W", arrays[f"word_emb.emb_projs.{table}"].T


def softmax(config, arrays: dict[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    if not config.cutoffs:
        yield "adaptive_softmax/bias", arrays["crit.out_layers.0.bias"]
        return
    ends = [0, *config.cutoffs, config.vocab_size]
    for cluster, tied in enumerate(config.tie_projs):
        place = f"adaptive_softmax/cutoff_{cluster}"
        if config.div_val > 1:
            yield f"{place}/b", arrays[f"crit.out_layers.{cluster}.bias"]
        else:
            yield f"{place}/b", arrays["crit.out_layers.0.bias"][ends[cluster] : ends[cluster + 1]]
        if not tied:
            yield f"{place}/proj", arrays[f"crit.out_projs.{cluster}"].T
    yield "adaptive_softmax/cutoff_0/cluster_W", arrays["crit.cluster_weight"]
    yield "adaptive_softmax/cutoff_0/cluster_b", arrays["crit.cluster_bias"]


def write(prefix: Path, variables: dict[str, np.ndarray]) -> None:
    graph = tf.Graph()
    with graph.as_default(), tf.compat.v1.Session(graph=graph) as session:
        for name, value in variables.items():
            tf.compat.v1.get_variable(
                f"transformer/{name}", initializer=np.ascontiguousarray(value)
            )
        slot = np.ones_like(variables["r_w_bias"])
        tf.compat.v1.get_variable("transformer/r_w_bias/Adam", initializer=slot)
        tf.compat.v1.get_variable("global_step", initializer=np.int64(400000))
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver()
        saver.save(session, str(prefix), write_meta_graph=False, write_state=False)


def check(model: TransfoXLLMHeadModel, prefix: Path) -> None:
    """Hugging Face's reader finds the weights that were written."""
    again = load_tf_weights_in_transfo_xl(
        TransfoXLLMHeadModel(model.config), model.config, str(prefix)
    )
    found = again.state_dict()
    wrong = [name for name, value in model.state_dict().items() if not value.equal(found[name])]
    assert not wrong, f"{prefix}: {wrong} differ"


if __name__ == "__main__":
    main()
