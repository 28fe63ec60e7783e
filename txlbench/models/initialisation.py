"""Initial weights, as in the official PyTorch code."""

from torch import nn

from txlbench.config.schema import ModelConfig


def initialise(model: nn.Module, config: ModelConfig) -> None:
    """Draws every weight: N(0, init_std), with these exceptions.

    Projections of embedding and softmax N(0, proj_init_std); layer-norm weights N(1, init_std);
    biases of linear maps, norms, softmax, clusters and distances 0.
    """
    norms = {
        f"{name}.weight" for name, part in model.named_modules() if isinstance(part, nn.LayerNorm)
    }
    for name, parameter in model.named_parameters():
        leaf = name.rsplit(".", 1)[-1]
        if leaf in ("bias", "cluster_bias", "distance_bias"):
            nn.init.zeros_(parameter)
        elif name in norms:
            nn.init.normal_(parameter, 1.0, config.init_std)
        elif "projections" in name:
            nn.init.normal_(parameter, 0.0, config.proj_init_std)
        else:
            nn.init.normal_(parameter, 0.0, config.init_std)
