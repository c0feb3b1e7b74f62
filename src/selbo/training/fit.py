"""The user-facing training function: checks arguments, sets up a run, trains and returns the result."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from typing import Final

import torch
from torch import Tensor, nn

from selbo import _checks
from selbo.objectives import Objective
from selbo.objectives.label_priority import limited_to_labels
from selbo.objectives.unlabelled import Unlabelled
from selbo.posteriors import Deterministic, NaturalGradientPosterior, Posterior, as_posterior
from selbo.random import derive
from selbo.summary.grouped import GroupedSummary
from selbo.training import distributed
from selbo.training.batches import (
    Data,
    LoaderBatches,
    UnlabelledBatches,
    as_tensors,
    count_labels,
    make_batches,
    whole_set,
)
from selbo.training.callbacks import Callback, EarlyStopping, Listener, as_callbacks
from selbo.training.checkpoint import Checkpoint
from selbo.training.engines import AUGMENTATIONS, PRECISIONS, Optimizer, Plan, wants_graph
from selbo.training.groups import choose_rows_per_group
from selbo.training.schedules import SCHEDULES, Schedule
from selbo.training.stored import AnyBatches, RowStore, StoredBatches
from selbo.training.trainer import FitResult, Trainer
from selbo.training.validation import Validation, Validator

ENGINES: Final = ("auto", "eager", "cudagraph", "compile+cudagraph")
FEWEST_COMPILED_STEPS: Final = 10_000
"""Shorter runs would spend more time compiling than compiled steps save (docs/reference/performance.md)."""
NATURAL: Final = "natural_gradient"
ADAM_RATE: Final = 1e-3
NATURAL_RATE: Final = 0.1
VALIDATIONS: Final = 50
"""Default upper limit on the number of validations in a run, approximately."""


def fit(
    model: nn.Module | Posterior,
    objective: Objective,
    train: Data | RowStore,
    val: Data | None = None,
    *,
    unlabelled: Unlabelled | None = None,
    unlabelled_batch_size: int | None = None,
    groups: Tensor | None = None,
    rows_per_group: int | None = None,
    steps: int | None = None,
    epochs: int | None = None,
    batch_size: int = 256,
    num_samples: int = 1,
    posterior: str | None = None,
    optimizer: str | Optimizer | None = None,
    learning_rate: float | None = None,
    schedule: str = "constant",
    warmup_steps: int = 0,
    augment: str | None = None,
    validation: Validation | None = None,
    seed: int = 0,
    device: str | torch.device | None = None,
    precision: str = "fp32",
    engine: str = "auto",
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    callbacks: Sequence[Listener] | None = None,
    log_every: int = 50,
) -> FitResult:
    """Train a network in place.

    The same seed gives the same run, bit for bit on a CPU with the same number of threads, whether or not it was
    interrupted; torch's global random state is left unchanged. Under `torchrun` each process takes its part of each
    batch. With a summary term, all processes share the weight samples and the histogram covers the whole batch.

    Labels take priority, because a belief does not identify which class is which. The summary term has no weight in
    the first quarter of the steps and its full weight from half of them on (see `labels_first`; change this with
    ``summary_warmup`` of the objective). Its concentration is at most the number of labels unless the summary has
    ``overrule_labels``. At the end, a warning is issued if the network is worse than a constant classifier on labelled
    data.

    Labels may be missing, in part (-1) or altogether, if the objective has a term to learn from. Beliefs about groups
    (`GroupedSummary`) have their full weight from the first step; other beliefs wait for them as for labels.

    Args:
        model: A network made by `to_bayesian`, or a deterministic one; or its posterior.
        objective: Objective to maximise.
        train: (inputs, labels), a Dataset or a DataLoader. Tensors are moved to the device and shuffled each epoch, and
            an incomplete last batch is dropped. With a Dataset or DataLoader it is dropped if there is a summary term.
            An optional third tensor, shape (N,), holds relative weights of the examples, in the likelihood and in the
            histogram of the summary; it is divided by its mean. The label -1 marks unlabelled examples.
            Without labels, pass the inputs alone, or (inputs, None). A DataLoader may give (inputs, labels, groups).
            For more rows than fit into memory, pass a `selbo.training.stored.RowStore`.
        val: Validation data, in the same form, all with labels. If ``validation`` selects by a function that needs no
            labels, pass (inputs, None).
        unlabelled: Inputs of the summary instead of the training inputs, shape (U, ...). They are moved to the device
            and never augmented. Pass one tensor for all summaries, or one per summary, in a list or by name, with None
            for the training inputs. Summaries that share a tensor use the same batches. A
            `selbo.objectives.Grouped` instead of a tensor has groups, too.
        unlabelled_batch_size: Unlabelled inputs per step, per tensor, over all processes. By default the batch size of
            the labelled inputs, even if there are fewer labels than that.
        groups: Group of each example in ``train``, for a `GroupedSummary`, shape (N,); -1 for none.
        rows_per_group: Batches are made of groups: up to this number of examples of a group in a batch;
            larger groups are split, differently in each epoch. By default a quarter of the batch size; 1 for batches
            of random examples. See `selbo.training.GroupBatchSampler`.
        steps: Number of steps (5000 if neither this nor ``epochs`` is given).
        epochs: Number of passes over the data, instead of ``steps``.
        batch_size: B, over all processes; ignored for a DataLoader, which has its own.
        num_samples: Weight samples per step. With natural gradients, each is a separate pass, and BatchNorm
            updates its running statistics in each.
        posterior: ``"natural_gradient"`` to train a `NaturalGradientPosterior` of a deterministic network; it is the
            ``posterior`` of the result. To choose its prior and other settings, pass one as ``model`` instead. The
            update contains the KL, so `CrossEntropy` and `ELBO`, or `SummaryELBO`, give the same run.
        optimizer: ``"adam"`` (if not given), ``"sgd"`` (Nesterov momentum), or an `Optimizer` with momentum and weight
            decay. Not for a natural gradient, which is an optimiser itself.
        learning_rate: Initial learning rate; .001 if not given, and .1 for a natural gradient.
        schedule: ``"constant"``, ``"cosine"`` (towards zero) or ``"plateau"`` (halved after more than ten consecutive
            validations without improvement).
        warmup_steps: Number of steps over which the learning rate grows linearly at the beginning.
        augment: ``"crop_and_flip"`` for images, on the device; or ``"shift_and_flip"``, by one pixel instead of four,
            for those whose objects have one size and place; or None.
        validation: A `Validation`: how often to validate, with how many samples, and which weights to select.
        seed: Seed for all randomness.
        device: Device to train on; by default that of the network. Under `torchrun`, ``"cuda"`` is the device of each
            process.
        precision: ``"fp32"``, or ``"bf16"`` for the forward pass.
        engine: ``"auto"``: on CUDA, capture the whole step in a CUDA graph where possible, compiled if there are 10,000
            steps or more; ``"cudagraph"``: a CUDA graph without compilation, which starts at once and suits small
            networks; ``"eager"``; ``"compile+cudagraph"``: always compiled, and an error if it is not possible.
        checkpoint: Checkpoint file, or a `Checkpoint`. If it exists, training resumes from it.
        callbacks: `Callback` objects such as `Progress`, `JsonLines`, `TensorBoard` and `EarlyStopping`, and functions
            that are called with each record. If not given, a progress bar is shown on a terminal.
        log_every: Steps between records.

    Returns:
        Result of the run: selected weights, history, terms of every step and timing.

    Raises:
        Diverged: If the loss, a weight or the validation NLL is not finite. The message names the step and the last
            good checkpoint.

    Example:
        >>> import selbo
        >>> generator = torch.Generator().manual_seed(0)
        >>> inputs = torch.randn(64, 4, generator=generator)
        >>> labels = (inputs[:, 0] > 0).long()
        >>> network = selbo.models.MLP((4, 8, 2), generator=generator)
        >>> result = fit(
        ...     network,
        ...     selbo.CrossEntropy(num_data=64),
        ...     (inputs, labels),
        ...     steps=50,
        ...     batch_size=32,
        ... )
        >>> bool(result.curve[-1, 0] < result.curve[0, 0])
        True
    """
    network = as_posterior(model).network
    parameters = _trainable(network, objective)
    trained = _posterior(model, posterior, objective)
    where = parameters[0].device if device is None else _device(device)
    natural = isinstance(trained, NaturalGradientPosterior)
    chosen = _optimizer(optimizer, trained)
    listeners = as_callbacks(callbacks)
    how = _validation(validation, has_data=val is not None, schedule=schedule, listeners=listeners)
    kept = checkpoint if checkpoint is None or isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
    _checks.one_of("precision", precision, PRECISIONS)
    _checks.one_of("engine", engine, ENGINES)
    if augment is not None:
        _checks.one_of("augment", augment, AUGMENTATIONS)
    num_samples = _checks.whole("num_samples", num_samples, at_least=1)
    log_every = _checks.whole("log_every", log_every, at_least=1)
    seed = _checks.whole("seed", seed, at_least=0)
    if unlabelled is not None and not objective.has_summary:
        raise ValueError(f"`unlabelled` is for a summary term, but {type(objective).__name__} has none here")
    if unlabelled_batch_size is not None:
        _checks.whole("unlabelled_batch_size", unlabelled_batch_size, at_least=1)
    if steps is not None and epochs is not None:
        raise ValueError("`steps` and `epochs` cannot both be given: choose one")
    on_cuda = where.type == "cuda"
    with (
        torch.cuda.device(where) if on_cuda else nullcontext(),
        torch.random.fork_rng(devices=[where] if on_cuda else []),
        distributed.process_group(where) as (rank, world),
        limited_to_labels(objective, _number_of_labels(train, objective)),
    ):
        network.to(where)
        objective.to(where)
        batches: AnyBatches
        if isinstance(train, RowStore):
            batches = _stored(train, batch_size, where, seed, groups=groups, world=world)
        else:
            batches = make_batches(
                train,
                batch_size=batch_size,
                device=where,
                seed=seed,
                whole_only=objective.has_summary,
                shard=(rank, world),
                groups=groups,
                rows_per_group=None if groups is None else choose_rows_per_group(rows_per_group, batch_size),
            )
        total = _number_of_steps(steps, epochs, batches)
        if engine == "auto" and total < FEWEST_COMPILED_STEPS:
            engine = "cudagraph"
        on_graph = wants_graph(engine, where, batches, world)
        if on_graph:
            trained.use_channels_last()
        rate = _rate(learning_rate, natural=natural)
        plan = Plan(
            posterior=trained,
            objective=objective,
            optimizer=_build(chosen, trained, parameters, rate=rate, seed=seed, on_graph=on_graph, engine=engine),
            num_samples=num_samples,
            precision=precision,
            augment=augment,
            seed=seed,
            steps=total,
            device=where,
            rank=rank,
            world=world,
            parameters=parameters,
        )
        held_out = None
        if val is not None:
            by_labels = isinstance(how.select, str)
            held_out = whole_set("val", val, device=where, seed=derive(seed, "val"), needs_labels=by_labels)
        others = _unlabelled_batches(
            unlabelled, unlabelled_batch_size or _size(batches, batch_size), plan, rows_per_group
        )
        with _known_sizes(objective, batches, others):
            trainer = Trainer(
                plan,
                batches,
                others,
                validator=Validator(
                    plan, held_out, how, every=how.every or max(batches.per_epoch, total // VALIDATIONS)
                ),
                schedule=Schedule(schedule, rate=rate, steps=total, warmup=warmup_steps),
                checkpoint=kept,
                callbacks=listeners,
                log_every=log_every,
                settings={"optimizer": {"kind": NATURAL} if chosen is None else asdict(chosen)},
            )
            trainer.resume()
            with _training_mode(network, objective):
                trainer.run(engine)
            return trainer.result()


def _number_of_labels(train: Data | RowStore, objective: Objective) -> int:
    """Number of labels that a belief must not outweigh: N, unless some are missing."""
    tensors = as_tensors("train", train)
    if tensors is None or not objective.has_summary:
        return objective.num_data
    labels = count_labels(tensors)
    return objective.num_data if labels == len(tensors.inputs) else labels


def _stored(
    train: RowStore, batch_size: int, device: torch.device, seed: int, *, groups: Tensor | None, world: int
) -> StoredBatches:
    if groups is not None:
        raise ValueError("`groups` must be given with `train` as tensors, but it is a store of rows")
    if world > 1:
        raise ValueError("`train` must be tensors or a TensorDataset to train with several processes")
    size = _checks.whole("batch_size", batch_size, at_least=1)
    return StoredBatches(train, batch_size=size, seed=seed, device=device)


@contextmanager
def _known_sizes(objective: Objective, batches: AnyBatches, others: UnlabelledBatches | None) -> Iterator[None]:
    """Tell beliefs about groups how many examples each group has, within a block, unless a user did."""
    told: list[GroupedSummary] = []
    which = [None] * len(objective.terms) if others is None else others.which
    for term, each in zip(objective.terms, which, strict=True):
        if not isinstance(term.summary, GroupedSummary) or term.summary.sizes is not None:
            continue
        data = batches if each is None or others is None else others.sets[each]
        if isinstance(data, LoaderBatches | StoredBatches):
            raise ValueError("`sizes` must be given to selbo.GroupedSummary to train with a DataLoader")
        if data.data.groups is not None:
            term.summary.set_sizes(data.data.groups, data.data.weights)
            told.append(term.summary)
    try:
        yield
    finally:
        for summary in told:
            summary.sizes = None


@contextmanager
def _training_mode(*roots: nn.Module) -> Iterator[None]:
    """Put modules in training mode within a block; afterwards each returns to its previous mode."""
    modes = [(module, module.training) for root in roots for module in root.modules()]
    for root in roots:
        root.train()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _posterior(model: nn.Module | Posterior, name: str | None, objective: Objective) -> Posterior:
    """The posterior to train; for a natural gradient, checks that the objective leaves the KL to it."""
    found = as_posterior(model)
    if found.scale != 1:
        raise ValueError(
            f"`scale` of the posterior must be 1 in training, but is {found.scale:g}: change it afterwards"
        )
    if name is not None:
        _checks.one_of("posterior", name, (NATURAL,))
        if not isinstance(found, NaturalGradientPosterior):
            if not isinstance(found, Deterministic):
                kind = type(found).__name__
                raise ValueError(f"`model` must be a deterministic network for posterior={name!r}, but is {kind}")
            found = NaturalGradientPosterior(found.network, num_data=objective.num_data)
    if not isinstance(found, NaturalGradientPosterior):
        return found
    kl, kind = objective.kl, type(objective).__name__
    if objective.for_bayesian and (kl.weight != 1 or kl.warmup):
        raise ValueError(
            f"`{kind}` must have a KL of weight 1 without warm-up for a natural gradient, whose update contains it, "
            f"but its weight is {kl.weight:g} and its warm-up {kl.warmup}: set the temperature of the posterior instead"
        )
    if objective.estimator != "shared":
        raise ValueError(
            f"`estimator` must be 'shared' for a natural gradient, which samples the weights of the whole network, but "
            f"`{kind}` has {objective.estimator!r}"
        )
    if found.num_data != objective.num_data:
        raise ValueError(
            f"`num_data` must be the same for posterior and objective, but it is {found.num_data} and "
            f"{objective.num_data}"
        )
    return found


def _rate(given: float | None, *, natural: bool) -> float:
    if given is None:
        return NATURAL_RATE if natural else ADAM_RATE
    return _checks.positive("learning_rate", given)


def _build(
    chosen: Optimizer | None,
    posterior: Posterior,
    parameters: list[nn.Parameter],
    *,
    rate: float,
    seed: int,
    on_graph: bool,
    engine: str,
) -> torch.optim.Optimizer:
    if chosen is not None:
        return chosen.build(parameters, rate=rate, on_graph=on_graph)
    assert isinstance(posterior, NaturalGradientPosterior)
    lr = torch.tensor(rate, device=parameters[0].device) if on_graph else rate
    return posterior.train_by(lr=lr, seed=seed, capturable=on_graph, compiled=on_graph and engine != "cudagraph")


def _optimizer(given: str | Optimizer | None, posterior: Posterior) -> Optimizer | None:
    """The optimiser settings; None for a natural gradient."""
    if isinstance(posterior, NaturalGradientPosterior):
        if given is not None:
            raise ValueError("`optimizer` must not be given for a natural gradient, which is an optimiser itself")
        return None
    if isinstance(given, torch.optim.Optimizer):
        raise ValueError(
            "`optimizer` must be 'adam', 'sgd' or a selbo.training.Optimizer, but got one of torch's kind, "
            f"{type(given).__name__}: use it in a loop of your own, or pass posterior='natural_gradient'"
        )
    chosen = given if isinstance(given, Optimizer) else Optimizer(given or "adam")
    if chosen.weight_decay > 0 and posterior.is_bayesian:
        raise ValueError(
            f"`weight_decay` is for deterministic networks, but got {chosen.weight_decay:g} for a Bayesian one, which "
            "has a prior instead"
        )
    return chosen


def _validation(
    given: Validation | None, *, has_data: bool, schedule: str, listeners: Sequence[Callback]
) -> Validation:
    how = Validation() if given is None else given
    if not isinstance(how, Validation):
        raise ValueError(f"`validation` must be a selbo.training.Validation, but got {type(how).__name__}")
    _checks.one_of("schedule", schedule, SCHEDULES)
    needed = {
        f"select={how.selection!r}": how.select != "last",
        "schedule='plateau'": schedule == "plateau",
        "EarlyStopping": any(isinstance(each, EarlyStopping) for each in listeners),
    }
    if not has_data and any(needed.values()):
        raise ValueError(f"`val` must be given for {next(what for what, is_so in needed.items() if is_so)}")
    return how


def _trainable(model: nn.Module, objective: Objective) -> list[nn.Parameter]:
    if not isinstance(objective, Objective):
        raise ValueError(f"`objective` must be an objective such as selbo.ELBO, but got {type(objective).__name__}")
    parameters = [each for each in model.parameters() if each.requires_grad]
    if not parameters:
        raise ValueError("`model` must have at least one parameter that requires a gradient, but has none")
    _checks.unsharded(
        "model", parameters, "pass the network as it is, or write the loop yourself (docs/how-to/scale-out.md)"
    )
    return parameters


def _device(name: str | torch.device) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"`device` must be a torch device such as 'cpu' or 'cuda', but got {name!r}") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"`device` is {str(device)!r}, but no CUDA device is available: use 'cpu'")
    if str(device) == "cuda" and "LOCAL_RANK" in os.environ:
        return torch.device("cuda", int(os.environ["LOCAL_RANK"]))  # under torchrun each process has its own device
    return device


def _number_of_steps(steps: int | None, epochs: int | None, batches: AnyBatches) -> int:
    if epochs is not None:
        return _checks.whole("epochs", epochs, at_least=1) * batches.per_epoch
    return 5000 if steps is None else _checks.whole("steps", steps, at_least=1)


def _size(batches: AnyBatches, asked: int) -> int:
    """Requested number of labelled examples per step."""
    return (batches.batch_size or asked) if isinstance(batches, LoaderBatches) else asked


def _unlabelled_batches(
    unlabelled: Unlabelled | None, size: int, plan: Plan, rows_per_group: int | None
) -> UnlabelledBatches | None:
    assigned = plan.objective.assign(unlabelled)
    if not assigned.tensors:
        return None
    return UnlabelledBatches(
        assigned,
        batch_size=size,
        device=plan.device,
        seed=plan.seed,
        shard=(plan.rank, plan.world),
        rows_per_group=choose_rows_per_group(rows_per_group, size),
    )
