from typing import Any

import numpy as np
import pytest

import fsbench
from fsbench.errors import FsbenchError
from fsbench.evaluation.run import configure
from fsbench.evaluation.source import Source
from fsbench.evaluation.spec import MethodChoice
from fsbench.features.store import Provenance, with_text
from fsbench.methods.base import Context, Method
from fsbench.methods.bavardage import Bavardage
from fsbench.methods.registry import METHODS, method_class
from fsbench.methods.soft_kmeans import SoftKMeans
from fsbench.results.record import Origins
from fsbench.tasks.protocol import TaskProtocol
from tests.synthetic import Features


@pytest.mark.parametrize(
    ("preset", "balanced", "expected"),
    [("mini", True, (10, 50, 2)), ("tiered", False, (100, 100, 1)), ("cub", False, (10, 4, 5))],
)
def test_article_presets(features: Features, preset: str, balanced: bool, expected: tuple[float, float, float]) -> None:
    base = features.statistics
    method = Bavardage.configure(Context(balanced=balanced, preset=preset, base=base))
    t_vb, s_max = method.tau * base.images_per_class, method.sigma / base.images_per_class**0.5  # type: ignore[operator]
    assert (method.t_km, t_vb, s_max) == pytest.approx(expected)
    assert SoftKMeans.configure(Context(balanced=balanced, preset=preset)).t_km == expected[0]


def configured(name: str, features: Features, dataset: str, preset: str = "") -> tuple[Method, Origins]:
    novel = with_text(features.novel, features.novel.features[:10] + 1, "here")
    source = Source("novel", novel, features.statistics, Provenance(dataset, "rn12"))
    return configure(MethodChoice(name, name), source, TaskProtocol(), preset=preset)


@pytest.mark.parametrize("name", METHODS)
def test_the_name_of_a_data_set_changes_no_parameter(features: Features, name: str) -> None:
    known, unknown = (configured(name, features, dataset) for dataset in ("cub-feat", "own"))
    assert known == unknown
    assert known[1].kind == "default"


def test_presets_and_priors_are_those_of_the_benchmark_or_named_as_unknown(features: Features) -> None:
    method, origins = configured("bavardage", features, "cub-feat", preset="article")
    assert method == Bavardage.configure(Context(balanced=False, preset="cub", base=features.statistics))
    assert origins.preset == "cub"
    with pytest.raises(FsbenchError, match="no preset for own") as caught:
        configured("bavardage", features, "own", preset="article")
    assert "mini, fc100, cifarfs, tiered, cub" in caught.value.hint
    known, unknown = (Context(balanced=False, alpha=alpha, base=features.statistics) for alpha in (3.0, None))
    assert Bavardage.configure(known, prior_alpha="sampler").prior_alpha == 3.0
    with pytest.raises(FsbenchError, match="not known"):
        Bavardage.configure(unknown, prior_alpha="sampler")


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("bavardage", {"t_vb": 1.0, "tau": 1.0}, "a value was given in both"),
        ("bavardage", {"t_vb": -1}, "tau must be a positive number or 'learned', got -0.0"),
        ("bavardage", {"sigma": float("nan")}, "sigma must be a positive number"),
        ("bavardage", {"variant": "relased"}, "'released', 'transport' or 'weighted', got 'relased'."),
        ("bavardage", {"sigmma": 1.0}, "Did you mean 'sigma'"),
        ("ncm", {"rate": 1.0}, "Unknown parameter of ncm 'rate'."),
        ("tim-gd", {"steps": 2.5}, "steps must be a whole number, got 2.5."),
        ("tim-gd", {"rate": True}, "rate must be a number, got True."),
        ("laplacianshot", {"rectify": "no"}, "rectify must be true or false, got 'no'."),
        ("alpha-am", {"propagation": 1.0}, "propagation must be below 1, got 1.0."),
        ("unem-gaussian", {"balance": "1,2"}, "a number, or 10 with commas between them, of at least 0, got '1,2'."),
    ],
)
def test_wrong_parameters_are_refused(features: Features, name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(FsbenchError) as caught:
        method_class(name).configure(Context(balanced=False, base=features.statistics), **options)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("support", "labels", "query", "words"),
    [
        (np.ones((1, 2, 48)), np.array([[0, 2]]), np.ones((1, 3, 48)), "every class in every task"),
        (np.ones((2, 48)), np.array([0, 1]), np.ones((3, 48)), "support: expected (B, S, D), got (2, 48)"),
        (np.ones((1, 2, 48)), np.array([[0, 1]]), np.ones((1, 3, 47)), "query: expected (1, Q, 48)"),
        (np.ones((1, 2, 7)), np.array([[0, 1]]), np.ones((1, 3, 7)), "base: has 48 features per image, support has 7"),
        (np.full((1, 2, 48), np.nan), np.array([[0, 1]]), np.ones((1, 3, 48)), "support: must be finite"),
        ([["a"]], np.array([[0, 1]]), np.ones((1, 3, 48)), "support: expected an array of numbers"),
    ],
)
def test_predict_names_what_is_wrong(features: Features, support: Any, labels: Any, query: Any, words: str) -> None:
    with pytest.raises(FsbenchError) as caught:
        fsbench.predict("ncm", support, labels, query, base=features.statistics)
    assert words in str(caught.value)
    with pytest.raises(FsbenchError, match="needs statistics of the base classes"):
        fsbench.predict("ncm", np.ones((1, 2, 3)), np.array([[0, 1]]), np.ones((1, 4, 3)))
