"""Saving and loading: nothing lost, nothing unpickled, a clear word where structures differ."""

import json
import sys

import pytest
import torch
from torch import nn

from selbo.nn import load, save, to_bayesian
from selbo.nn.storage import HEADER, describe_structure
from selbo.posteriors import as_posterior, forward_samples


def network(width: int = 6, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, width), nn.Linear(width, 2)
        )


def images() -> torch.Tensor:
    return torch.randn(5, 2, 4, 4, generator=torch.Generator().manual_seed(1))


def test_a_round_trip_keeps_every_bit(tmp_path):
    bnn = to_bayesian(network(), prior_std={"3": 0.3}, init_std=0.2)
    forward_samples(bnn, images(), 2, generator=torch.Generator().manual_seed(0))  # moves the BatchNorm statistics
    path = save(bnn, tmp_path / "folder" / "net.safetensors")
    other = load(to_bayesian(network(seed=9)), path)
    assert other.state_dict().keys() == bnn.state_dict().keys()
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in bnn.state_dict().items())
    draws = [
        forward_samples(net.eval(), images(), 3, generator=torch.Generator().manual_seed(2)) for net in (bnn, other)
    ]
    assert torch.equal(*draws)


def test_shared_weights_stay_shared(tmp_path):
    def tied(seed):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        net[1].weight = net[0].weight
        return to_bayesian(net)

    bnn = tied(0)
    other = load(tied(1), save(bnn, tmp_path / "tied"))
    assert other[0].posteriors[0] is other[1].posteriors[0]
    assert torch.equal(other[1].mean("weight"), bnn[0].mean("weight"))


def test_the_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    import safetensors.torch

    path = save(to_bayesian(network()), tmp_path / "net")
    before = path.read_bytes()

    def fail(*args, **kwargs):
        raise OSError("no space left")

    monkeypatch.setattr(safetensors.torch, "save", fail)
    with pytest.raises(OSError, match="no space left"):
        save(to_bayesian(network(seed=3)), path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["net"]


def test_a_posterior_is_saved_by_its_own_method(tmp_path):
    posterior = as_posterior(to_bayesian(network()))
    with pytest.raises(ValueError, match="got MeanField: a posterior has methods of its own, such as `save`"):
        save(posterior, tmp_path / "net")


def test_another_structure_is_refused_by_name(tmp_path):
    path = save(to_bayesian(network()), tmp_path / "net")
    with pytest.raises(
        ValueError, match=r"this is not the network that was saved in .*: '3' is Linear.*out_features=6"
    ):
        load(to_bayesian(network(width=7)), path)
    with pytest.raises(ValueError, match=r"'0' is Conv2d.* in the file and missing in the network"):
        load(to_bayesian(network(), exclude="0"), path)
    with pytest.raises(ValueError, match=r"'0.posteriors.0.mean' is \['torch.float32', .* and \['torch.float64'"):
        load(to_bayesian(network()).double(), path)


def test_a_foreign_file_is_refused(tmp_path):
    from safetensors.torch import save_file

    bnn = to_bayesian(network())
    text, missing, foreign, later = (tmp_path / name for name in ("text", "missing", "foreign", "later"))
    text.write_text("not a network, but long enough to be read as a header")
    save_file({"x": torch.zeros(2)}, foreign)
    save_file({"x": torch.zeros(2)}, later, metadata={HEADER: json.dumps({"format": "selbo-bnn-9"})})
    for path in (text, missing):
        with pytest.raises(ValueError, match=r"`path` must be a network saved by selbo, but .* cannot be read"):
            load(bnn, path)
    with pytest.raises(ValueError, match="has no such description"):
        load(bnn, foreign)
    with pytest.raises(ValueError, match="the file has format 'selbo-bnn-9', expected 'selbo-bnn-1'"):
        load(bnn, later)


@pytest.mark.parametrize(
    "header", ["", "[]", "{", '{"format": "selbo-bnn-1"}', '{"format": "selbo-bnn-1", "layers": 1}']
)
def test_a_damaged_header_is_refused(tmp_path, header):
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(2)}, tmp_path / "net", metadata={HEADER: header})
    with pytest.raises(ValueError, match=r"has no such description|does not describe its layers"):
        load(to_bayesian(network()), tmp_path / "net")


@pytest.mark.parametrize("fault", ["missing", "added", "shape"])
def test_a_header_must_describe_the_tensors(tmp_path, fault):
    from safetensors.torch import load_file, save_file

    bnn = to_bayesian(network())
    path = save(bnn, tmp_path / "net")
    tensors, name = load_file(path), "3.posteriors.0.mean"
    if fault == "missing":
        del tensors[name]
    else:
        tensors[name if fault == "shape" else "more"] = torch.zeros(1, 2)
    save_file(tensors, path, metadata={HEADER: json.dumps(describe_structure(bnn))})
    with pytest.raises(ValueError, match="the tensors in the file are not those that its header describes"):
        load(to_bayesian(network()), path)


def test_a_plain_network_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"`bnn` must be a network made by selbo\.to_bayesian"):
        save(network(), tmp_path / "net")


def test_without_safetensors_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(ImportError, match=r"pip install 'selbo\[train\]'"):
        save(to_bayesian(network()), tmp_path / "net")
