"""What the demo is asked to do, and what it asks of its workers."""

import json
from dataclasses import asdict, dataclass
from typing import Final

from protocol.constants import MAX_RANKS, VALUES_PER_PACKET, check_slots

MODEL_NAMES: Final = ("cnn", "mlp", "wide")
BACKENDS: Final = ("wiresum", "gloo")
TITLES: Final = {"wiresum": "wiresum", "gloo": "Gloo"}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Of both trainings; the defaults are those of `wiresum demo`.

    Attributes:
        workers: worker processes, 2 to 32.
        loss: share of packets, 0 to 0.5, that the switch loses on the way in, and again on the way out.
        epochs: passes over the training images.
        model: one of MODEL_NAMES.
        values: values in a packet, as the protocol allows.
        slots: slots of the job's pool, a power of two; None leaves it to the agent.
        seed: of the weights, the order of the images, the split into training and test images, and the loss.
        batch: images in one step, over all workers.
        learning_rate: of stochastic gradient descent with momentum, at first; it falls to 0 as a cosine does.

    Raises:
        ValueError: a value is out of range.
    """

    workers: int = 4
    loss: float = 0.01
    epochs: int = 20
    model: str = "cnn"
    values: int = 256
    slots: int | None = None
    seed: int = 1
    batch: int = 128
    learning_rate: float = 0.05

    def __post_init__(self) -> None:
        if not 2 <= self.workers <= MAX_RANKS:
            raise ValueError(f"workers must be from 2 to {MAX_RANKS}, not {self.workers}")
        if not 0 <= self.loss <= 0.5:
            raise ValueError(f"loss must be a share from 0 to 0.5, not {self.loss:g}")
        if not 1 <= self.epochs <= 10_000:
            raise ValueError(f"epochs must be from 1 to 10000, not {self.epochs}")
        if self.model not in MODEL_NAMES:
            raise ValueError(f"model must be one of {', '.join(MODEL_NAMES)}, not {self.model!r}")
        if self.values not in VALUES_PER_PACKET:
            raise ValueError(f"values must be one of {', '.join(map(str, VALUES_PER_PACKET))}, not {self.values}")
        if self.slots is not None:
            check_slots(self.slots)
        if not 0 <= self.seed < 2**32:  # what numpy's and scikit-learn's generators take
            raise ValueError(f"seed must be from 0 to {2**32 - 1}, not {self.seed}")
        if self.batch < self.workers:
            raise ValueError(f"batch must be at least one image for each of {self.workers} workers, not {self.batch}")


@dataclass(frozen=True, kw_only=True)
class Task:
    """What one worker is told.

    Attributes:
        backend: of torch.distributed.
        store: path of the file at which the workers meet.
        data: path of the images, an npz of train_x, train_y, test_x, test_y.
        weights: path that rank 0 saves the final weights to, as npy.
        flip_bit: flips one bit of the final weights on this rank, to see the demo notice.
    """

    rank: int
    backend: str
    store: str
    data: str
    weights: str
    settings: Settings
    flip_bit: bool = False

    @classmethod
    def from_json(cls, text: str) -> "Task":
        """Reads what `to_json` wrote."""
        fields = json.loads(text)
        return cls(**{**fields, "settings": Settings(**fields["settings"])})

    def to_json(self) -> str:
        """This task as text for a command line."""
        return json.dumps(asdict(self))
