"""One of two processes that train by DDP in other libraries; test_adapted_processes.py starts it as torchrun would.

Each scenario takes one step with a rate of one, in which this process sees its part of the batch, and leaves the
difference that the step made, for each rank, in the folder that is the second argument. The first names the scenario.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, SequentialSampler, TensorDataset
from unit.training.toys import blobs, summary

import selbo

N, BATCH = 40, 16  # the batch of both processes; the Trainer makes a step of two such batches


def simple() -> nn.Module:
    """Sure of itself, so that the histograms of two parts of a batch differ."""
    net = selbo.models.MLP((4, 6, 3), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        for value in net.parameters():
            value.mul_(4)
    return net


def data() -> tuple[Tensor, Tensor]:
    """In order, so that the parts of the processes differ; not every label is known."""
    inputs, labels = blobs(2 * BATCH)
    order = labels.argsort(stable=True)
    inputs, labels = inputs[order], labels[order]
    labels[[1, 2, 9, 30]] = -100
    return inputs, labels


def difference(net: nn.Module, before: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: before[name] - value.detach() for name, value in net.named_parameters()}


def weights(net: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in net.named_parameters()}


def plain(rank: int, folder: Path) -> dict[str, Tensor]:
    """A loop with DistributedDataParallel, with one histogram for both processes, and with one for each."""
    from selbo.integrations.monitor import SummaryMonitor

    dist.init_process_group("gloo")
    found = {}
    for prefix, gather in {"": True, "apart.": False}.items():
        net, term = simple(), summary()
        before = weights(net)
        inputs, labels = (each[:BATCH].chunk(2)[rank] for each in data())
        wrapped = nn.parallel.DistributedDataParallel(net)
        optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
        with SummaryMonitor(term, gather=gather) as monitor:
            log_probs = wrapped(inputs).log_softmax(-1)
            (nn.functional.nll_loss(log_probs, labels.clamp(min=0)) - term(log_probs) / N).backward()
            optimizer.step()
        made = difference(net, before) | {"histogram": monitor.take()["summary"].histogram}
        found |= {prefix + name: value for name, value in made.items()}
        del wrapped, optimizer  # one that outlives the process group may hang
    dist.destroy_process_group()
    return found


def accelerate(rank: int, folder: Path) -> dict[str, Tensor]:
    """A loop with an Accelerator, which wraps the network in DDP."""
    from accelerate import Accelerator

    from selbo.integrations.monitor import SummaryMonitor

    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == 2
    net, term = simple(), summary()
    before = weights(net)
    inputs, labels = (each[:BATCH].chunk(2)[rank] for each in data())
    wrapped, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=1.0))
    with SummaryMonitor(term) as monitor:
        log_probs = wrapped(inputs).log_softmax(-1)
        accelerator.backward(nn.functional.nll_loss(log_probs, labels.clamp(min=0)) - term(log_probs) / N)
        optimizer.step()
    made = difference(net, before) | {"histogram": monitor.take()["summary"].histogram}
    del wrapped, optimizer
    accelerator.end_training()
    return made


def bayesian() -> tuple[nn.Module, selbo.objectives.Objective]:
    """A mean-field network and its objective."""
    return selbo.to_bayesian(simple(), init_std=0.1), selbo.SummaryELBO(summary(), N, summary_warmup=0)


def lightning_bayesian(rank: int, folder: Path) -> dict[str, Tensor]:
    """A Bayesian network in Lightning: three steps with Adam, with the same weight samples in both processes."""
    import lightning.pytorch as pl

    from selbo.integrations.lightning import SummaryCallback
    from selbo.random import generator_for

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network, self.objective = bayesian()

        def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
            noise = generator_for(0, "noise", self.global_step)
            terms = self.objective(self.network, *batch, num_samples=3, generator=noise)
            return terms.loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=0.01)

    module, (inputs, labels) = Module(), (each[:BATCH].chunk(2)[rank] for each in data())
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_steps=3,
        use_distributed_sampler=False,
        callbacks=[SummaryCallback(every_n_steps=1)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(module, DataLoader(TensorDataset(inputs, labels.clamp(min=0)), batch_size=BATCH))
    return weights(module.network)


def lightning(rank: int, folder: Path) -> dict[str, Tensor]:
    """Lightning's own DDP."""
    import lightning.pytorch as pl

    from selbo.integrations.lightning import SummaryCallback

    class Kept:
        def scalars(self, values: Any, step: int) -> None: ...
        def figure(self, name: str, figure: Any, step: int) -> None: ...
        def histogram(self, name: str, snapshot: Any, step: int) -> None:
            (folder / f"shown.{rank}").touch()

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network, self.summary = simple(), summary()

        def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
            log_probs = self.network(batch[0]).log_softmax(-1)
            return nn.functional.nll_loss(log_probs, batch[1].clamp(min=0)) - self.summary(log_probs) / N

        def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
            if self.global_rank == 0:  # must not wait for the other process
                self.summary(self.network(batch[0]).log_softmax(-1))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=1.0)

    module, (inputs, labels) = Module(), (each[:BATCH].chunk(2)[rank] for each in data())
    before = weights(module.network)
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=BATCH)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_steps=1,
        use_distributed_sampler=False,
        callbacks=[SummaryCallback(every_n_steps=1, loggers=[Kept()])],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(module, loader, loader)
    return difference(module.network, before) | {"log_summary": trainer.callback_metrics["log_summary"].double()}


def transformers(rank: int, folder: Path) -> dict[str, Tensor]:
    """The Trainer of Hugging Face, with accumulated gradients and labels that are not known."""
    from transformers import Trainer, TrainingArguments

    from selbo.integrations.transformers import SummaryLoss

    class Rows(Dataset):
        def __len__(self) -> int:
            return 2 * BATCH

        def __getitem__(self, index: int) -> dict[str, Tensor]:
            inputs, labels = data()
            return {"inputs": inputs[index], "labels": labels[index]}

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = simple()

        def forward(self, inputs: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
            return {"logits": self.network(inputs)}

    class InOrder(Trainer):
        def _get_train_sampler(self, *_: Any) -> SequentialSampler:
            return SequentialSampler(Rows())

    model = Model()
    before = weights(model.network)
    settings = TrainingArguments(
        str(folder / "trainer"),
        use_cpu=True,
        ddp_backend="gloo",
        max_steps=1,
        per_device_train_batch_size=BATCH // 2,
        gradient_accumulation_steps=2,
        max_grad_norm=0.0,
        lr_scheduler_type="constant",
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )
    loss = SummaryLoss(summary(), num_data=N, steps=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    InOrder(model, settings, train_dataset=Rows(), compute_loss_func=loss, optimizers=(optimizer, None)).train()
    return difference(model.network, before) | {"histogram": loss.monitor.take()["summary"].histogram}


if __name__ == "__main__":
    scenario, where, which = sys.argv[1], Path(sys.argv[2]), int(os.environ["RANK"])
    scenarios = {
        "plain": plain,
        "accelerate": accelerate,
        "lightning": lightning,
        "lightning_bayesian": lightning_bayesian,
        "transformers": transformers,
    }
    made = scenarios[scenario](which, where)
    save_file({name: value.contiguous() for name, value in made.items()}, where / f"{scenario}.{which}")
