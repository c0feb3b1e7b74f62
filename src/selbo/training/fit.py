"""The training loop, as a user calls it: arguments checked, a run set up, carried out and described."""

import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import torch
from torch import nn

from selbo import _checks
from selbo.nn.gaussian import gaussians
from selbo.objectives import Objective
from selbo.objectives.label_priority import limited_to_labels
from selbo.objectives.unlabelled import Unlabelled
from selbo.random import derive
from selbo.training import distributed
from selbo.training.batches import Data, LoaderBatches, TensorBatches, UnlabelledBatches, make_batches, whole_set
from selbo.training.callbacks import JsonLines, Progress, TensorBoard
from selbo.training.checkpoint import check_available
from selbo.training.engines import AUGMENTATIONS, OPTIMIZERS, PRECISIONS, Plan, make_optimizer, wants_graph
from selbo.training.schedules import SCHEDULES, Schedule
from selbo.training.trainer import Callback, FitResult, Run, Selection, selection_name

ENGINES: Final = ("auto", "eager", "captured", "graph")
VALIDATIONS: Final = 50
"""At most about so many in a run, unless the user asks for more."""


def fit(
    model: nn.Module,
    objective: Objective,
    train: Data,
    val: Data | None = None,
    *,
    unlabelled: Unlabelled | None = None,
    unlabelled_batch_size: int | None = None,
    steps: int | None = None,
    epochs: int | None = None,
    batch_size: int = 256,
    num_samples: int = 1,
    optimizer: str = "adam",
    learning_rate: float = 1e-3,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    schedule: str = "constant",
    augment: str | None = None,
    select: str | Selection = "last",
    eval_every: int | None = None,
    val_samples: int = 8,
    seed: int = 0,
    device: str | torch.device | None = None,
    precision: str = "fp32",
    engine: str = "auto",
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 20.0,
    checkpoint_end: bool = True,
    log: str | os.PathLike[str] | None = None,
    log_every: int = 50,
    tensorboard: str | os.PathLike[str] | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> FitResult:
    """Train a network in place.

    The same seed gives the same run, bit for bit on a CPU with the same number of threads, whether or not it was
    interrupted; torch's global random state is left as it was. Under `torchrun` every process takes its part of each
    batch; with a summary term all share the weight draws, and the histogram is that of the whole batch.

    Labels come first, because a belief cannot tell which class is which: the summary term has no weight in the first
    quarter of the steps and its full weight from half of them on (`labels_first`; ``summary_warmup`` of the objective
    changes that), and its concentration is at most the number of labels unless the summary has ``overrule_labels``. At
    the end the network is compared with a constant answer on labelled data; if it is worse, a warning says so.

    Args:
        model: A network made by `to_bayesian`, or a plain one.
        objective: What is maximised.
        train: (inputs, labels), a Dataset or a DataLoader. Tensors live on the device whole, are shuffled each epoch,
            and an incomplete last batch is dropped; of the others it is dropped if there is a summary term. A third
            tensor, shape (N,), says how much each example counts beside the others, in the likelihood and in the
            histogram of the summary; it is divided by its mean.
        val: The same, for validation.
        unlabelled: Inputs that the summary is about in the place of the training ones, shape (U, ...), on the device
            whole, never augmented. Of several summaries all look at this tensor; or give one each, in a list or by
            name, None for the training inputs; those that are given the same tensor see the same batches.
        unlabelled_batch_size: Unlabelled inputs a step, of each tensor, over all processes; as many as labelled ones
            are asked for if not given, also where fewer labels than that exist.
        steps: Number of steps (5000 if neither this nor ``epochs`` is given).
        epochs: Number of passes over the data, instead of ``steps``.
        batch_size: B, over all processes; a DataLoader has its own.
        num_samples: Weight draws a step.
        optimizer: ``"adam"`` or ``"sgd"`` (Nesterov momentum).
        learning_rate: Where the schedule starts.
        momentum: Of SGD.
        weight_decay: For plain networks; a Bayesian one has its prior.
        schedule: ``"constant"``, ``"cosine"`` (towards zero) or ``"plateau"`` (halved when more than ten validations in
            a row bring no improvement).
        augment: ``"crop_and_flip"`` for images, on the device; or None.
        select: Weights to end with: of the ``"last"`` step, of the ``"best"`` validation NLL, or of the highest score
            by a function of the validation log-probabilities (B, K) and labels (B,).
        eval_every: Steps between validations; if not given, an epoch, or a fiftieth of the run if that is longer.
        val_samples: Weight draws for validation.
        seed: Of everything random.
        device: Where to train; where the network is, if not given. Under `torchrun` ``"cuda"`` is each process's own.
        precision: ``"fp32"``, or ``"bf16"`` for the forward pass.
        engine: ``"auto"``: on CUDA the whole step is compiled and captured in a graph where possible; ``"captured"``:
            the same without compiling, which starts at once and suits small networks; ``"eager"``; ``"graph"``: an
            error if it is not possible.
        checkpoint: File that the run is kept in. If it exists, the run goes on from there.
        checkpoint_every: Seconds between writing it.
        checkpoint_end: Write it at the end, too. If not, a run that is longer than ``checkpoint_every`` leaves one of
            some time before its end, and a shorter one none.
        log: File of JSON lines, one record every ``log_every`` steps; written anew by a run that starts anew.
        log_every: Steps between records.
        tensorboard: Folder for TensorBoard.
        callbacks: Called with each record.
        progress: Show a bar; if not given, on a terminal.

    Returns:
        What the run came to.

    Raises:
        Diverged: If the loss (or a weight, or the validation NLL) is not finite; says at which step, and which
            checkpoint is good.

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
    parameters = _trainable(model, objective)
    where = parameters[0].device if device is None else _device(device)
    _checks.one_of("optimizer", optimizer, OPTIMIZERS)
    _checks.one_of("precision", precision, PRECISIONS)
    _checks.one_of("engine", engine, ENGINES)
    selection = selection_name(select)
    if augment is not None:
        _checks.one_of("augment", augment, AUGMENTATIONS)
    _checks.one_of("schedule", schedule, SCHEDULES)
    num_samples = _checks.whole("num_samples", num_samples, at_least=1)
    log_every = _checks.whole("log_every", log_every, at_least=1)
    seed = _checks.whole("seed", seed, at_least=0)
    momentum = _checks.non_negative("momentum", momentum)
    weight_decay = _checked_decay(weight_decay, model)
    if unlabelled is not None and not objective.has_summary:
        raise ValueError(f"`unlabelled` is for a summary term, but {type(objective).__name__} has none here")
    if unlabelled_batch_size is not None:
        _checks.whole("unlabelled_batch_size", unlabelled_batch_size, at_least=1)
    if checkpoint is not None:
        check_available()
    if val is None and (select != "last" or schedule == "plateau"):
        what = f"select={selection!r}" if select != "last" else "schedule='plateau'"
        raise ValueError(f"`val` must be given for {what}")
    if steps is not None and epochs is not None:
        raise ValueError("`steps` and `epochs` cannot both be given: choose one")
    on_cuda = where.type == "cuda"
    with (
        torch.cuda.device(where) if on_cuda else nullcontext(),
        torch.random.fork_rng(devices=[where] if on_cuda else []),
        distributed.process_group(where) as (rank, world),
        limited_to_labels(objective, objective.num_data),
    ):
        model.to(where)
        objective.to(where)
        batches = make_batches(
            train,
            batch_size=batch_size,
            device=where,
            seed=seed,
            whole_only=objective.has_summary,
            shard=(rank, world),
        )
        total = _number_of_steps(steps, epochs, batches)
        on_graph = wants_graph(engine, where, batches, world)
        if on_graph:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        plan = Plan(
            model=model,
            objective=objective,
            optimizer=make_optimizer(
                optimizer,
                parameters,
                rate=_checks.positive("learning_rate", learning_rate),
                momentum=momentum,
                weight_decay=weight_decay,
                on_graph=on_graph,
            ),
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
        run = Run(
            plan,
            batches,
            _unlabelled_batches(unlabelled, unlabelled_batch_size or _size(batches, batch_size), plan),
            validation=None if val is None else whole_set("val", val, device=where, seed=derive(seed, "val")),
            schedule=Schedule(schedule, rate=learning_rate, steps=total),
            steps=total,
            select=select,
            eval_every=_every("eval_every", eval_every, max(batches.per_epoch, total // VALIDATIONS)),
            val_samples=_checks.whole("val_samples", val_samples, at_least=1),
            checkpoint=None if checkpoint is None else Path(checkpoint),
            checkpoint_every=_checks.non_negative("checkpoint_every", checkpoint_every),
            checkpoint_end=checkpoint_end,
            settings={"optimizer": optimizer, "momentum": momentum, "weight_decay": weight_decay},
        )
        run.resume()
        board = TensorBoard(tensorboard if rank == 0 else None, start=run.step)
        lines = JsonLines(Path(log) if log is not None and rank == 0 else None, records=run.history)
        modes = [(module, module.training) for module in (*model.modules(), *objective.modules())]
        model.train()
        objective.train()
        try:
            with Progress(total, wanted=progress if rank == 0 else False, label="training") as bar:
                run.until_done(engine, log_every, bar, [lines.write, board.write, *callbacks])
        finally:
            board.close()
            for module, training in modes:
                module.training = training
        return run.result()


def _checked_decay(weight_decay: float, model: nn.Module) -> float:
    if _checks.non_negative("weight_decay", weight_decay) > 0 and gaussians(model):
        raise ValueError(
            f"`weight_decay` is for plain networks, but got {weight_decay:g} for a Bayesian one, which has its prior"
        )
    return weight_decay


def _trainable(model: nn.Module, objective: Objective) -> list[nn.Parameter]:
    if not isinstance(model, nn.Module):
        raise ValueError(f"`model` must be a torch module, but got {type(model).__name__}")
    if not isinstance(objective, Objective):
        raise ValueError(f"`objective` must be an objective such as selbo.ELBO, but got {type(objective).__name__}")
    parameters = [each for each in model.parameters() if each.requires_grad]
    if not parameters:
        raise ValueError("`model` must have at least one parameter that requires a gradient, but has none")
    return parameters


def _device(name: str | torch.device) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"`device` must be a device of torch such as 'cpu' or 'cuda', but got {name!r}") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"`device` is {str(device)!r}, but no CUDA device is available: use 'cpu'")
    if str(device) == "cuda" and "LOCAL_RANK" in os.environ:
        return torch.device("cuda", int(os.environ["LOCAL_RANK"]))  # under torchrun each process has its own
    return device


def _number_of_steps(steps: int | None, epochs: int | None, batches: TensorBatches | LoaderBatches) -> int:
    if epochs is not None:
        return _checks.whole("epochs", epochs, at_least=1) * batches.per_epoch
    return 5000 if steps is None else _checks.whole("steps", steps, at_least=1)


def _every(name: str, given: int | None, otherwise: int) -> int:
    return otherwise if given is None else _checks.whole(name, given, at_least=1)


def _size(batches: TensorBatches | LoaderBatches, asked: int) -> int:
    """Labelled examples a step, as asked for."""
    return (batches.batch_size or asked) if isinstance(batches, LoaderBatches) else asked


def _unlabelled_batches(unlabelled: Unlabelled | None, size: int, plan: Plan) -> UnlabelledBatches | None:
    assigned = plan.objective.assign(unlabelled)
    if not assigned.tensors:
        return None
    return UnlabelledBatches(
        assigned, batch_size=size, device=plan.device, seed=plan.seed, shard=(plan.rank, plan.world)
    )
