"""Pictures have one class and one split, whatever lists and links say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fsbench.data.scan import load_own
from fsbench.data.splitting import read_split_file
from fsbench.errors import FsbenchError
from tests.images import write_images

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"base": ["a"], "base": ["b"], "novel": ["a"]}', "'base' stands there twice"),
        ('{"base": [' + "9" * 5000 + "]}", "Could not read"),
        ('{"base": ["a"], "novel": ["a"]}', "both base and novel"),
    ],
)
def test_split_files_that_contradict_themselves(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "split.json").write_text(text)
    with pytest.raises(FsbenchError, match=r"split\.json") as caught:
        read_split_file(tmp_path / "split.json")
    assert words in caught.value.message


def test_the_same_pictures_are_never_two_classes(tmp_path: Path) -> None:
    root = write_images(tmp_path / "photos", {"base": ["a", "b"], "novel": ["c", "d"]}, images=2)
    for target in ("base/a", "novel/c", "base", "."):
        link = root / "novel" / "loop"
        link.symlink_to(root / target)
        with pytest.raises(FsbenchError, match="the same folder, or one lies in the other") as caught:
            load_own(root)
        assert str(link) in caught.value.message
        link.unlink()
    load_own(root)


def test_the_same_pictures_are_never_two_classes_of_a_list(tmp_path: Path) -> None:
    root = write_images(tmp_path / "photos", {"images": ["a", "b"]}, images=2) / "images"
    (root / "c").symlink_to(root / "a")
    (tmp_path / "split.json").write_text('{"base": ["a"], "novel": ["b"]}')
    assert load_own(root, split_file=tmp_path / "split.json").notes  # a link that no split names does no harm
    (tmp_path / "split.json").write_text('{"base": ["a"], "novel": ["b", "c"]}')
    with pytest.raises(FsbenchError, match=r"/a and .*/c are the same folder"):
        load_own(root, split_file=tmp_path / "split.json")


def test_links_to_folders_elsewhere_are_followed(tmp_path: Path) -> None:
    store = write_images(tmp_path / "disk", {"all": ["a", "b", "c"]}, images=2) / "all"
    for split, name in (("base", "a"), ("base", "b"), ("novel", "c")):
        (tmp_path / "photos" / split).mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / split / name).symlink_to(store / name)
    (tmp_path / "root").symlink_to(tmp_path / "photos")
    found = load_own(tmp_path / "root")
    assert {name: len(split) for name, split in found.splits.items()} == {"base": 4, "novel": 2}
