"""From the results of states to probabilities of people: who voted for Trump in 2016?

    python examples/election.py --out demo

31 452 people answered a survey about age, party, ideology, income, religion and race. No vote of theirs is used: only
the share of each of 51 states, counted in the survey, or the official result. 13 480 other people show how it went.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn

import selbo
from selbo.plots import TWO_COLUMNS, figure_style, method_styles, new_figure, save_figure, tidy


def people(smoke: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Answers, votes, states, and the official share of Trump in each state; invented ones for a smoke test."""
    if not smoke:
        from selbo_lab.data.voters import voters_table  # pip install selbo-lab

        table = voters_table()  # without the files, an error says how to get them
        return table.rows.inputs, table.rows.labels, table.columns["state"].codes, table.stated["state"][:, 1]
    generator = torch.Generator().manual_seed(0)
    state = torch.arange(4000) % 20
    inputs = torch.randn(20, 3, generator=generator)[state] + torch.randn(4000, 3, generator=generator)
    votes = torch.bernoulli((2 * inputs[:, 0]).sigmoid(), generator=generator).long()
    return inputs, votes, state, torch.linspace(0.2, 0.8, 20).double()


def learn(inputs: Tensor, state: Tensor, share: Tensor, strength: Tensor | float, steps: int) -> nn.Module:
    """A linear classifier of people from the shares of states, without a label."""
    shares = torch.stack([1 - share, share], 1)
    states = selbo.GroupedSummary(selbo.ClassRegions(2), shares, strength, form="counts")
    network = selbo.models.MLP((inputs.shape[1], 2), generator=torch.Generator().manual_seed(0))
    adam = selbo.training.Optimizer("adam", weight_decay=10 / len(inputs))  # the precision of the weights is 10
    settings = {"steps": steps, "batch_size": min(8192, len(inputs)), "learning_rate": 0.03, "schedule": "cosine"}
    selbo.fit(network, selbo.CrossEntropy(len(inputs), states), inputs, groups=state, optimizer=adam, **settings)
    return network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the figure")
    parser.add_argument("--smoke", action="store_true", help="a few steps on invented people")
    arguments = parser.parse_args()
    inputs, votes, state, official = people(arguments.smoke)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    test, train = order[: 3 * len(order) // 10], order[3 * len(order) // 10 :]
    sizes = state[train].bincount().double()
    counted = state[train].bincount(votes[train].double()) / sizes
    sources = {"shares in the survey": (counted, sizes), "official results": (official, 16.0)}  # off by 12 points
    found = {"the state's share": torch.stack([1 - counted, counted], 1)[state[test]].clamp(0.01, 0.99).log()}
    for name, (share, strength) in sources.items():
        network = learn(inputs[train], state[train], share, strength, 10 if arguments.smoke else 400)
        known = selbo.predict(network, inputs[train]).log_probs
        scale = selbo.calibrate_to_belief(known, accuracy=0.82)  # shares do not determine the confidence
        found[name] = scale(selbo.predict(network, inputs[test]).log_probs)
    for name, log_probs in found.items():
        scores = selbo.evaluate(log_probs.exp(), votes[test])
        print(f"{name:22}", *(f"{key} {scores[key]:.3f}  " for key in ("accuracy", "auroc", "nll", "ece")))
    with figure_style():
        figure = new_figure(width=TWO_COLUMNS, height=2.8)
        for axes, point in zip(figure.subplots(1, 2), ("a tenth of the people", "a state"), strict=True):
            axes.plot([0, 1], [0, 1], color="0.6", linewidth=0.8)
            for name, look in method_styles(sources).items():
                trump = found[name][:, 1].exp()
                part = trump.argsort().argsort() * 10 // len(trump) if "tenth" in point else state[test]
                means = [(trump[part == k].mean(), votes[test][part == k].double().mean()) for k in part.unique()]
                axes.plot(*zip(*means, strict=True), look.marker, color=look.colour, markersize=3, label=name)
            axes.set(xlabel="predicted share of Trump", ylabel="true share", title=f"Each point: {point}")
            axes.legend()
            tidy(axes)
    print(f"Shares of people whose votes nobody counted: {save_figure(figure, arguments.out, 'election')[0]}")


if __name__ == "__main__":
    main()
