"""Trains a small convolutional network on scikit-learn's handwritten digits, with DistributedDataParallel.

    wiresum switch                       # in another terminal; then, with its control address
    export WIRESUM_SWITCH=127.0.0.1:50099
    torchrun --nproc_per_node 4 examples/train_ddp.py wiresum
    torchrun --nproc_per_node 4 examples/train_ddp.py gloo

The backend's name is the only difference: torch finds the installed backend "wiresum" by itself.
"""

import argparse

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

BATCH = 16  # images per worker and step
LEARNING_RATE = 0.05


def load() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training images (N, 1, 8, 8), test images, training labels, test labels; the same split on every worker."""
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
    labels = torch.tensor(labels)
    train, test = train_test_split(range(len(labels)), test_size=0.2, random_state=0, stratify=labels)
    return images[train], images[test], labels[train], labels[test]


def build() -> nn.Module:
    """A network of 36 thousand parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 60),
        nn.ReLU(),
        nn.Linear(60, 10),
    )


def main() -> None:
    """Trains on all workers and prints the test accuracy on the first."""
    parser = argparse.ArgumentParser(description="Train on handwritten digits with DDP.")
    parser.add_argument("backend", choices=["gloo", "wiresum"], help="what sums the gradients")
    parser.add_argument("--epochs", type=int, default=5)
    arguments = parser.parse_args()

    dist.init_process_group(arguments.backend)
    rank, workers = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # the same weights at first, and the same order of images, everywhere
    torch.set_num_threads(1)  # the workers share the machine

    train_images, test_images, train_labels, test_labels = load()
    model = DistributedDataParallel(build())
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)

    steps = len(train_labels) // (workers * BATCH)
    for epoch in range(1, arguments.epochs + 1):
        order = torch.randperm(len(train_labels))[: steps * workers * BATCH].reshape(steps, workers, BATCH)
        loss = torch.tensor(0.0)
        for mine in order[:, rank]:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(train_images[mine]), train_labels[mine])
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f} on the last batch", flush=True)

    if rank == 0:
        with torch.no_grad():
            right = (model.module(test_images).argmax(1) == test_labels).float().mean()
        print(f"{arguments.backend}: test accuracy {right:.2%}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
