"""Tables of features: no label among the features, no more memory than a file of its size can need."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fsbench.errors import FsbenchError
from fsbench.exchange.detect import read_file
from tests.trust.isolate import refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork")
LABELS = np.arange(10) % 2


def imported(path: Path) -> Any:
    return read_file(path, "mini", "novel")[1].parts[0]


def whole_number(value: int, width: int = 1) -> bytes:
    """A number as parquet writes it, in at least so many bytes."""
    value *= 2
    found: list[int] = []
    while value or len(found) < width:
        found.append(value & 127)
        value >>= 7
    return bytes([*(byte | 128 for byte in found[:-1]), found[-1]])


def test_parquet_takes_no_more_memory_than_it_can_need(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "novel.parquet"
    for text, count in (("x" * 1_000_000, 7000), ("x" * 1000, 1_000_000)):
        texts = pa.DictionaryArray.from_arrays(np.zeros(count, dtype=np.int32), [text])
        numbers = {"label": np.arange(count) % 2, "f0": np.ones(count, dtype=np.float32)}
        for keep_schema in (True, False):
            parquet.write_table(
                pa.table({**numbers, "image": texts}), path, compression="zstd", store_schema=keep_schema
            )
            refused(path, imported)
    rows = 150_000_000
    vector = pa.ListArray.from_arrays(np.array([0, rows], dtype=np.int32), np.zeros(rows, dtype=np.float32))
    parquet.write_table(pa.table({"label": [0], "embedding": vector}), path)
    assert "more than a file of its size can hold" in refused(path, imported)
    content = path.read_bytes()
    end = len(content) - 8 - struct.unpack("<I", content[-8:-4])[0]
    stated = whole_number(rows)
    path.write_bytes(content[:end] + content[end:].replace(stated, whole_number(1, len(stated))))
    assert parquet.read_metadata(path).row_group(0).column(1).num_values == 1
    refused(path, imported)


def test_one_long_name_does_not_widen_a_million_cells(tmp_path: Path) -> None:
    path = tmp_path / "novel.csv"
    path.write_text("label,f0\n" + "x" * 1000 + ",1\n" + "a,2\n" * 1_000_000)
    assert "1000001 names of up to 1000 letters" in refused(path, imported)


def table(path: Path, header: str, row: Callable[[int], str]) -> Path:
    path.write_text("\n".join([header, *map(row, range(9))]) + "\n")
    return path


@pytest.mark.parametrize(
    ("header", "row", "words"),
    [
        ("class_name,class_id,f0,f1", lambda i: f"c{i % 3},{i % 3},{i / 9},{i / 7}", "'class_id' holds numbers"),
        ("label,width,f0,f1", lambda i: f"c{i % 3},{i},{i / 9},{i / 7}", "'width' holds numbers"),
        ("Label,label,f0", lambda i: f"{i % 3},{i % 3},{i / 9}", "'Label', 'label'"),
        ("label, LABEL ,f0", lambda i: f"{i % 3},{i % 3},{i / 9}", "two columns of the same name"),
        ("class_name,class_id,f0", lambda i: f"c{i % 3},{i % 3},{i / 9}", "'class_id' is the same for all"),
        ("label,code,a", lambda i: f"c{i % 3},{(i % 3) ** 2 / 7},{i / 9}", "'code' is the same for all"),
        (
            "label,is_0,is_1,is_2,f0,f1",
            lambda i: f"{i % 3},{i % 3 == 0:d},{i % 3 == 1:d},{i % 3 == 2:d},{i / 9},{i / 7}",
            "'is_0' is the same for all",
        ),
        ("label,f0", lambda i: f"{i % 3},{'1_0' if i == 4 else i}", "holds '1_0' in row 5"),
    ],
)
def test_labels_are_no_features(tmp_path: Path, header: str, row: Any, words: str) -> None:
    with pytest.raises(FsbenchError, match=r"novel\.csv") as caught:
        imported(table(tmp_path / "novel.csv", header, row))
    assert words in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("header", "row", "dimension"),
    [
        ("label,f0,f1,f2", lambda i: f"{i % 3},{i / 9},0,{i % 3}", 3),  # dead features are features
        ("label,0,1", lambda i: f"{i % 3},{i / 9},{i}", 2),
        ("y,mean,spread", lambda i: f"{i % 3},{i / 9},{i}", 2),
        ("label,conv0,conv1,fc0,fc1", lambda i: f"{i % 3},{i / 9},{i},{i},{i / 3}", 4),
        ("label,f0", lambda i: f"{i},{i / 9}", 1),  # one row per class
        ("id,label,f0,f1", lambda i: f"{i},{i % 3},{i / 9},{i}", 2),
    ],
)
def test_tables_that_people_write_are_read(tmp_path: Path, header: str, row: Any, dimension: int) -> None:
    assert imported(table(tmp_path / "novel.csv", header, row)).features.shape == (9, dimension)


def test_vectors_stand_alone(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    vectors = list(np.random.default_rng(0).random((10, 4), dtype=np.float32))
    for name, column in {"class_id": LABELS, "logits": [row[:2] for row in vectors]}.items():
        content = {"label": [f"c{label}" for label in LABELS], "embedding": vectors, name: column}
        parquet.write_table(pa.table(content), tmp_path / "novel.parquet")
        with pytest.raises(FsbenchError, match=name):
            imported(tmp_path / "novel.parquet")


def test_the_first_column_of_a_kind_counts(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", "label,path,image,subset,split,f0", lambda i: f"{i % 3},p,i,base,novel,{i}")
    _, found = read_file(path, "mini")
    assert [(part.split, part.images[0]) for part in found.parts] == [("novel", "i")]
    assert found.remarks == ("columns left out, as they are not features: 'subset', 'path'",)
