"""Names of data sets, classes and images in any script come back as they were given."""

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fsbench.features.scatter import BaseStatistics, base_statistics
from fsbench.features.store import FeatureFile, Provenance, make_split, write_features
from fsbench.io.files import is_name
from fsbench.reporter import Reporter
from fsbench.results.record import load_record, save_record
from tests.records import make_record

# Whatever a file system takes for a name: any characters but the slash, NUL and halves of characters.
FILE_NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0/"), min_size=1, max_size=60)
CLASS_NAMES = st.lists(FILE_NAMES, min_size=2, max_size=4, unique=True)
# One line without commands to the terminal: what can name a data set.
NAMES = FILE_NAMES.filter(is_name)
SCRIPTS = ["Möwe grün", "鳥の写真", "हिन्दी पक्षी", "نیم‌فاصله", "ก็นก", "👩‍🔬🧪", "e\u0301", "a  b", "ж" * 120]


def written(folder: Path, name: str, class_names: list[str]) -> tuple[Path, list[str]]:
    """A feature file with two images per class, and the names of its images."""
    count = 2 * len(class_names)
    features = np.random.default_rng(0).random((count, 3), dtype=np.float32)
    images = [f"{class_name}/{class_name} {i}.jpg" for class_name in class_names for i in range(2)]
    split = make_split(features, np.repeat(np.arange(len(class_names)), 2), class_names, images)
    path = folder / "f.h5"
    write_features(path, Provenance(name, name, notes=[name]), {"base": split, "novel": split})
    return path, images


@given(name=NAMES, class_names=CLASS_NAMES)
@example(name=SCRIPTS[0], class_names=SCRIPTS)
@example(name=SCRIPTS[1], class_names=["x" * 255, "y"])
@settings(max_examples=40, deadline=None)
def test_feature_and_scatter_files_keep_names(name: str, class_names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, images = written(Path(folder), name, class_names)
        file = FeatureFile.open(path)
        assert (file.provenance.dataset, file.provenance.backbone) == (name, name)
        assert list(file.provenance.notes) == [name]
        read = file.read("novel")
        assert list(read.class_names) == class_names
        assert list(read.images) == images
        computed = base_statistics(file, Reporter(quiet=True))
        assert BaseStatistics.load(path.with_suffix(".scatter.h5")).digest == computed.digest == read.digest


@given(name=NAMES)
@settings(max_examples=40, deadline=None)
def test_records_keep_names(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        record = make_record(dataset=name, backbone=name)
        save_record(Path(folder) / "a.h5", record)
        assert load_record(Path(folder) / "a.h5") == record
