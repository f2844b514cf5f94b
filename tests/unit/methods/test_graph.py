"""Methods become one graph, and never wait for their device; `check_method` runs them on a fake GPU."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fsbench.methods.bavardage import clamp_by_products
from fsbench.methods.registry import method_class
from fsbench.tasks.batch import TaskBatch
from tests.pretend import NoWaiting

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
CASES: list[tuple[str, dict[str, Any], int]] = [  # with the width of the rows; 12 is less than a task has samples
    ("bavardage", {"km_steps": 2, "steps": 2}, 48),
    ("bavardage", {"variant": "released", "km_steps": 2, "steps": 1}, 48),
    ("bavardage", {"variant": "transport", "km_steps": 1, "steps": 1}, 48),
    ("bavardage", {"variant": "weighted", "sizes": "auto", "km_steps": 1, "steps": 1}, 48),
    ("lda", {}, 48),
    ("lda", {"variant": "ridge"}, 48),
    ("bavardage", {"tau": "learned", "stage": "vb", "km_steps": 1, "steps": 2}, 48),
    ("bavardage", {"mixing": "uniform", "km_steps": 2, "steps": 2}, 12),
    ("bavardage", {"variant": "released", "km_steps": 2, "steps": 1}, 12),
    ("soft-kmeans", {}, 48),
    ("ncm", {}, 48),
    ("simpleshot", {}, 48),
    ("bd-cspn", {}, 48),
    ("laplacianshot", {"rectify": True, "steps": 4}, 48),
    ("laplacianshot", {"steps": 4}, 8),
    ("pt-map", {"epochs": 1}, 48),
    ("bms", {"steps": 2, "passes": 3}, 48),
    ("protolp", {"rounds": 2}, 48),
    ("protolp", {"rounds": 2, "assignment": "transport", "graph": "anchor"}, 12),
    ("ilpc", {"steps": 2}, 48),
    ("unem-gaussian", {}, 48),
    ("paddle", {"steps": 3}, 12),
    ("baseline", {"steps": 3}, 48),
    ("baseline++", {"steps": 3}, 48),
    ("entropy-min", {"variant": "head", "steps": 3}, 48),
    ("tim-gd", {"steps": 3}, 48),
    ("alpha-tim", {"steps": 3}, 48),
    ("tim-adm", {"steps": 3}, 48),
    ("tim-adm", {"steps": 3}, 12),
    ("alpha-am", {"steps": 3}, 48),
    ("am", {"steps": 2}, 12),
    *((name, {}, 12) for name in ("zero-shot", "tip-adapter", "gda", "zlap", "bavardage-text")),
    ("gda", {}, 4),
    ("otter", {"rounds": 1, "steps": 2}, 12),
    ("transclip", {"steps": 1}, 12),
    ("transclip", {"variant": "released", "steps": 1}, 12),
    ("stata", {"steps": 1}, 12),
    ("em-dirichlet", {"steps": 1, "inner_steps": 2}, 12),
]
METHODS = pytest.mark.parametrize(("name", "options", "width"), CASES, ids=str)


def inputs(name: str, width: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Three tasks of 5 support samples and 10 queries, in the spaces of the method."""
    spaces = ("plain", "sphered") if name == "bavardage" else ("rows",)
    return {space: torch.randn(3, 15, width) for space in spaces}, torch.arange(5).expand(3, 5).contiguous()


@pytest.mark.skipif(TORCH < (2, 15), reason="the compilers of torch 2.6, 2.7 and 2.10 cannot trace all methods")
@METHODS
@torch._dynamo.config.patch(trace_autograd_ops=True)  # of AM and α-AM
def test_traces_into_one_graph(name: str, options: dict[str, Any], width: int) -> None:
    torch.compiler.reset()  # one function is compiled for all methods, which would count as compiling it again
    method, (rows, labels) = method_class(name)(**options), inputs(name, width)

    def classify(rows: dict[str, torch.Tensor], labels: torch.Tensor) -> torch.Tensor:
        return method.classify(TaskBatch(rows, labels, 5, torch.ones(3, 5, width)))

    compiled = torch.compile(classify, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(rows, labels), classify(rows, labels), atol=1e-4, rtol=1e-4)


@METHODS
def test_never_waits_for_the_device(name: str, options: dict[str, Any], width: int) -> None:
    method, (rows, labels) = method_class(name)(**options), inputs(name, width)
    with torch.inference_mode(), NoWaiting():  # as the engine calls
        assert method.classify(TaskBatch(rows, labels, 5, torch.ones(3, 5, width))).shape == (3, 10, 5)


def test_the_clamp_of_gpus_never_waits_for_the_device_and_questions_are_noticed() -> None:
    with NoWaiting():
        matrix = torch.eye(6).expand(2, 6, 6).double() * 3
        clamp_by_products(matrix, matrix, 2.0)
        for ask in (lambda x: x[0].item(), lambda x: x[x > 0], torch.nonzero):
            with pytest.raises(AssertionError):
                ask(torch.ones(3))


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that is made."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, (tuple, list)) else [made]:
            if isinstance(one, torch.Tensor):
                self.elements = max(self.elements, one.untyped_storage().nbytes() // one.itemsize)
        return made


@pytest.mark.parametrize(
    ("name", "options"),
    [
        (name, one)
        for name, one, width in CASES
        if (width == 48 or method_class(name).info.text) and method_class(name).info.cost == "fast"
    ],
    ids=str,
)
def test_memory_follows_the_work(name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a fast method is N × N or N × K × D where N > D, on tensors without data."""
    monkeypatch.setattr("fsbench.methods.neighbours._AT_ONCE", 1 << 16)
    ways, samples, width = 40, 2_000, 30
    with torch.device("meta"), torch.no_grad(), Largest() as largest:  # type: ignore[no-untyped-call]
        rows = {space: torch.empty(1, samples, width) for space in inputs(name, width)[0]}
        text = torch.empty(1, ways, width)
        method_class(name)(**options).classify(TaskBatch(rows, torch.arange(ways)[None], ways, text))
    assert largest.elements <= samples * ways
