"""From a configuration to a model with initial weights."""

from txlbench.config.model import ModelConfig
from txlbench.models.initialisation import initialise
from txlbench.models.interface import LanguageModel
from txlbench.registry import Registry

MODELS = Registry(
    "kind of model",
    {
        "transformer": "txlbench.models.transformer:Transformer",
        "lstm": "txlbench.models.lstm:LSTM",
        "qrnn": "txlbench.models.qrnn:QRNN",
    },
)


def build_model(config: ModelConfig, vocabulary_size: int) -> LanguageModel:
    """A model in training mode on the CPU; seed first, the weights are drawn here.

    Args:
        vocabulary_size: V, a fact of the corpus and not of the configuration.
    """
    model: LanguageModel = MODELS.load(config.kind)(config, vocabulary_size)
    initialise(model, config)
    return model
