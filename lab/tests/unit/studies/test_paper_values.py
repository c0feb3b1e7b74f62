"""The paper's values name rows and columns that exist, and are those that it prints."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from selbo_lab.report import studies
from selbo_lab.report.columns import MetricColumn
from selbo_lab.studies import reader
from selbo_lab.studies.paper import PaperMethod

PUBLISHED = {"sst": 1, "mnist35": 4, "cifar10": 1, "cifar10-im": 1, "sgd": 4}
"""Studies with a table in the paper, and how many variants each has there."""

TOTAL = 28 + 16 * 7 + 4 * 11 + 3 * 11 + 8 * 7
"""Numbers in the tables of the appendix: SST; binary MNIST, clean and OOD; CIFAR-10 and its imbalanced form, clean,
corrupted and OOD; plain networks, clean and OOD."""


def rows() -> Iterator[tuple[str, str, str, PaperMethod]]:
    for study in reader.names():
        for variant, _ in reader.load_study(study).comparisons(["published"]):
            for method, row in reader.paper_values(study, variant.name).methods.items():
                yield study, variant.name, method, row


def test_every_key_is_one_of_the_catalogue() -> None:
    paper = reader._toml("paper")
    assert {study: len(variants) for study, variants in paper.items()} == PUBLISHED
    for study, variants in paper.items():
        spec = reader.load_study(study)
        assert set(variants) == {variant.name for variant in spec.variants}
        methods = {method.name for method in spec.track("published").methods}
        for variant, found in variants.items():
            assert set(found) - {"caveat"} == methods, f"{study}, {variant}: a row for every method, and no other"
            assert all(set(found[each]) <= {"values", "not_comparable"} for each in methods)


def test_every_column_is_one_that_runs_have() -> None:
    scores = {"nll", "accuracy", "auroc", "ece", "f1_micro", "f1_macro"}
    apart = {"entropy_in", "entropy_out", "entropy_difference"}
    for study, _, _, row in rows():
        evaluation = reader.load_study(study).track("published").evaluation
        for name, numbers in row.values.items():
            column = MetricColumn.parse(name)
            assert str(column) == name
            if column.ood:
                assert column.place in (*evaluation.ood, *evaluation.ood_if_present)
                assert column.metric in apart
            else:
                assert column.place == "clean" or (column.place == "corrupted" and evaluation.suite)
                assert column.metric in scores
            mean, error = numbers
            assert 0 <= error < mean
            assert round(mean, 3) == mean
            assert round(error, 3) == error


def test_every_number_of_the_tables_is_there() -> None:
    assert sum(len(row.values) for *_, row in rows()) == TOTAL


def test_differences_of_entropies_are_those_of_the_printed_entropies() -> None:
    for study, variant, method, row in rows():
        for name in ("fashion", "svhn"):
            entropy = {
                key: row.values.get(f"ood.{name}.entropy_{key}", [0.0])[0] for key in ("in", "out", "difference")
            }
            # three rounded numbers
            gap = entropy["out"] - entropy["in"]
            assert entropy["difference"] == pytest.approx(gap, abs=0.0021), (study, variant, method)


@pytest.mark.parametrize(
    ("study", "variant", "method", "column", "printed"),
    [
        ("sst", "mlp", "elbo", "clean.nll", (0.341, 0.024)),
        ("sst", "mlp", "evidential", "clean.auroc", (0.954, 0.000)),
        ("sst", "mlp", "auto-equal", "clean.nll", (0.297, 0.010)),
        ("sst", "mlp", "uniform-equal", "clean.ece", (0.026, 0.001)),
        ("sst", "mlp", "auto-unequal", "clean.accuracy", (0.886, 0.002)),
        ("sst", "mlp", "uniform-unequal", "clean.ece", (0.021, 0.005)),
        ("mnist35", "lenet-1000", "elbo", "clean.nll", (0.013, 0.001)),
        ("mnist35", "lenet-8000", "evidential", "clean.nll", (0.045, 0.003)),
        ("mnist35", "convnet-1000", "summary", "clean.ece", (0.041, 0.004)),
        ("mnist35", "convnet-8000", "label-smoothing", "clean.nll", (0.058, 0.018)),
        ("mnist35", "lenet-1000", "summary", "ood.fashion.entropy_out", (0.488, 0.022)),
        ("mnist35", "convnet-8000", "summary", "ood.fashion.entropy_difference", (0.487, 0.019)),
        ("cifar10", "vgg11", "summary", "clean.nll", (0.681, 0.003)),
        ("cifar10", "vgg11", "evidential", "corrupted.auroc", (0.893, 0.003)),
        ("cifar10", "vgg11", "elbo", "ood.svhn.entropy_difference", (0.552, 0.077)),
        ("cifar10-im", "vgg11", "elbo", "clean.f1_micro", (0.849, 0.002)),
        ("cifar10-im", "vgg11", "summary", "corrupted.nll", (3.564, 0.070)),
        ("cifar10-im", "vgg11", "evidential", "ood.svhn.entropy_in", (0.099, 0.006)),
        ("sgd", "5k", "plain", "clean.nll", (1.006, 0.003)),
        ("sgd", "30k", "plain-summary", "clean.accuracy", (0.817, 0.000)),
        ("sgd", "da-5k", "plain", "ood.svhn.entropy_out", (1.010, 0.038)),
        ("sgd", "da-30k", "plain", "ood.svhn.entropy_difference", (0.272, 0.005)),
        ("sgd", "da-30k", "plain-summary", "clean.ece", (0.067, 0.000)),
    ],
)
def test_values_are_those_that_are_printed(
    study: str, variant: str, method: str, column: str, printed: tuple[float, float]
) -> None:
    assert studies.published(reader.paper_values(study, variant), method)[MetricColumn.parse(column)] == printed


def test_rows_that_measure_something_else_say_so() -> None:
    for study, variant, method, _ in rows():
        paper = reader.paper_values(study, variant)
        barred = {
            part: studies.not_comparable(paper, method, MetricColumn(part, "nll", ood=part == "ood")) is not None
            for part in ("clean", "corrupted", "ood")
        }
        smoothing, rare = method == "label-smoothing", study == "cifar10-im"
        assert barred["clean"] == smoothing
        assert barred["corrupted"] == (smoothing or rare)
        assert barred["ood"] == (smoothing or (rare and method in ("elbo", "evidential")))


def test_caveats_are_sentences() -> None:
    with_caveat = {
        (study, variant): found["caveat"]
        for study, variants in reader._toml("paper").items()
        for variant, found in variants.items()
        if "caveat" in found
    }
    assert {("sst", "mlp"), ("mnist35", "lenet-1000"), ("mnist35", "lenet-8000")} <= set(with_caveat)
    assert all(text.endswith(".") and text.startswith(("The ", "For ")) for text in with_caveat.values())
