"""What a GPU would be asked to do, on a pretended one: equal answers, and few copies and waits."""

import numpy as np
import pytest
import torch

from fsbench.backbones.load import load_backbone
from fsbench.data.pixels import normalised
from fsbench.data.transforms import EvalTransform
from fsbench.evaluation import engine
from fsbench.evaluation.engine import TaskList, solve
from fsbench.methods.base import Context, Method
from fsbench.methods.bavardage import Bavardage
from fsbench.methods.images.maml import Maml
from fsbench.methods.images.networks import ImageNetwork
from fsbench.methods.proto_lp import leading_projection
from fsbench.methods.registry import METHODS, method_class
from fsbench.tasks.batch import gram
from fsbench.tasks.protocol import TaskProtocol
from tests.comparing import CPU
from tests.pretend import CUDA, PretendedGpu
from tests.properties.test_methods import FEWER
from tests.synthetic import make_features
from tests.watching import watch


def fast_methods() -> list[Method]:
    classes = {name: method_class(name) for name in METHODS if not method_class(name).info.text}
    context = Context(balanced=False, shots=1, alpha=2.0, base=DATA.statistics)
    made = [cls.configure(context, **FEWER.get(name, {})) for name, cls in classes.items() if cls.info.cost == "fast"]
    return [*made, Bavardage(variant="released"), Bavardage(variant="transport", km_steps=1, steps=1)]


DATA = make_features(dimension=96)
CHUNKS, CHUNK = 2, 6
TASKS = TaskList(TaskProtocol(), 3, np.arange(CHUNKS * CHUNK))


def test_fast_methods_answer_as_on_the_cpu_and_wait_for_the_gpu_once_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks are drawn once for all methods; features go over once, and the sphering once for every embedding."""
    methods = fast_methods()
    expected = solve(methods, DATA.novel, DATA.statistics, TASKS, device=CPU)
    monkeypatch.setattr(engine, "_MOST_PER_BLOCK_GPU", CHUNK)
    monkeypatch.setattr(engine, "_MOST_DRAWN", 1)
    drawn = watch(monkeypatch, engine, "sample_tasks", lambda rules, offsets, seed, tasks: len(tasks))
    with PretendedGpu() as gpu:
        embedded = engine.embed_all(methods, DATA.novel, DATA.statistics, CUDA)
        before = gpu.waits, gpu.sent
        outcomes = solve(methods, DATA.novel, DATA.statistics, TASKS, device=CUDA)
    for one, other in zip(expected, outcomes, strict=True):
        np.testing.assert_array_equal(one.answers.predicted, other.answers.predicted)
        np.testing.assert_allclose(one.answers.confidence, other.answers.confidence, atol=1e-3)
    assert drawn == [CHUNK] * CHUNKS
    indices = len(TASKS.numbers) * 8 * (80 + 5)  # rows and support labels
    assert gpu.sent - 2 * before[1] == indices
    assert gpu.waits - 2 * before[0] == 2 * CHUNKS  # for predictions, and for confidences that are ready with them
    of_base = sum(method.info.needs_base_for(method.params()) for method in methods) * 96 * 4
    assert before[1] == DATA.novel.features.nbytes + of_base + 4 * 96 * 96 * 4  # of LDA and of BAVARDAGE's variants
    assert len({id(table) for one in embedded for table in one.spaces.values()}) < len(methods)  # equal ones are shared
    assert {"_linalg_eigh", "_linalg_svd"}.isdisjoint(gpu.kernels)


def test_features_that_do_not_fit_at_once_are_embedded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = engine._embed(Bavardage(), torch.from_numpy(DATA.novel.features), DATA.statistics)
    monkeypatch.setattr(engine, "_EMBEDDED_AT_ONCE", 7)
    monkeypatch.setattr(engine, "free_memory", lambda device: 10 * engine._EMBEDDING_SHARE * 96 * 4)
    parts = watch(monkeypatch, Bavardage, "embed", lambda method, features, base: len(features))
    with PretendedGpu():
        spaces = engine.embed_all([Bavardage()], DATA.novel, DATA.statistics, CUDA)[0].spaces
        torch.testing.assert_close({name: table.cpu() for name, table in spaces.items()}, whole)
    assert set(parts[:-1]) == {10}


def test_mixed_devices_and_waits_are_noticed() -> None:
    with PretendedGpu() as gpu:
        there = torch.ones(3, device=CUDA)
        with pytest.raises(AssertionError, match="mixes devices"):
            there + torch.ones(3)
        for ask in (lambda: there.sum().item(), there.cpu, lambda: torch.ones(2).to(CUDA), lambda: there[there > 0]):
            waits = gpu.waits
            ask()
            assert gpu.waits == waits + 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("samples", "rank"), [(80, 80), (30, 30), (80, 20)], ids=["usual", "few", "low rank"])
def test_leading_directions_by_products_are_those_of_eigenvectors(samples: int, rank: int, dtype: torch.dtype) -> None:
    x = torch.randn(4, rank, 96, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = (x * torch.linspace(2, 0.1, 96, dtype=torch.float64) + 1).repeat(1, -(-samples // rank), 1)[:, :samples]
    values, vectors = torch.linalg.eigh(gram(x))
    leading = vectors[:, :, -40:]
    expected = leading * values[:, None, -40:] @ leading.mT
    projected = leading_projection(gram(x.to(dtype)), 40).double() @ x
    accuracy = 1e-9 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(gram(projected), expected, rtol=0, atol=accuracy * values.max().item())


def test_networks_and_images_go_over_once_and_images_as_bytes() -> None:
    transform = EvalTransform("exact", 16, 16, (0.5, 0.4, 0.3), (0.2, 0.3, 0.25))
    network = ImageNetwork(load_backbone("conv4", random_seed=3, width=4), transform)
    with PretendedGpu() as gpu:
        Maml().solver(network.on(CUDA), 5, CUDA)
        sent, waits = gpu.sent, gpu.waits
        Maml().solver(network.on(CUDA), 5, CUDA)
        assert (gpu.sent, gpu.waits) == (sent, waits)
        pixels = torch.zeros(8, 16, 16, 3, dtype=torch.uint8)
        for _ in range(3):
            images = normalised(pixels.pin_memory().to(CUDA, non_blocking=True), transform)
        assert images.shape == (8, 3, 16, 16)
        assert gpu.sent == sent + 3 * pixels.numel() + 2 * 3 * 4
        assert gpu.waits == waits + 2  # for mean and standard deviation, once
