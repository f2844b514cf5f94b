"""Small trees of images, written in the layouts that people have."""

import io
import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from PIL import Image

_buffer = io.BytesIO()
Image.new("RGB", (8, 8), (10, 20, 30)).save(_buffer, "png")
PNG = _buffer.getvalue()


def put(root: Path, names: Iterable[str], content: bytes = PNG) -> Path:
    """Write files, creating their folders."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


def write_cifar(root: Path, class_names: list[str], labels: Mapping[str, list[int]]) -> dict[str, np.ndarray]:
    """Write an archive like cifar-100-python, with bytes as keys as its pickles have them."""
    root.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    written = {}
    for part, fine in labels.items():
        data = random.integers(0, 256, (len(fine), 3072), dtype=np.uint8)
        names = [f"x_s_{len(fine) - i:06d}.png".encode() for i in range(len(fine))]
        content = {b"data": data, b"fine_labels": fine, b"filenames": names}
        (root / part).write_bytes(pickle.dumps(content, protocol=2))
        written[part] = data
    meta = {b"fine_label_names": [name.encode() for name in class_names]}
    (root / "meta").write_bytes(pickle.dumps(meta, protocol=2))
    return written
