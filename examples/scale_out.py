"""A loop of one's own in several processes, with a summary of the whole batch and checkpoints.

    torchrun --standalone --nproc-per-node 2 --max-restarts 3 examples/scale_out.py --out demo

`--shard` trains with fully_shard (FSDP2) instead of DistributedDataParallel. A process that dies is started again by
torchrun, and training resumes from the last checkpoint. The same program runs in one process, without torchrun.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import checkpoint as files
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import selbo
from selbo.integrations.monitor import SummaryMonitor
from selbo.random import generator_for

N, BATCH = 2000, 200  # of all processes together


def train(rank: int, world: int, *, out: Path, shard: bool, steps: int, every: int) -> None:
    source = torch.Generator().manual_seed(0)  # the same data and network in all processes
    inputs = torch.randn(N, 20, generator=source)
    labels = (inputs[:, 0] + torch.randn(N, generator=source) > 1).long()
    network = selbo.models.MLP((20, 64, 2), generator=source)
    belief = selbo.expect(accuracy=0.83, class_fractions=[0.76, 0.24])
    summary = selbo.SummaryLikelihood(selbo.ScoreBins.equal(10), belief, concentration=500.0)
    objective = selbo.CrossEntropy(N, summary)
    if shard:
        model = fully_shard(network, mesh=init_device_mesh("cpu", (world,)))
    else:
        model = nn.parallel.DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    saved = sorted(out.glob("step-*/.metadata"))  # written last, so that it stands for a whole checkpoint
    start = int(saved[-1].parent.name.removeprefix("step-")) if saved else 0
    if saved:
        weights, state = get_state_dict(model, optimizer)
        files.load({"model": weights, "optimizer": state}, checkpoint_id=saved[-1].parent)
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    with SummaryMonitor(objective) as monitor:  # one histogram for all processes
        for step in range(start, steps):
            rows = torch.randperm(N, generator=generator_for(0, "rows", step))[:BATCH].chunk(world)[rank]
            terms = objective(model, inputs[rows], labels[rows], step=step, steps=steps)
            optimizer.zero_grad()
            terms.loss.backward()
            optimizer.step()
            if (step + 1) % every == 0:
                weights, state = get_state_dict(model, optimizer)
                files.save({"model": weights, "optimizer": state}, checkpoint_id=out / f"step-{step + 1:06}")
        found = monitor.take().get("summary")
    if rank == 0 and found is not None:
        print(f"steps {start} to {steps} in {world} processes, distance from the belief {found.distance:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for checkpoints")
    parser.add_argument("--smoke", action="store_true", help="a few steps, to see that everything works")
    parser.add_argument("--shard", action="store_true", help="fully_shard instead of DistributedDataParallel")
    given = parser.parse_args()
    torch.set_num_threads(1)
    alone = {} if "WORLD_SIZE" in os.environ else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group("gloo", **alone)
    steps, every = (12, 4) if given.smoke else (300, 50)
    train(dist.get_rank(), dist.get_world_size(), out=given.out, shard=given.shard, steps=steps, every=every)
    dist.destroy_process_group()  # not before the model is gone


if __name__ == "__main__":
    main()
