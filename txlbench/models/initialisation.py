"""Initial weights, as in the official PyTorch code."""

from torch import nn

from txlbench.config.model import ModelConfig

RECURRENT_WEIGHTS = ("w_ih", "w_hh", "b_ih", "b_hh", "w_gates", "b_gates")


def initialise(model: nn.Module, config: ModelConfig) -> None:
    """Draws every weight: N(0, init_std), with these exceptions.

    Projections of embedding and softmax N(0, proj_init_std); layer-norm weights N(1, init_std);
    biases of linear maps, norms, softmax, clusters and distances 0; recurrent layers
    U(-1/sqrt(d_model), 1/sqrt(d_model)), as PyTorch's.
    """
    bound = config.d_model**-0.5
    norms = {
        f"{name}.weight" for name, part in model.named_modules() if isinstance(part, nn.LayerNorm)
    }
    for name, parameter in model.named_parameters():
        leaf = name.rsplit(".", 1)[-1]
        if leaf in ("bias", "cluster_bias", "distance_bias"):
            nn.init.zeros_(parameter)
        elif leaf in RECURRENT_WEIGHTS:
            nn.init.uniform_(parameter, -bound, bound)
        elif name in norms:
            nn.init.normal_(parameter, 1.0, config.init_std)
        elif "projections" in name:
            nn.init.normal_(parameter, 0.0, config.proj_init_std)
        else:
            nn.init.normal_(parameter, 0.0, config.init_std)
