"""From the results of states to probabilities of people: who voted for Trump in 2016?

    python examples/election.py --out demo

31 452 people answered a survey about age, party, ideology, income, religion and race. No vote of theirs is used: only
the share of each of 51 states, counted in the survey, or the official result. 13 480 other people show how it went.
"""

import argparse

import torch
from torch import Tensor

import selbo
from selbo.plots import TWO_COLUMNS, figure_style, method_styles, new_figure, save_figure


def people(smoke: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, tuple[str, ...]]:
    """Answers, votes, states, the official share of Trump in each state, and its name; invented for a smoke test."""
    if not smoke:
        from selbo_lab.data.voters import voters_table  # pip install selbo-lab

        table = voters_table()  # without the files, an error says how to get them
        where = table.columns["state"]
        return table.rows.inputs, table.rows.labels, where.codes, table.stated["state"][:, 1], where.names
    generator = torch.Generator().manual_seed(0)
    state = torch.arange(4000) % 20
    inputs = torch.randn(20, 3, generator=generator)[state] + torch.randn(4000, 3, generator=generator)
    votes = torch.bernoulli((2 * inputs[:, 0]).sigmoid(), generator=generator).long()
    return inputs, votes, state, torch.linspace(0.2, 0.8, 20).double(), tuple(f"state {k}" for k in range(20))


def means(values: Tensor, part: Tensor) -> Tensor:
    return part.bincount(values.double()) / part.bincount()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="demo", help="folder for the figure")
    parser.add_argument("--smoke", action="store_true", help="a few steps on invented people")
    arguments = parser.parse_args()
    inputs, votes, state, official, names = people(arguments.smoke)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    test, train = order[: 3 * len(order) // 10], order[3 * len(order) // 10 :]
    counted, sizes = means(votes[train], state[train]), state[train].bincount().double()
    sources = {"shares in the survey": (counted, sizes), "official results": (official, 16.0)}  # off by 12 points
    found = {"the state's share": torch.stack([1 - counted, counted], 1)[state[test]].clamp(0.01, 0.99).log()}
    for name, (share, strength) in sources.items():
        shares = torch.stack([1 - share, share], 1)
        states = selbo.GroupedSummary(selbo.ClassRegions(2), shares, strength, form="counts")
        network = selbo.models.MLP((inputs.shape[1], 2), generator=torch.Generator().manual_seed(0))
        adam = selbo.training.Optimizer("adam", weight_decay=10 / len(train))  # the precision of the weights is 10
        settings = {"steps": 10 if arguments.smoke else 400, "batch_size": min(8192, len(train)), "learning_rate": 0.03}
        without_labels = {"groups": state[train], "optimizer": adam, "schedule": "cosine"}
        selbo.fit(network, selbo.CrossEntropy(len(train), states), inputs[train], **without_labels, **settings)
        scale = selbo.calibrate_to_belief(selbo.predict(network, inputs[train]).log_probs, accuracy=0.82)
        found[name] = scale(selbo.predict(network, inputs[test]).log_probs)  # shares do not determine the confidence
    for name, log_probs in found.items():
        scores = selbo.evaluate(log_probs.exp(), votes[test])
        print(f"{name:22}", *(f"{key} {scores[key]:.3f}  " for key in ("accuracy", "auroc", "nll", "ece")))
    true = means(votes[test], state[test])
    with figure_style():
        *strips, tenths = new_figure(width=TWO_COLUMNS, height=5.7).subplots(1, 3)
        for axes, (name, look) in zip(strips, method_styles(sources).items(), strict=True):
            trump, place = found[name][:, 1].exp(), true.argsort().argsort()
            for what, mark, share in (("stated", "x", sources[name][0]), ("predicted", "o", means(trump, state[test]))):
                axes.plot(share, place, mark, color=look.colour, markersize=3, label=what)
            axes.plot(true, place, "|k", label="true")
            axes.set(title=name, xlabel="share of Trump", yticks=place, yticklabels=names if axes is strips[0] else [])
            axes.legend()
            tenth = trump.argsort().argsort() * 10 // len(trump)
            tenths.plot(means(trump, tenth), means(votes[test], tenth), look.marker, color=look.colour, label=name)
        tenths.plot([0, 1], [0, 1], color="0.6", linewidth=0.8, zorder=0)
        tenths.set(title="tenths of the people", xlabel="predicted", ylabel="true", aspect="equal", anchor="N")
        tenths.legend()
    print(f"Shares of people whose votes nobody counted: {save_figure(axes.figure, arguments.out, 'election')[0]}")


if __name__ == "__main__":
    main()
