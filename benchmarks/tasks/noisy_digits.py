"""The task of `examples/digits.py`, for benchmarks: a small network on 400 noisy digits, scored on the other 1397."""

import torch
from sklearn.datasets import load_digits
from torch import nn

STEPS = 1000


def scores(summary: nn.Module | None, *, seed: int, batch_size: int = 128) -> tuple[float, float, float]:
    """Test NLL, accuracy and expected calibration error (ten bins) after training with one seed."""
    images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
    generator = torch.Generator().manual_seed(seed)
    images = images.float() / 16 + 0.4 * torch.randn(images.shape, generator=generator)
    train, test = torch.randperm(len(images), generator=generator).split([400, len(images) - 400])
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    for _ in range(STEPS):
        batch = train[torch.randint(len(train), (batch_size,), generator=generator)]
        log_probs = network(images[batch]).log_softmax(-1)
        loss = nn.functional.nll_loss(log_probs, labels[batch])
        if summary is not None:
            loss = loss - summary(log_probs) / len(train)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        log_probs = network(images[test]).log_softmax(-1)
    confidence, predicted = log_probs.exp().max(-1)
    right, bins = (predicted == labels[test]).float(), (10 * confidence).long().clamp(max=9)
    gaps = torch.zeros(10).index_add(0, bins, right - confidence).abs() / len(test)
    return nn.functional.nll_loss(log_probs, labels[test]).item(), right.mean().item(), gaps.sum().item()


def row(results: list[tuple[float, float, float]]) -> str:
    """Mean and standard error over seeds, as cells of a table."""
    runs = torch.tensor(results)
    mean, error = runs.mean(0).tolist(), (runs.std(0) / len(runs) ** 0.5).tolist()
    return " | ".join(f"{m:.3f} ± {e:.3f}" for m, e in zip(mean, error, strict=True))
