"""Methods on devices that are not here: tensors without data on a GPU, one graph, no question to the device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from fsbench.errors import FsbenchError
from fsbench.evaluation.blocks import BlockSize, Embedded, embed_split, solve_rows
from fsbench.methods.alpha_am import AlphaAm, Am
from fsbench.methods.alpha_tim import AlphaTim
from fsbench.methods.baseline import Baseline, BaselinePlusPlus
from fsbench.methods.bavardage import Bavardage
from fsbench.methods.bd_cspn import BdCspn
from fsbench.methods.bms import Bms
from fsbench.methods.entropy_min import EntropyMin
from fsbench.methods.ilpc import Ilpc
from fsbench.methods.laplacianshot import LaplacianShot
from fsbench.methods.linalg import clamp_by_products, clamp_within_span
from fsbench.methods.ncm import NearestClassMean
from fsbench.methods.paddle import Paddle
from fsbench.methods.proto_lp import ProtoLp
from fsbench.methods.pt_map import PtMap
from fsbench.methods.simpleshot import SimpleShot
from fsbench.methods.soft_kmeans import SoftKMeans
from fsbench.methods.tim import TimAlternating, TimGradient
from fsbench.methods.unem import UnemGaussian
from fsbench.tasks.batch import TaskBatch
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import TaskRows, sample_tasks
from tests.synthetic import make_features

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
METHODS = [
    (Bavardage(), 96),
    (Bavardage(variant="released"), 96),
    (Bavardage(variant="transport"), 96),
    (Bavardage(tau="learned", stage="vb"), 96),
    (Bavardage(mixing="uniform"), 40),  # more samples than features
    (SoftKMeans(), 48),
    (NearestClassMean(), 48),
    (SimpleShot(), 48),
    (BdCspn(), 48),
    (LaplacianShot(rectify=True, steps=4), 48),
    (PtMap(epochs=1), 48),
    (Bms(steps=2, passes=3), 48),
    (ProtoLp(rounds=2), 48),
    (ProtoLp(rounds=2, assignment="transport", graph="anchor"), 20),  # more samples than features
    (Ilpc(steps=2), 48),
    (UnemGaussian(), 48),
    (Paddle(steps=3), 20),  # more samples than features
    (Baseline(steps=3), 48),
    (BaselinePlusPlus(steps=3), 48),
    (EntropyMin(variant="head", steps=3), 48),
    (TimGradient(steps=3), 48),
    (AlphaTim(steps=3), 48),
    (TimAlternating(steps=3), 48),
    (TimAlternating(steps=3), 20),  # more samples than features
    (AlphaAm(steps=3), 48),
    (Am(steps=2), 20),  # more samples than features
]


def inputs(width: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(3, 35, width), torch.arange(5).expand(3, 5).contiguous()


BASE = make_features(dimension=96).statistics


@pytest.mark.parametrize(("method", "width"), METHODS)
def test_embeds_and_classifies_on_a_fake_gpu(method: Any, width: int) -> None:
    """Tensors without data find tensors that were left on the CPU, and operations that depend on values."""
    with FakeTensorMode() as mode:
        tensors: dict[str, Any] = {
            name: mode.from_tensor(value) for name, value in vars(BASE).items() if torch.is_tensor(value)
        }
        base = replace(BASE, **tensors) if method.info.needs_base else None
        embedded = method.embed(torch.empty(105, 96, device="cuda"), base)
        assert embedded.device.type == "cuda"
        labels = torch.empty(3, 5, dtype=torch.int64, device="cuda")
        p = method.classify(TaskBatch(embedded.view(3, 35, -1), labels, 5))
    assert (p.shape, p.device.type, p.dtype) == ((3, 30, 5), "cuda", torch.float32)


class NoDoubles(TorchDispatchMode):
    """Fails where MPS, which has no float64, would hold some."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for tensor in found if isinstance(found, tuple) else (found,):
            if torch.is_tensor(tensor):
                assert (tensor.device.type, tensor.dtype) != ("mps", torch.float64), func
        return found


