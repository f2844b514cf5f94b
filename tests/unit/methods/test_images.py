"""Methods that work on images: gradients, batch statistics, and what an answer depends on."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fsbench.backbones.load import load_backbone
from fsbench.data.transforms import EvalTransform
from fsbench.errors import FsbenchError
from fsbench.methods.base import Context
from fsbench.methods.images.entropy_min import EntropyMin
from fsbench.methods.images.maml import Classifier, InnerLoop, Maml
from fsbench.methods.images.networks import CountedNorm, ImageMethod, ImageNetwork, counted_copy, set_counted
from fsbench.methods.images.versa import Amortised, Versa, log_predictive
from fsbench.tasks.batch import TaskBatch
from fsbench.testing import check_method

SIDE, WAYS, SHOTS, QUERIES = 16, 3, 2, 7
METHODS: dict[str, type[ImageMethod]] = {"maml": Maml, "versa": Versa, "entropy-min": EntropyMin}
OPTIONS: dict[str, Any] = {"maml": {"steps": 3, "rate": 0.1}, "versa": {}, "entropy-min": {"steps": 2, "rate": 0.01}}
TRANSFORM = EvalTransform("exact", SIDE, SIDE, (0.5, 0.4, 0.3), (0.2, 0.3, 0.25))


@pytest.fixture(scope="module")
def network() -> ImageNetwork:
    backbone = load_backbone("conv4", random_seed=3, width=4)
    generator = torch.Generator().manual_seed(5)
    for module in backbone.modules():
        if isinstance(module, nn.BatchNorm2d):  # not the values of a fresh network
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.copy_(torch.randn(len(module.running_mean), generator=generator) / 3)
            module.running_var.copy_(torch.rand(len(module.running_var), generator=generator) + 0.5)
    torch.manual_seed(0)
    extras = {name: tensor.detach() for name, tensor in Amortised(backbone.info.feature_dim).state_dict().items()}
    return ImageNetwork(backbone, TRANSFORM, extras)


def tasks_of(number: int = 2, seed: int = 0) -> TaskBatch:
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 256, (number, WAYS * SHOTS + QUERIES, SIDE * SIDE * 3), dtype=np.uint8)
    rows[:, :, ::7] //= 2
    labels = np.tile(np.arange(WAYS), (number, SHOTS))
    return TaskBatch(torch.from_numpy(rows), torch.from_numpy(labels), WAYS)


def make(name: str, network: ImageNetwork) -> ImageMethod:
    kind, _, variant = name.partition(":")
    options = OPTIONS[kind] | ({"variant": variant} if variant else {})
    network = ImageNetwork(network.backbone, TRANSFORM) if kind == "maml" else network  # without what VERSA learned
    method: ImageMethod = METHODS[kind].configure(Context(balanced=False, network=network), **options)
    return method


@pytest.mark.parametrize("name", ["maml", "maml:transductive", "versa", "versa:transductive", "entropy-min"])
def test_methods_pass_the_check_for_contributors(name: str, network: ImageNetwork) -> None:
    method = make(name, network)
    options = {key: value for key, value in method.params().items() if key != "weights"}
    # The noise of VERSA is drawn per class, so that its samples depend on how the classes are numbered.
    leave_out = ["classes"] if name.startswith("versa") else []
    check_method(type(method), network=method.network, leave_out=leave_out, **options)


def test_parameters_name_the_weights_and_follow_the_training(network: ImageNetwork) -> None:
    params = make("maml", network).params()
    assert params == {"variant": "inductive", "steps": 3, "rate": 0.1, "weights": "random seed 3"}
    head = EntropyMin.configure(Context(balanced=False), variant="head")
    assert "weights" not in head.params()
    with pytest.raises(FsbenchError, match="works on images"):
        Maml.configure(Context(balanced=False)).embed(torch.zeros(2, 3), None)
    bare = ImageNetwork(network.backbone, TRANSFORM)
    for method, foreign in ((Versa, bare), (Maml, network)):
        with pytest.raises(FsbenchError, match=f"not a network of {method.info.title}"):
            method.configure(Context(balanced=False, network=foreign)).classify(tasks_of(1))
    trained = ImageNetwork(network.backbone, TRANSFORM, {}, {"inner": {"steps": 3, "rate": 0.2}})
    params = Maml.configure(Context(balanced=True, network=trained)).params()
    assert (params["steps"], params["rate"]) == (6, 0.2)


@pytest.mark.parametrize("counted", [None, 2])
def test_counted_norm_takes_the_statistics_of_the_first_images(counted: int | None) -> None:
    torch.manual_seed(1)
    norm, maps = CountedNorm(4).double(), torch.randn(6, 4, 3, 3, dtype=torch.float64)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    norm.counted = counted
    known = maps[:counted].transpose(0, 1).flatten(1)
    mean, variance = known.mean(dim=1), known.var(dim=1, correction=0)
    expected = functional.batch_norm(maps, mean, variance, norm.weight, norm.bias, eps=norm.eps)
    assert torch.allclose(norm(maps), expected, atol=1e-12)


def outer_loss(params: dict[str, Tensor], model: Classifier, inner: InnerLoop, task: tuple[Tensor, ...]) -> Tensor:
    support, labels, queries, wanted = task
    return functional.cross_entropy(inner.logits(model, params, support, labels, queries), wanted)


@pytest.mark.parametrize("transductive", [False, True])
@pytest.mark.parametrize("second_order", [False, True])
def test_outer_gradients_agree_with_finite_differences(transductive: bool, second_order: bool) -> None:
    torch.manual_seed(2)
    backbone = load_backbone("conv4", random_seed=1, width=2).network
    model = Classifier(counted_copy(backbone), 8, WAYS).double()
    images = torch.randn(WAYS * SHOTS + QUERIES, 3, SIDE, SIDE, dtype=torch.float64)
    labels, wanted = torch.arange(WAYS).repeat(SHOTS), torch.randint(WAYS, (QUERIES,))
    task = images[: len(labels)], labels, images[len(labels) :], wanted
    start = {name: torch.randn_like(value) / 2 for name, value in model.named_parameters()}
    inner = InnerLoop(2, 0.05, transductive, second_order)
    free = {name: value.clone().requires_grad_() for name, value in start.items()}
    slopes = dict(zip(free, torch.autograd.grad(outer_loss(free, model, inner, task), [*free.values()]), strict=True))
    origin, measured = start, inner
    if not second_order:  # the steps are constants: the gradient is that of the loss where they end
        origin, measured = stepped(start, model, inner, task), InnerLoop(0, 0.05, transductive)
    generator = torch.Generator().manual_seed(0)
    for name, slope in slopes.items():
        direction = torch.randn(slope.shape, generator=generator, dtype=torch.float64)
        direction /= direction.norm()
        there = (origin | {name: origin[name] + step * direction} for step in (1e-6, -1e-6))
        leaves = ({key: value.clone().requires_grad_() for key, value in params.items()} for params in there)
        ahead, behind = (outer_loss(params, model, measured, task).item() for params in leaves)
        assert (slope * direction).sum().item() == pytest.approx((ahead - behind) / 2e-6, rel=1e-4, abs=1e-8), name


def stepped(params: dict[str, Tensor], model: Classifier, inner: InnerLoop, task: tuple[Tensor, ...]) -> Any:
    """The parameters after the steps on the support, written out."""
    set_counted(model, None)
    for _ in range(inner.steps):
        params = {name: value.detach().clone().requires_grad_() for name, value in params.items()}
        loss = functional.cross_entropy(torch.func.functional_call(model, params, (task[0],)), task[1])
        for name in [*params]:
            (slope,) = torch.autograd.grad(loss, [params[name]], retain_graph=True)
            params |= {name: params[name].detach() - inner.rate * slope}
    return {name: value.detach() for name, value in params.items()}


def test_versa_is_the_mean_of_the_softmax_over_samples() -> None:
    torch.manual_seed(4)
    amortised = Amortised(5).double()
    support, queries = torch.randn(6, 5, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)
    labels, noise = torch.tensor([0, 1, 2, 0, 1, 2]), torch.randn(10, 1, 3, dtype=torch.float64)
    mean, variance = amortised(support, labels, queries, 3)
    found = log_predictive(mean, variance, noise).exp()
    for q in range(4):
        expected = np.zeros(3)
        for sample in range(10):
            logits = []
            for k in range(3):
                centre = torch.stack([support[i] for i in range(6) if labels[i] == k]).mean(dim=0)
                weight, spread = amortised.weight_mean(centre), amortised.weight_log_variance(centre).exp()
                middle = (queries[q] * weight).sum() + amortised.bias_mean(centre)[0]
                width = (queries[q] ** 2 * spread).sum() + amortised.bias_log_variance(centre)[0].exp()
                logits.append((middle + width.sqrt() * noise[sample, 0, k]).item())
            chances = np.exp(logits - np.max(logits))
            expected += chances / chances.sum() / 10
        assert np.allclose(found[q].detach().numpy(), expected, atol=1e-12)


def reference_entropy_min(method: EntropyMin, network: ImageNetwork, tasks: TaskBatch) -> Tensor:
    """One task, written out: gradients by autograd on the raw tensors, Adam by its formulas."""
    model = copy.deepcopy(network.backbone.network)
    model.train()
    images, labels = network.images(tasks.rows[0]), tasks.support_labels[0]
    support, queries = images[: len(labels)], images[len(labels) :]

    def features(part: Tensor) -> Tensor:
        raw = model(part)
        return raw / raw.norm(dim=1, keepdim=True)

    with torch.no_grad():
        first = features(support)
        weights = torch.stack([first[labels == k].mean(dim=0) for k in range(WAYS)]).requires_grad_()
    tensors = [*model.parameters(), weights]
    moments = [[torch.zeros_like(tensor), torch.zeros_like(tensor)] for tensor in tensors]

    def logits(z: Tensor) -> Tensor:
        return torch.stack([-method.temperature / 2 * (z - w).square().sum(dim=1) for w in weights], dim=1)

    for count in range(1, method.steps + 1):
        known, last = logits(features(support)), features(queries)
        fit = -torch.stack([row.log_softmax(0)[label] for row, label in zip(known, labels, strict=True)]).mean()
        p = logits(last).softmax(dim=1)
        slopes = torch.autograd.grad(fit - (p * p.log()).sum(dim=1).mean(), tensors)
        with torch.no_grad():
            for tensor, slope, (m, v) in zip(tensors, slopes, moments, strict=True):
                m.mul_(0.9).add_(0.1 * slope)
                v.mul_(0.999).add_(0.001 * slope**2)
                tensor -= method.rate * (m / (1 - 0.9**count)) / ((v / (1 - 0.999**count)).sqrt() + 1e-8)
    return logits(last).softmax(dim=1)


def test_entropy_min_follows_its_equations(network: ImageNetwork) -> None:
    method = EntropyMin.configure(Context(balanced=False, network=network), steps=3, rate=1e-3)
    tasks = tasks_of(1)
    expected = reference_entropy_min(method, network, tasks)
    assert torch.allclose(method.classify(tasks)[0], expected, atol=1e-4)
