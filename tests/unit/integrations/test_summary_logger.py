"""Records of `fit` reach the loggers, and so does the histogram of given inputs, without changing the run."""

import pytest
import torch
from unit.training.toys import blobs, network, summary

import selbo
from selbo.integrations.summary_logger import SummaryLogger, take_snapshot
from selbo.random import generator_for


def run(net, term, **settings):
    settings = {"steps": 10, "batch_size": 8, "log_every": 4, **settings}
    return selbo.fit(net, selbo.SummaryELBO(term, num_data=32), blobs(32), **settings)


def test_every_record_becomes_points_and_a_histogram(logger):
    net, term, (inputs, _) = network(bayesian=True), summary(), blobs(50, seed=1)
    result = run(net, term, callbacks=[SummaryLogger(logger, model=net, summary=term, inputs=inputs)])
    assert [step for _, step in logger.points] == [step for _, _, step in logger.histograms] == [4, 8, 10]
    for (values, step), record, (name, snapshot, _) in zip(
        logger.points, result.history, logger.histograms, strict=True
    ):
        assert name == "summary"
        assert values.pop("summary_distance") == snapshot.distance
        assert {**values, "step": step} == record
    # the last is that of the network as it came out
    expected = take_snapshot(net, term, inputs, generator=generator_for(0, "histogram", 10))
    assert torch.equal(logger.histograms[-1][1].histogram, expected.histogram)
    assert logger.figures == []


def test_looking_changes_nothing(logger):
    looked_at, alone = network(bayesian=True), network(bayesian=True)
    term = summary(ema_decay=0.9)
    run(looked_at, term, callbacks=[SummaryLogger(logger, model=looked_at, summary=term, inputs=blobs(50)[0])])
    run(alone, summary(ema_decay=0.9))
    for one, other in zip(looked_at.state_dict().values(), alone.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_without_inputs_there_are_only_curves(logger):
    run(network(bayesian=True), summary(), callbacks=[SummaryLogger(logger)])
    assert len(logger.points) == 3
    assert "summary_distance" not in logger.points[0][0]
    assert logger.histograms == []


def test_figures_are_drawn_every_so_often(logger):
    net, term = network(bayesian=True), summary()
    callback = SummaryLogger(
        logger, model=net, summary=term, inputs=blobs(9)[0], draw=lambda snapshot: f"{snapshot.distance}", every=2
    )
    run(net, term, callbacks=[callback])
    assert [(name, step) for name, _, step in logger.figures] == [("summary/figure", 4), ("summary/figure", 10)]
    assert logger.figures[0][1] == f"{logger.histograms[0][1].distance}"
    assert len(logger.points) == 3


def test_the_histogram_is_that_of_a_plain_network(seed):
    net, term, (inputs, _) = network(seed=seed), summary(), blobs(23, seed=seed)
    snapshot = take_snapshot(net, term, inputs, batch_size=7, generator=generator_for(seed))
    assert net.training
    net.eval()
    expected = term.histogram(net(inputs).log_softmax(-1)).double()
    torch.testing.assert_close(snapshot.histogram, expected, rtol=1e-5, atol=1e-7)


def test_the_histogram_of_a_bayesian_network_is_a_mean_over_whole_draws(seed):
    net, term, (inputs, _) = network(bayesian=True, seed=seed), summary(), blobs(23, seed=seed)
    snapshot = take_snapshot(net, term, inputs, num_samples=5, generator=generator_for(seed), batch_size=10)
    net.eval()
    logits = selbo.forward_samples(net, inputs, num_samples=5, generator=generator_for(seed))
    expected = term.histogram(logits.log_softmax(-1)).mean(0).double()
    torch.testing.assert_close(snapshot.histogram, expected, rtol=1e-5, atol=1e-7)


def test_an_objective_says_what_outputs_stand_for():
    net, term, (inputs, _) = network(), summary(), blobs(23)
    objective = selbo.Evidential(num_data=23)
    snapshot = take_snapshot(net, term, inputs, objective=objective, generator=generator_for(0))
    net.eval()
    expected = term.histogram(objective.log_probs(net(inputs))).double()
    torch.testing.assert_close(snapshot.histogram, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": network()}, "`model`, `summary` and `inputs` must be given together"),
        ({"draw": print}, "`draw` needs predictions to draw"),
        ({"every": 0}, "`every` must be a whole number of at least 1"),
        ({"num_samples": 0}, "`num_samples` must be a whole number of at least 1"),
    ],
)
def test_bad_arguments_are_refused(given, message, logger):
    with pytest.raises(ValueError, match=message):
        SummaryLogger(logger, **given)


def test_no_inputs_at_all_are_refused():
    with pytest.raises(ValueError, match="`inputs` must be a batch of at least one"):
        take_snapshot(network(), summary(), torch.zeros(0, 4))
