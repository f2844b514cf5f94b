"""A pretended GPU, whose tensors compute on the CPU or nowhere while operations and waits are counted; open_clip."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Self
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

CUDA = torch.device("cuda", 0)
MEMORY = 24 << 30
# The host waits for these: it gets a value or a shape, or checks one.
ASKING = {
    "_linalg_check_errors", "_linalg_eigh", "_linalg_svd", "_local_scalar_dense", "_unique2", "equal", "is_nonzero",
    "masked_select", "nonzero", "unique_dim",
}  # fmt: skip
NO_KERNEL = {"_unsafe_view", "empty", "empty_like", "empty_strided", "new_empty"}


class OnGpu(torch.Tensor):
    """A tensor that says that it is on a GPU; `held` is on the CPU, or on `meta` without values."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> OnGpu:
        made: OnGpu = torch.Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), storage_offset=held.storage_offset(), dtype=held.dtype, device=CUDA
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise AssertionError(f"{func} outside of PretendedGpu")


class PretendedGpu(TorchDispatchMode):
    """Within the block there is a GPU of 24 GiB. Its tensors cannot be mixed with others, as on a true one.

    Without values everything is counted and nothing computed: what comes back is zeros.
    """

    def __init__(self, *, values: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._mode_key = torch._C._TorchDispatchModeKey.FAKE  # so that torch asks for no driver
        torch._C._ensureCUDADeviceGuardSet()
        self.kernels: Counter[str] = Counter()  # operations on the GPU; a library may launch several kernels for one
        self.sent = self.fetched = self.copies = self.waits = 0  # bytes to and from the GPU, copies, and waiting for it
        self.place = torch.device("cpu" if values else "meta")
        self.pinned: dict[int, torch.Tensor] = {}  # by address; held, or others would get the same
        names = "empty_cache max_memory_allocated memory_allocated memory_reserved reset_peak_memory_stats"
        nothing: dict[str, Any] = {name: lambda *device: 0 for name in names.split()}
        self._patch = mock.patch.multiple(torch.cuda, Event=_Event, mem_get_info=lambda *_: (MEMORY, MEMORY), **nothing)

    def __enter__(self) -> Self:
        self._patch.start()
        self._lifted = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(True)
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        torch._C._set_only_lift_cpu_tensors(self._lifted)
        torch.__future__.set_overwrite_module_params_on_conversion(False)
        self._patch.stop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = func.overloadpacket.__name__, dict(kwargs or {})
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        there = {id(one.held): one for one in given if isinstance(one, OnGpu)}
        target = torch.device(kwargs["device"] if kwargs.get("device") is not None else CUDA if there else "cpu")
        if name == "copy_":
            target = args[0].device
        if name in {"is_pinned", "_pin_memory"}:
            return self._pin(name, args[0])
        source = args[name == "copy_"] if name in {"_to_copy", "copy_"} else None
        if source is not None and source.device != target:
            dtype = args[0].dtype if name == "copy_" else kwargs.get("dtype") or source.dtype
            self._count_copy(source, dtype, target, kwargs.get("non_blocking") or args[2:] == (True,))
        elif there:
            assert all(isinstance(one, OnGpu) or one.ndim == 0 for one in given), f"{name} mixes devices"
        if self.place.type == "meta" and target != CUDA and there:
            return torch.zeros(args[0].shape, dtype=args[0].dtype)
        if target == CUDA and (source is None or source.device == CUDA):
            by_mask = name == "index" and any(one is not None and one.dtype == torch.bool for one in args[1])
            self.waits += name in ASKING or by_mask
            self.kernels[name] += not (func.is_view or name in NO_KERNEL)
        if self.place.type == "meta" and name == "equal":
            return False
        if "device" in kwargs:
            kwargs["device"] = self.place if target == CUDA else target
        result = func(*tree_map(_held, args), **tree_map(_held, kwargs))
        if target != CUDA:
            return result
        return tree_map(lambda one: there[id(one)] if id(one) in there else _on_gpu(one), result)

    def _count_copy(self, tensor: torch.Tensor, dtype: torch.dtype, target: torch.device, asynchronous: bool) -> None:
        size = tensor.numel() * dtype.itemsize  # torch converts before it copies
        self.copies += 1
        self.sent += size if target == CUDA else 0
        self.fetched += size if target != CUDA else 0
        self.waits += not asynchronous or (target == CUDA and not self._pin("is_pinned", tensor))

    def _pin(self, name: str, tensor: torch.Tensor) -> Any:
        if name == "is_pinned":
            return tensor.untyped_storage().data_ptr() in self.pinned
        copied = tensor.clone()
        self.pinned[copied.untyped_storage().data_ptr()] = copied
        return copied


def _held(one: Any) -> Any:
    return one.held if isinstance(one, OnGpu) else one


def _on_gpu(one: Any) -> Any:
    return OnGpu(one) if isinstance(one, torch.Tensor) else one


class _Event:
    """A mark in the stream: as the pretended GPU computes at once, the time."""

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.time = time.perf_counter()

    def elapsed_time(self, end: _Event) -> float:
        return 1e3 * (end.time - self.time)


class NoWaiting(TorchDispatchMode):
    """Fails where the host would wait for a device: values that are read, shapes that depend on one, and copies."""

    ASKING = ("_local_scalar_dense", "item", "nonzero", "masked_select", "unique", "equal", "is_nonzero", "bincount")

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, options = func.overloadpacket.__name__, kwargs or {}
        assert not any(name == word or name.startswith(f"{word}_") for word in self.ASKING), name
        if name in {"index", "index_put", "index_put_"}:
            assert all(index is None or index.dtype not in {torch.bool, torch.uint8} for index in args[1]), name
        if name == "_to_copy" and torch.device(options.get("device") or args[0].device).type != args[0].device.type:
            assert options.get("non_blocking"), "a copy that the host waits for"
        return func(*args, **options)


def open_clip_of(model: type[torch.nn.Module], tokenize: Callable[[list[str]], torch.Tensor]) -> SimpleNamespace:
    """A stand-in for open_clip that knows one model."""
    names, tokens = (lambda: [model.__name__]), (lambda name: tokenize)
    return SimpleNamespace(list_models=names, create_model=lambda name, pretrained: model(), get_tokenizer=tokens)
