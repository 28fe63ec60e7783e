"""A memory full of zeros, as the official code begins with: attended to like any other."""

from txlbench.models.interface import LanguageModel, State, View


def zero_memory(model: LanguageModel, batch_size: int, view: View) -> State:
    """The state of `batch_size` streams that remember `mem_len` zeros in every layer."""
    state = model.initial_state(batch_size, view)
    return state.replace(
        {
            name: memory.new_zeros(batch_size, view.mem_len, *memory.shape[2:])
            for name, memory in state.tensors().items()
        }
    )
