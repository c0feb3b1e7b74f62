"""The loss of a step of the Trainer, by hand and by the Trainer itself; what is refused; what is logged."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import selbo
from selbo.integrations import transformers as adapter
from selbo.integrations.transformers import SummaryCallback, SummaryLoss

N = 90


def summary(**settings):
    belief = selbo.expect(accuracy=0.8, num_classes=3)
    return selbo.SummaryLikelihood(selbo.CornerShells(3), belief, concentration=50.0, **settings)


def batch(seed, size=12):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(size, 3, generator=generator)
    return logits, torch.randint(3, (size,), generator=generator)


# --- the loss, without the package ---


@pytest.mark.parametrize("form", [dict, tuple, SimpleNamespace])
def test_one_batch_is_a_step(form, seed):
    logits, labels = batch(seed)
    outputs = (logits,) if form is tuple else form(logits=logits)
    term = summary()
    expected = F.cross_entropy(logits, labels) - 0.7 * term(logits.log_softmax(-1)) / N
    torch.testing.assert_close(SummaryLoss(term, N, summary_weight=0.7, steps=0)(outputs, labels), expected)
    torch.testing.assert_close(
        SummaryLoss(term, N, summary_weight=0.7, steps=0)(outputs, labels, torch.tensor(12)), expected
    )


def test_batches_of_a_step_count_for_their_share(seed):
    """Accumulated gradients: the losses of unequal batches add up to that of the step, with one summary term."""
    logits, labels = batch(seed, size=12)
    labels[[1, 7, 8]] = -100
    term = summary()
    loss = SummaryLoss(term, N, steps=0)
    parts = [slice(0, 5), slice(5, 12)]
    total = sum(loss({"logits": logits[part]}, labels[part], 9) for part in parts)
    values = [term(logits[part].log_softmax(-1)) for part in parts]
    expected = F.cross_entropy(logits, labels) - (4 * values[0] + 5 * values[1]) / 9 / N
    torch.testing.assert_close(total, expected)


def test_rows_without_a_label_stay_in_the_histogram(seed):
    logits, labels = batch(seed)
    labels[:4] = -100
    term = summary()
    expected = F.cross_entropy(logits[4:], labels[4:]) - term(logits.log_softmax(-1)) / N
    torch.testing.assert_close(SummaryLoss(term, N, steps=0)({"logits": logits}, labels), expected)


def test_with_a_label_shift_the_histogram_is_that_of_corrected_unlabelled_rows(seed):
    logits, labels = batch(seed)
    labels[:8] = -100
    term, before, after = summary(), torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.2, 0.6])
    odds = logits[:8].softmax(-1) * after / before
    expected = F.cross_entropy(logits[8:], labels[8:]) - term((odds / odds.sum(-1, keepdim=True)).log()) / N
    shift = selbo.LabelShift(before.tolist(), after.tolist())
    torch.testing.assert_close(
        SummaryLoss(term, N, steps=0, label_shift=shift)({"logits": logits}, labels), expected, atol=1e-5, rtol=1e-5
    )


def test_a_label_shift_needs_unlabelled_rows_and_is_one(seed):
    logits, labels = batch(seed)
    loss = SummaryLoss(summary(), N, steps=0, label_shift=selbo.LabelShift([0.2, 0.3, 0.5], [0.5, 0.3, 0.2]))
    with pytest.raises(ValueError, match="must be -100 in some rows of each batch"):
        loss({"logits": logits.requires_grad_()}, labels)
    with pytest.raises(ValueError, match=r"must be a selbo\.LabelShift, but got list"):
        SummaryLoss(summary(), N, label_shift=[0.5, 0.3, 0.2])


@pytest.mark.parametrize("given", [None, 0, torch.tensor(0)])
def test_a_step_without_labels_has_no_loss(given, seed):
    logits, labels = batch(seed)
    logits.requires_grad_()
    loss = SummaryLoss(summary(), N, steps=0)({"logits": logits}, torch.full_like(labels, -100), given)
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(logits.grad, torch.zeros_like(logits))


def test_evaluation_is_cross_entropy_alone(seed):
    logits, labels = batch(seed)
    term = summary(ema_decay=0.9)
    loss = SummaryLoss(term, N, steps=0)
    with torch.no_grad():
        torch.testing.assert_close(loss({"logits": logits}, labels), F.cross_entropy(logits, labels))
    assert loss.monitor.take() == {}
    assert term.average.weight.item() == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gives_a_loss_in_single(dtype, seed):
    logits, labels = batch(seed)
    narrow = logits.to(dtype).requires_grad_()
    loss = SummaryLoss(summary(), N, steps=0)({"logits": narrow}, labels)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, SummaryLoss(summary(), N, steps=0)({"logits": narrow.detach().float()}, labels))
    loss.backward()
    assert narrow.grad.isfinite().all()


def test_labels_may_be_a_column(seed):
    logits, labels = batch(seed)
    loss = SummaryLoss(summary(), N, steps=0)
    assert torch.equal(loss({"logits": logits}, labels.unsqueeze(1).int()), loss({"logits": logits}, labels))


@pytest.mark.parametrize(
    ("logits", "labels", "items", "message"),
    [
        (torch.zeros(2, 5, 3), torch.zeros(2, 5).long(), None, r"one row per example .* got \(2, 5, 3\): token"),
        (torch.zeros(4, 1), torch.zeros(4), None, r"at least two classes, but got \(4, 1\)"),
        (None, torch.zeros(4).long(), None, "but got NoneType"),
        (torch.zeros(4, 3), torch.zeros(4, 3), None, r"`labels` must be one class .* torch.float32 of shape \(4, 3\)"),
        (torch.zeros(4, 3), torch.zeros(5).long(), None, r"for 4 rows of logits, but got torch.int64 of shape \(5,\)"),
        (torch.zeros(4, 3), None, None, "but got none"),
        (
            torch.zeros(4, 3),
            torch.zeros(4).long(),
            torch.ones(2, 1),
            r"one per GPU \(DataParallel\): start it with torch",
        ),
    ],
)
def test_what_has_no_summary_is_refused(logits, labels, items, message):
    with pytest.raises(ValueError, match=message):
        SummaryLoss(summary(), N, steps=0)({"logits": logits}, labels, items)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((nn.Flatten(), N), "`summary` must be a selbo.SummaryLikelihood, but got Flatten"),
        ((summary(), 0), "`num_data` must be a whole number of at least 1"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        SummaryLoss(*arguments)


def test_transformers_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(adapter, "TrainerCallback", object)
    with pytest.raises(ValueError, match=r"needs the package transformers: pip install 'selbo\[transformers\]'"):
        SummaryCallback(SimpleNamespace(compute_loss_func=SummaryLoss(summary(), N)))


# --- the Trainer ---


class Sentences(torch.utils.data.Dataset):
    """Sentences of two to six words, padded with 0 by hand; of three of them the label is not known."""

    def __init__(self, size, seed=0):
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(2, 7, (size, 1), generator=generator)
        self.mask = (torch.arange(6) < lengths).long()
        self.words = torch.randint(1, 20, (size, 6), generator=generator) * self.mask
        self.labels = torch.randint(3, (size,), generator=generator)
        self.labels[[0, 1, 10]] = -100

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        row = {"input_ids": self.words, "attention_mask": self.mask, "labels": self.labels}
        return {name: values[index] for name, values in row.items()}


@pytest.fixture
def transformers(_global_states):
    found = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    found.logging.set_verbosity_error()
    return found


@pytest.fixture
def bert(transformers):
    """Small, from a configuration: random weights, nothing downloaded."""
    config = transformers.BertConfig(
        vocab_size=20,
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=6,
        num_labels=3,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    torch.default_generator.manual_seed(0)
    return transformers.BertForSequenceClassification(config)


def make_trainer(transformers, model, loss, folder, data, **settings):
    class InOrder(transformers.Trainer):
        def _get_train_sampler(self, *_):
            return torch.utils.data.SequentialSampler(data)

    settings = {"max_steps": 1, "report_to": "none", "logging_steps": 1, "max_grad_norm": 0.0, **settings}
    arguments = transformers.TrainingArguments(
        str(folder),
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
        lr_scheduler_type="constant",
        **settings,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    return InOrder(
        model, arguments, train_dataset=data, eval_dataset=data, compute_loss_func=loss, optimizers=(optimizer, None)
    )


pytest_own = pytest.mark.filterwarnings("default")  # the warnings of transformers are its own


@pytest_own
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_step_of_the_trainer_has_the_gradient_by_hand(transformers, bert, tmp_path, accumulate):
    data, term = Sentences(20), summary()
    before = {name: value.detach().clone() for name, value in bert.named_parameters()}
    logits = bert(input_ids=data.words, attention_mask=data.mask).logits
    by_batch = logits.log_softmax(-1).split(20 // accumulate)
    shares = [int((part != -100).sum()) / 17 for part in data.labels.split(20 // accumulate)]
    worth = sum(share * term(part) for share, part in zip(shares, by_batch, strict=True))
    (F.cross_entropy(logits, data.labels) - worth / N).backward()
    expected = {name: value.grad.clone() for name, value in bert.named_parameters()}
    settings = {"per_device_train_batch_size": 20 // accumulate, "gradient_accumulation_steps": accumulate}
    make_trainer(transformers, bert, SummaryLoss(term, N, steps=0), tmp_path, data, **settings).train()
    for name, value in bert.named_parameters():
        torch.testing.assert_close(before[name] - value, expected[name], rtol=1e-4, atol=1e-6)
    assert shares != [0.5, 0.5]


@pytest_own
def test_the_trainer_logs_what_was_seen(transformers, bert, logger, tmp_path):
    data = Sentences(20)
    trainer = make_trainer(
        transformers,
        bert,
        SummaryLoss(summary(), N, steps=0),
        tmp_path,
        data,
        max_steps=4,
        logging_steps=2,
        per_device_train_batch_size=10,
        eval_strategy="steps",
        eval_steps=3,  # between two lines of the log
    )
    trainer.add_callback(SummaryCallback(trainer, loggers=[logger], draw=lambda snapshot: snapshot.distance))
    trainer.train()
    rows = [row for row in trainer.state.log_history if "log_summary" in row]
    assert [row["step"] for row in rows] == [step for _, _, step in logger.histograms] == [2, 4]
    assert len([row for row in trainer.state.log_history if "loss" in row]) == 2
    for row, (name, snapshot, _), (_, drawn, _) in zip(rows, logger.histograms, logger.figures, strict=True):
        assert name == "summary"
        assert (row["log_summary"], row["summary_distance"]) == (snapshot.log_summary, snapshot.distance)
        assert drawn == snapshot.distance
    # evaluation is the cross-entropy: no more and no less
    last = trainer.evaluate()
    with torch.no_grad():
        logits = bert(input_ids=data.words, attention_mask=data.mask).logits
    # the Trainer weighs its evaluation batches of eight by their size
    parts = zip(logits.split(8), data.labels.split(8), strict=True)
    expected = sum(len(part) * F.cross_entropy(part, labels) for part, labels in parts) / 20
    assert last["eval_loss"] == pytest.approx(float(expected), rel=1e-5)


@pytest_own
def test_a_trainer_with_another_loss_is_refused(transformers, bert, tmp_path):
    trainer = make_trainer(transformers, bert, None, tmp_path, Sentences(20))
    with pytest.raises(ValueError, match="`trainer` must have a SummaryLoss as its compute_loss_func"):
        SummaryCallback(trainer)


def test_the_term_waits_for_the_labels(seed):
    term, (logits, labels) = summary(), batch(seed)
    alone = F.cross_entropy(logits, labels)
    whole = SummaryLoss(term, N, steps=0)({"logits": logits}, labels)
    counting = SummaryLoss(term, N, steps=4)
    found = [counting({"logits": logits}, labels) for _ in range(4)]
    torch.testing.assert_close(torch.stack(found), torch.stack([alone, whole, whole, whole]))
    told = SummaryLoss(term, N)
    with pytest.raises(ValueError, match="`SummaryLoss` needs the length of training"):
        told({"logits": logits}, labels)
    told.follow(0, 100)
    torch.testing.assert_close(told({"logits": logits}, labels), alone)
    told.follow(60, 100)
    torch.testing.assert_close(told({"logits": logits}, labels), whole)
