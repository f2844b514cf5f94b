import doctest
import inspect
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fsbench
import fsbench.api
from fsbench.cli.app import load_command
from fsbench.errors import FsbenchError, UsageError
from fsbench.evaluation.options import ComparingInPython, Evaluating, Extracting, Solve
from fsbench.evaluation.spec import command_of, protocols_of
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import sample_tasks
from tests.images import write_images
from tests.synthetic import Features
from tests.workspace import write_feature_files, write_photos

pytestmark = pytest.mark.usefixtures("folder")
GLYPHS = "features/glyphs-rn12.h5"
SQUARE: Any = np.ones((4, 3))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("api")
    write_feature_files(folder)
    write_photos(folder, classes=8, images=3)
    write_images(folder, {"labelled": ["jay", "tern"]}, images=2, seed=1)
    return folder


@pytest.fixture
def folder(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(prepared)
    return prepared


def test_every_public_name_is_there_and_its_examples_run() -> None:
    assert doctest.testmod(fsbench.api, raise_on_error=True).attempted > 9
    for name in fsbench.__all__:
        assert callable(getattr(fsbench, name))
    assert set(dir(fsbench)) == {*fsbench.__all__, "__version__"}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = fsbench.nothing


def test_tensors_in_tensors_out_arrays_in_arrays_out(features: Features) -> None:
    x = features.novel.features
    support, query, labels = x[None, :5], x[None, 10:30], np.arange(5)[None]
    array = fsbench.predict("ncm", support, labels, query, base=features.statistics)
    there = torch.from_numpy
    tensor = fsbench.predict("ncm", there(support), there(labels), there(query), base=features.statistics)
    assert isinstance(array, np.ndarray)
    assert isinstance(tensor, torch.Tensor)
    assert tensor.dtype == torch.float32
    np.testing.assert_allclose(tensor, array, atol=1e-6)


def test_evaluate_says_and_stores_nothing(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    record = fsbench.evaluate("bavardage:released", folder / GLYPHS, tasks=5, tau=0.5)
    assert record.run.params["variant"] == "released"
    assert record.run.params["tau"] == 0.5
    assert capsys.readouterr() == ("", "")
    assert not (folder / "results").exists()  # unless asked for
    first = fsbench.evaluate("ncm", GLYPHS, tasks=5, results=tmp_path)
    assert fsbench.evaluate("ncm", GLYPHS, tasks=5, results=str(tmp_path)).created == first.created
    assert len(list(tmp_path.glob("*.h5"))) == 1


def test_a_keyword_is_an_option_or_a_parameter(folder: Path) -> None:
    base = "from fsbench.methods.ncm import NearestClassMean\n"
    (folder / "own.py").write_text(base + "class Own(NearestClassMean):\n    batch: int = 1\n")
    assert fsbench.evaluate("own.py:Own", GLYPHS, tasks=5).run.params["batch"] == 1
    with pytest.raises(FsbenchError, match="batch: is an option and a parameter"):
        fsbench.evaluate("own.py:Own", GLYPHS, tasks=5, batch=3)


def test_compare_is_the_table_of_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.cli import run

    table = fsbench.compare("ncm,soft-kmeans", [GLYPHS], shots=1, settings="balanced", tasks=20)
    shown = run("compare", GLYPHS, "--methods", "ncm,soft-kmeans", "--shots", "1", "--settings", "balanced",
                "--tasks", "20", "--quiet").stdout  # fmt: skip
    assert str(table).split() == shown.split()
    assert "| ncm |" in table._repr_markdown_()
    table.show("csv", "table.csv")
    assert (folder / "table.csv").read_text().startswith("dataset,")
    table.show("json")
    assert capsys.readouterr().out.startswith("[")
    with pytest.raises(FsbenchError, match="'latex'"):
        table.show("latx")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fsbench.evaluate("bavardage", GLYPHS, taw=1), "Did you mean 'tau'"),
        (lambda: fsbench.evaluate("ncm", GLYPHS, tasks=0), "tasks: expected at least 1, got 0"),
        (lambda: fsbench.compare("ncm", []), "no feature file"),
        (lambda: fsbench.compare("ncm", GLYPHS, task=3), "Unknown argument 'task'.\nDid you mean 'tasks'?"),
        (lambda: fsbench.extract("mini,cub", "rn12"), "One data set at a time"),
        (lambda: fsbench.evaluate("ncm", SQUARE), "features: expected a feature file, got an array of shape"),
        (lambda: fsbench.evaluate("ncm", {"novel": (SQUARE, ["a"] * 4)}), "features['novel']: Labels must be"),
        (lambda: fsbench.evaluate("ncm", {"test": (np.ones((2, 3)), [0, 1])}), "features: 'test' is not a split"),
        (lambda: fsbench.evaluate("ncm", GLYPHS, shots=45, balanced=True), "Use --shots 25."),
    ],
)
def test_mistakes_are_answered_with_sentences(call: object, words: str) -> None:
    with pytest.raises(FsbenchError) as caught:
        call()  # type: ignore[operator]
    assert words in str(caught.value)


