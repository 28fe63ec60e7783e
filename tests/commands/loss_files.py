"""Loss files of small groups, as a user would write them."""

import numpy as np

CONTEXTS = (100, 200, 300, 400)


def save(path, reach=300, noise=0.02, seed=0, **changes):
    """A model that gains up to `reach`: 1,000 tokens at four contexts."""
    hardness = 5 + np.random.default_rng(99).gamma(1, 3, 1000)
    gained = np.minimum(np.array(CONTEXTS), reach) / 1000
    random = np.random.default_rng(seed)
    losses = hardness - gained[:, None] + noise * random.standard_normal((4, 1000))
    content = {"losses": losses.astype(np.float32), "contexts": np.array(CONTEXTS)}
    content |= {"positions": 2000 + np.arange(1000), "split": "test", **changes}
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **{key: value for key, value in content.items() if value is not None})
    return str(path)
