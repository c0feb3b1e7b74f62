"""Summaries on a GPU: captured in a CUDA graph, without waiting for the device, equal to the value of the CPU."""

import pytest
import torch

import selbo

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

PARTITIONS = {
    "bins": lambda: selbo.ScoreBins.equal(10),
    "shells": lambda: selbo.CornerShells(10),
    "classes": lambda: selbo.ClassRegions(3),
    "confidence": lambda: selbo.ConfidenceBins([0.4, 0.8], num_classes=5),
}
OPTIONS = [{}, {"form": "multinomial"}, {"ema_decay": 0.9}]


def batches(partition):
    generator = torch.Generator().manual_seed(0)
    return (3 * torch.randn(4, 2, 64, partition.num_classes, generator=generator)).log_softmax(-1)


def warm_up(step):
    """Run a step a few times on another stream, as before every capture."""
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):
            step()
    torch.cuda.synchronize()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", PARTITIONS)
def test_a_captured_graph_replays_the_term_and_its_gradient(name, options):
    partition = PARTITIONS[name]()
    cpu = selbo.SummaryLikelihood(PARTITIONS[name](), selbo.Uniform(), 100.0, **options)
    gpu = selbo.SummaryLikelihood(partition, selbo.Uniform(), 100.0, **options).cuda()
    data = batches(partition)
    static = data[0].cuda().requires_grad_()

    def step():
        static.grad = None
        value = gpu(static)
        value.sum().backward()
        return value

    warm_up(step)
    state = {key: value.clone() for key, value in gpu.state_dict().items()}
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = step()
    with torch.no_grad():
        for key, buffer in gpu.state_dict().items():
            buffer.copy_(state[key])
    cpu.load_state_dict({key: value.cpu() for key, value in state.items()})
    for batch in data:
        with torch.no_grad():
            static.copy_(batch)
        graph.replay()
        log_probs = batch.clone().requires_grad_()
        expected = cpu(log_probs)
        expected.sum().backward()
        torch.testing.assert_close(value.cpu(), expected, rtol=1e-4, atol=1e-3)
        torch.testing.assert_close(static.grad.cpu(), log_probs.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("name", PARTITIONS)
def test_nothing_waits_for_the_device(name):
    summary = selbo.SummaryLikelihood(PARTITIONS[name](), selbo.Uniform(), 100.0).cuda()
    log_probs = batches(summary.partition)[0].cuda().requires_grad_()
    summary(log_probs)  # the first batch, whose values are looked at
    torch.cuda.set_sync_debug_mode("error")
    try:
        summary(log_probs).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert log_probs.grad.isfinite().all()


def test_annealing_reaches_a_captured_graph():
    summary = selbo.SummaryLikelihood(selbo.ScoreBins.equal(5), selbo.Uniform(), 100.0).cuda()
    log_probs = batches(summary.partition)[0].cuda()
    for _ in range(3):
        summary(log_probs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = summary(log_probs)
    for factor in (1.0, 20.0):
        summary.partition.set_slope_factor(factor)
        graph.replay()
        torch.testing.assert_close(value, summary(log_probs))


@pytest.mark.parametrize("name", PARTITIONS)
def test_a_partition_left_on_the_cpu_still_answers(name):
    partition = PARTITIONS[name]()
    log_probs = batches(partition)[0]
    expected = partition.memberships(log_probs)
    torch.testing.assert_close(partition.memberships(log_probs.cuda()).cpu(), expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(partition.assign(log_probs.cuda()).cpu(), partition.assign(log_probs))


@pytest.mark.parametrize("size", [5, 16, 64])
def test_a_captured_graph_replays_exact_counts_of_groups(size):
    rows, classes = 3 * size, 10
    groups = torch.arange(4 * rows) // size  # four batches of three groups
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(classes, (4, 3, size), generator=generator)
    fractions = torch.nn.functional.one_hot(labels, classes).double().mean(2).flatten(0, 1)
    logits = torch.randn(4, rows, classes, generator=generator)

    def beliefs():
        summary = selbo.GroupedSummary(selbo.ClassRegions(classes), fractions, 100.0 * size, form="counts")
        summary.set_sizes(groups)
        return summary

    cpu, gpu = beliefs(), beliefs().cuda()
    static, static_groups = logits[0].cuda().requires_grad_(), groups[:rows].cuda()

    def step():
        static.grad = None
        value = gpu(static.log_softmax(-1), static_groups)
        value.backward()
        return value

    warm_up(step)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = step()
    for batch, own in zip(logits, groups.reshape(4, rows), strict=True):
        with torch.no_grad():
            static.copy_(batch)
            static_groups.copy_(own)
        graph.replay()
        here = batch.clone().requires_grad_()
        expected = cpu(here.log_softmax(-1), own)
        expected.backward()
        torch.testing.assert_close(value.cpu(), expected, rtol=1e-4, atol=1e-3)
        torch.testing.assert_close(static.grad.cpu(), here.grad, rtol=1e-3, atol=1e-4)