def test_arrays_in_memory_give_what_their_file_gives(features: Features) -> None:
    arrays: dict[str, tuple[Any, Any]] = {
        "base": (features.base.features, features.base.labels),
        "novel": (torch.from_numpy(features.novel.features), torch.from_numpy(features.novel.labels)),
    }
    record = fsbench.evaluate("bavardage", arrays, shots=5, tasks=20)
    assert record.answers == fsbench.evaluate("bavardage", GLYPHS, shots=5, tasks=20).answers
    assert (record.dataset, record.backbone) == ("arrays", "memory")
    table = fsbench.compare("ncm,bavardage", arrays, shots=1, tasks=10)
    assert len(table.records) == 6
    alone = fsbench.evaluate("simpleshot:L2N", arrays["novel"], tasks=10)
    assert alone.answers == fsbench.evaluate("simpleshot:L2N", arrays, tasks=10, base=arrays).answers
    val = {**arrays, "val": (features.val.features, features.val.labels)}
    assert not fsbench.evaluate("ncm", GLYPHS, tasks=10, base={"base": val["val"]}).command  # none has arrays
    tuned = fsbench.evaluate("soft-kmeans", val, tasks=10, tune=True)
    assert (tuned.command, tuned.dataset, tuned.origins.kind) == ("", "arrays", "tuned")
    assert not [*Path().glob("arrays*")]  # nothing is written next to arrays


def test_errors_name_the_argument_here_and_the_option_on_the_command_line() -> None:
    with pytest.raises(UsageError, match=r"^skip_infeasible: expected true or false, got 'x'") as caught:
        fsbench.compare("ncm", GLYPHS, skip_infeasible="x")
    assert caught.value.argument == "skip_infeasible"
    message = "Start one per GPU: torchrun --nproc-per-node gpu"
    assert UsageError("device", "none", message).hint == message  # as it is, in Python too


@pytest.mark.parametrize("alpha", [0.5, 10.0, None])
@pytest.mark.parametrize("method", ["bavardage", "bavardage:released", "alpha-tim", "soft-kmeans"])
def test_predict_and_evaluate_agree(features: Features, tmp_path: Path, method: str, alpha: float | None) -> None:
    path = features.write(tmp_path / "f.h5")
    params: dict[str, Any] = {"steps": 50, "rate": 2e-3} if method == "alpha-tim" else {"t_km": 20.0}
    balanced = alpha is None
    record = fsbench.evaluate(method, path, alpha=alpha, balanced=balanced, queries=30, tasks=6, seed=3, **params)
    tasks = sample_tasks(TaskProtocol(alpha=alpha, queries=30), features.novel.offsets, 3, np.arange(6))
    support, query = features.novel.features[tasks.support], features.novel.features[tasks.query]
    base = features.statistics
    p = fsbench.predict(method, support, tasks.support_labels, query, base=base, balanced=balanced, **params)
    np.testing.assert_array_equal(p.argmax(axis=2), record.answers.predicted)
    np.testing.assert_allclose(record.per_task, 100 * (record.answers.predicted == tasks.query_labels).mean(axis=1))


@pytest.mark.parametrize(
    ("function", "model", "own"),
    [
        (fsbench.evaluate, Evaluating, {"method", "features", "base", "options"}),
        (fsbench.compare, ComparingInPython, {"methods", "features", "base", "options"}),
        (fsbench.extract, Extracting, {"dataset", "backbone", "progress", "options"}),
    ],
)
def test_signature_and_help_list_every_option(function: Any, model: Any, own: set[str]) -> None:
    parameters = inspect.signature(function).parameters
    assert set(parameters) == model.model_fields.keys() | own
    for name, field in model.model_fields.items():
        if name not in own:
            assert parameters[name].default == field.default
            assert f"    {name} ({parameters[name].annotation}): {field.description}" in function.__doc__


@pytest.mark.parametrize(
    ("protocol", "others", "command"),
    [
        ({}, {}, "fsbench solve 'my features.h5' --shots 1 --method ncm"),
        ({"shots": 5, "alpha": None}, {"tune": True}, "--tune --shots 5 --balanced"),
        ({"alpha": 4.0, "ways": 3}, {"seed": 3, "split": "val"}, "--alpha 4 --ways 3 --seed 3 --split val"),
        ({"name": "keff", "ways": "all", "alpha": None, "present": 5, "pooled": True}, {}, "--shots 1 --protocol keff"),
        ({"present": "2-4", "queries": "9/class", "unknown": 2, "alpha": None}, {}, "--queries 9/class --balanced"),
    ],
)
def test_the_command_of_a_run_gives_the_run(protocol: Any, others: Any, command: str) -> None:
    rules = TaskProtocol(**protocol)
    of_method = {"method": "ncm", "parameters": {"tau": 0.1 + 0.2}}
    line = " ".join(command_of(Path("my features.h5"), of_method, rules, **others))
    words = shlex.split(line)
    assert {*shlex.split(command), "tau=0.30000000000000004"} <= set(words)
    context = load_command("solve").make_context("solve", words[2:])
    typed = [name for name in context.params if context.get_parameter_source(name).name != "DEFAULT"]
    again = Solve(**{name: context.params[name] for name in typed})
    assert {*shlex.split(f"fsbench solve {again.words()}")} == {*words}
    assert again.parameters == {"tau": 0.1 + 0.2}
    assert protocols_of(again) == (rules,)