def test_the_released_clamp_avoids_float64_on_mps() -> None:
    with FakeTensorMode(), NoDoubles():
        gram = torch.empty(2, 6, 6, device="mps")
        clamped = clamp_within_span(gram, gram, 2.0)
    assert (clamped.device.type, clamped.dtype) == ("mps", torch.float32)


@pytest.mark.parametrize(("method", "width"), METHODS)
def test_the_solve_path_runs_on_a_fake_gpu(method: Any, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of `embed_split` and `solve_rows` but the counts, which are the one thing that comes back to the host."""
    split = make_features(dimension=96).novel
    drawn = sample_tasks(TaskProtocol(), split.offsets, 0, np.arange(7))
    cuda, base = torch.device("cuda"), BASE if method.info.needs_base else None
    with FakeTensorMode(allow_non_fake_inputs=True):
        spaces = embed_split(method, split, base, cuda)
        assert {(len(space), space.device.type) for space in spaces} == {(len(split.features), "cuda")}
        monkeypatch.setattr(torch.Tensor, "cpu", _copy_to_the_host)
        with pytest.raises(FsbenchError, match=r"7 counts on cuda"):
            solve_rows([Embedded(method, spaces)], drawn, BlockSize(3))


def _copy_to_the_host(counts: torch.Tensor) -> None:
    raise FsbenchError(f"{counts.shape[1]} counts on {counts.device.type}")


@pytest.mark.skipif(TORCH < (2, 15), reason="the compilers of torch 2.6, 2.7 and 2.10 cannot trace all methods")
@pytest.mark.parametrize(("method", "width"), METHODS)
def test_traces_into_one_graph(method: Any, width: int) -> None:
    torch.compiler.reset()  # or it counts the methods before as recompilations of one function
    rows, labels = inputs(width)

    def classify(rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = method.classify(TaskBatch(rows, labels, 5))
        return found

    torch.compiler.reset()  # one function is compiled for all methods, which would count as compiling it again
    compiled = torch.compile(classify, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(rows, labels), classify(rows, labels), atol=1e-4, rtol=1e-4)


class NoQuestions(TorchDispatchMode):
    """Fails on operations that make the host wait for a value of the device, as shapes that depend on one do."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    WAITING = ("_local_scalar_dense", "item", "nonzero", "masked_select", "unique", "equal", "is_nonzero", "bincount")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert not any(name == word or name.startswith(f"{word}_") for word in self.WAITING), name
        if name in {"index", "index_put", "index_put_"}:
            assert all(index is None or index.dtype not in {torch.bool, torch.uint8} for index in args[1]), name
        if name == "_to_copy":
            assert (kwargs or {}).get("device", args[0].device) == args[0].device, "a copy between devices"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("method", "width"), METHODS)
def test_never_waits_for_the_device(method: Any, width: int) -> None:
    count = 2 if isinstance(method, Bavardage) else 1
    spaces = tuple(torch.randn(60, width // count) for _ in range(count))
    rng = np.random.default_rng(0)
    drawn = TaskRows(
        classes=np.tile(np.arange(5), (4, 1)),
        support=rng.integers(0, 60, (4, 5)),
        query=rng.integers(0, 60, (4, 30)),
        query_labels=rng.integers(0, 5, (4, 30)),
    )
    with NoQuestions():
        right, asked, _ = solve_rows([Embedded(method, spaces)], drawn, BlockSize(3))
    assert (asked == 30).all()
    assert (right <= 30).all()


def test_the_clamp_of_gpus_never_waits_for_the_device() -> None:
    with NoQuestions():
        matrix = torch.eye(6).expand(2, 6, 6).double() * 3
        clamp_by_products(matrix, matrix, 2.0)


@pytest.mark.parametrize(
    "ask", [lambda x: x[0].item(), lambda x: x[x > 0], lambda x: bool((x > 0).any()), torch.nonzero]
)
def test_questions_are_noticed(ask: Any) -> None:
    with NoQuestions(), pytest.raises(AssertionError):
        ask(torch.ones(3))
