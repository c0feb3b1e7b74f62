"""The one line of the README, in a plain loop: predictions come to look as was said."""

import torch

import selbo


def train(summary, seed, *, line):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(500, 20, generator=generator)
    labels = (inputs[:, 0] + torch.randn(500, generator=generator) > 1).long()
    network = selbo.models.MLP((20, 64, 2), generator=generator)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    for _ in range(200):
        log_probs = network(inputs).log_softmax(-1)
        loss = torch.nn.functional.nll_loss(log_probs, labels)
        if line:
            loss = loss - summary(log_probs) / len(inputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    fresh = torch.randn(2000, 20, generator=generator)
    truth = (fresh[:, 0] + torch.randn(2000, generator=generator) > 1).long()
    predicted = network(fresh).log_softmax(-1).detach()
    distance = (summary.histogram(predicted) - summary.s0).abs().sum().item() / 2
    return distance, torch.nn.functional.nll_loss(predicted, truth).item()


def test_predictions_of_new_inputs_are_as_was_said(seed):
    belief = selbo.expect(accuracy=0.83, class_fractions=[0.76, 0.24])
    summary = selbo.SummaryLikelihood(selbo.ScoreBins.equal(10), belief, concentration=500.0)
    (with_it, nll), (without, other_nll) = (train(summary, seed, line=line) for line in (True, False))
    assert with_it < 0.6 * without
    assert nll < 0.6 * other_nll
