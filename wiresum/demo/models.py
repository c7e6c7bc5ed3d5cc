"""The networks that the demo can train, all for 8 x 8 grey images of ten digits."""

from collections.abc import Callable
from typing import Final

import torch
from torch import nn

from wiresum.demo.settings import MODEL_NAMES


def build(name: str) -> nn.Module:
    """A freshly initialized network of that name; takes float32 of shape (n, 1, 8, 8), returns (n, 10).

    Raises:
        ValueError: there is no such network.
    """
    if name not in _BUILDERS:
        raise ValueError(f"model must be one of {', '.join(MODEL_NAMES)}, not {name!r}")
    return _BUILDERS[name]()


def _cnn(width: int = 16, hidden: int = 64) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * width * 4 * 4, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 10),
    )


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def _wide() -> nn.Module:
    """A tenfold wider network: some 700,000 parameters, so that communication shows."""
    return _cnn(width=40, hidden=512)


_BUILDERS: Final[dict[str, Callable[[], nn.Module]]] = {"cnn": _cnn, "mlp": _mlp, "wide": _wide}


def flat_weights(model: nn.Module) -> torch.Tensor:
    """All parameters as one vector."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
