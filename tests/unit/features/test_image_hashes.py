import hashlib
import os
from pathlib import Path

import pytest

from fsbench.data.scan import OwnData
from fsbench.features import image_hashes as hashing
from fsbench.features.image_hashes import image_hashes
from tests.comparing import QUIET
from tests.images import SPLITS, write_images
from tests.watching import watch


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Everything that is hashed: images, and the index itself."""
    return watch(monkeypatch, hashing, "content_hash", lambda content: content)


def test_only_changed_files_are_read_again(tmp_path: Path, read: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    root, index = write_images(tmp_path / "own", SPLITS), tmp_path / "index"
    splits = OwnData(root).load().splits.values()

    def hashes() -> tuple[list[str], int]:
        read.clear()
        found = image_hashes(splits, index, QUIET)
        return found, sum(content.startswith(b"\x89PNG") for content in read)

    paths = [root / image for split in splits for image in split.images]
    expected = [hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest() for path in paths]
    for _ in range(2):
        assert hashes() == (expected, 32)  # a file that has just changed is not remembered
    monkeypatch.setattr(hashing, "_SETTLED", 0)
    assert hashes() == (expected, 32)
    assert hashes() == (expected, 0)
    times = paths[3].stat()
    content = bytearray(paths[3].read_bytes())
    content[-20] ^= 1
    paths[3].write_bytes(content)  # as many bytes as before, in the same place, and at the same time
    os.utime(paths[3], ns=(times.st_atime_ns, times.st_mtime_ns))
    changed, count = hashes()
    assert count == 1
    assert [one == other for one, other in zip(changed, expected, strict=True)].count(False) == 1
    index.write_bytes(index.read_bytes().replace(changed[5].encode(), changed[6].encode()))
    assert hashes() == (changed, 32)  # a damaged index is ignored
    paths[0].unlink()
    assert hashes()[0][0] == "unreadable base/b0/000.png"
