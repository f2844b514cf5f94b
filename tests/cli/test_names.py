"""Folders and classes with names in any script, through all commands, in a C locale."""

import json
import os
import subprocess
import sys
from pathlib import Path

from fsbench.features.store import FeatureFile
from tests.images import write_images

NAMES = {
    "base": ["Möwe grün", "鳥の写真", "👩‍🔬🧪"],
    "val": ["हिन्दी पक्षी", "ж" * 100],
    "novel": ["e\u0301cole", "طائر أزرق", 'ก็นก "<b>" &'],
}
DATASET = "фото 写真 🐦"
FEATURES = f"features/{DATASET}-rn12.h5"
TASKS = ("--tasks", "3", "--ways", "3", "--shots", "1", "--queries", "2", "--device", "cpu")
COMMANDS = [
    ("extract", "--data", DATASET, "--random-weights", "0", "--workers", "0", "--device", "cpu"),
    ("scatter",),
    ("compare", "--methods", "ncm,soft-kmeans", "--format", "markdown", "--out", "таблица.md", *TASKS),
    ("report", "--out", "отчёт.html"),
    ("solve", FEATURES, *TASKS),
]
PROGRAM = """
import json, sys
from fsbench.cli.app import main

for command in json.loads(sys.argv[1]):
    sys.argv = ["fsbench", *command]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
"""


def test_names_in_any_script_survive_all_commands(tmp_path: Path) -> None:
    write_images(tmp_path / DATASET, NAMES, images=4, side=8)
    for image in sorted((tmp_path / DATASET).rglob("*.png")):
        image.rename(image.with_name(f"{image.parent.name[:20]} {image.name}"))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(COMMANDS, ensure_ascii=False)],
        cwd=tmp_path,
        env={**os.environ, "LC_ALL": "C", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"{FEATURES}: {DATASET}, rn12, D = 640" in done.stdout
    read = FeatureFile.open(tmp_path / FEATURES).read("novel")
    assert list(read.class_names) == sorted(NAMES["novel"])
    assert DATASET in (tmp_path / "таблица.md").read_text(encoding="utf-8")
    assert DATASET in (tmp_path / "отчёт.html").read_text(encoding="utf-8")
    assert any(DATASET in path.name for path in (tmp_path / "results").iterdir())
