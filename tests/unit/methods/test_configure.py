from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import fsbench
from fsbench.errors import FsbenchError
from fsbench.evaluation.run import configure
from fsbench.evaluation.source import Source
from fsbench.evaluation.spec import MethodChoice
from fsbench.features.store import Provenance
from fsbench.methods.base import Context
from fsbench.methods.bavardage import Bavardage
from fsbench.methods.registry import METHODS, method_class
from fsbench.methods.soft_kmeans import SoftKMeans
from fsbench.tasks.protocol import TaskProtocol

if TYPE_CHECKING:
    from fsbench.methods.base import Method
    from fsbench.results.record import Origins
    from tests.synthetic import Features


@pytest.mark.parametrize(
    ("preset", "balanced", "expected"),
    [
        ("mini", True, (10, 50, 2)),
        ("mini", False, (50, 50, 1)),
        ("fc100", False, (50, 50, 1)),
        ("cifarfs", True, (10, 50, 2)),
        ("tiered", True, (10, 100, 2)),
        ("tiered", False, (100, 100, 1)),
        ("cub", True, (10, 4, 5)),
        ("cub", False, (10, 4, 5)),
    ],
)
def test_the_presets_of_the_article(
    features: Features, preset: str, balanced: bool, expected: tuple[float, float, float]
) -> None:
    base = features.statistics
    method = Bavardage.configure(Context(balanced=balanced, preset=preset, base=base))
    t_vb, s_max = method.tau * base.images_per_class, method.sigma / base.images_per_class**0.5  # type: ignore[operator]
    assert (method.t_km, t_vb, s_max) == pytest.approx(expected)
    assert SoftKMeans.configure(Context(balanced=balanced, preset=preset)).t_km == expected[0]


def test_an_unknown_preset_is_named(features: Features) -> None:
    with pytest.raises(FsbenchError, match="Did you mean 'mini'"):
        Bavardage.configure(Context(balanced=True, preset="mni", base=features.statistics))


def configured(name: str, features: Features, dataset: str, shots: int = 1, preset: str = "") -> tuple[Method, Origins]:
    source = Source("novel", features.novel, features.statistics, Provenance(dataset, "rn12"))
    return configure(MethodChoice(name, name), source, TaskProtocol(shots=shots), preset=preset)


@pytest.mark.parametrize("name", METHODS)
def test_the_name_of_a_data_set_changes_no_parameter(features: Features, name: str) -> None:
    known, unknown = (configured(name, features, dataset) for dataset in ("cub-feat", "own"))
    assert known == unknown
    assert known[1].kind == "default"


@pytest.mark.parametrize(("dataset", "benchmark"), [("mini", "mini"), ("cub-feat", "cub")])
def test_a_preset_that_is_asked_for_is_that_of_the_benchmark(features: Features, dataset: str, benchmark: str) -> None:
    method, origins = configured("bavardage", features, dataset, preset="article")
    assert method == Bavardage.configure(Context(balanced=False, preset=benchmark, base=features.statistics))
    assert origins.preset == benchmark
    assert configured("ncm", features, dataset, preset="article")[1].kind == "default"  # it has no parameters
    weight = configured("laplacianshot", features, dataset, 5, "article")[0].params()["weight"]
    assert weight == (0.8 if benchmark == "cub" else 0.7)


def test_a_data_set_without_a_preset_is_told_which_ones_have_one(features: Features) -> None:
    with pytest.raises(FsbenchError, match="no preset for own") as caught:
        configured("bavardage", features, "own", preset="article")
    assert "mini, fc100, cifarfs, tiered, cub" in caught.value.hint


@pytest.mark.parametrize(("balanced", "t_km", "mixing"), [(True, 10, "uniform"), (False, 50, "learned")])
def test_scale_free_defaults_everywhere_else(features: Features, balanced: bool, t_km: float, mixing: str) -> None:
    method = Bavardage.configure(Context(balanced=balanced, alpha=3.0, base=features.statistics))
    assert (method.t_km, method.tau, method.sigma, method.mixing) == (t_km, 0.3, 20.0, mixing)
    assert (method.prior_alpha, method.beta, method.steps, method.km_steps) == (2.0, 10.0, 5, 5)


def test_the_prior_is_that_of_the_sampler_only_if_asked_and_known(features: Features) -> None:
    known, unknown = (Context(balanced=False, alpha=alpha, base=features.statistics) for alpha in (3.0, None))
    assert Bavardage.configure(known, prior_alpha="sampler").prior_alpha == 3.0
    with pytest.raises(FsbenchError, match="not known"):
        Bavardage.configure(unknown, prior_alpha="sampler")


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("bavardage", {"t_vb": 1.0, "tau": 1.0}, "a value was given in both"),
        ("bavardage", {"t_vb": -1}, "tau must be a positive number or 'learned', got -0.0"),
        ("bavardage", {"t_vb": float("inf")}, "tau must be a finite number or 'learned', got inf"),
        ("bavardage", {"tau": -1}, "tau must be a positive number or 'learned', got -1."),
        ("bavardage", {"tau": "lerned"}, "tau must be a number or 'learned', got 'lerned'."),
        ("bavardage", {"sigma": float("nan")}, "sigma must be a positive number"),
        ("bavardage", {"variant": "relased"}, "variant must be 'article', 'released' or 'transport', got 'relased'."),
        ("bavardage", {"sigmma": 1.0}, "Did you mean 'sigma'"),
        ("ncm", {"rate": 1.0}, "ncm takes no parameters, got rate."),
        ("tim-gd", {"steps": 0}, "steps must be a whole number of at least 1, got 0."),
        ("tim-gd", {"steps": 2.5}, "steps must be a whole number, got 2.5."),
        ("tim-gd", {"steps": True}, "steps must be a whole number, got True."),
        ("tim-gd", {"rate": True}, "rate must be a number, got True."),
        ("tim-gd", {"rate": 10**400}, "rate must be a number"),
        ("laplacianshot", {"weight": -1.0}, "weight must be a number of at least 0, got -1.0."),
        ("laplacianshot", {"rectify": "no"}, "rectify must be True or False, got 'no'."),
        ("pt-map", {"rate": 1.5}, "rate must be at most 1, got 1.5."),
        ("alpha-am", {"propagation": 1.0}, "propagation must be below 1, got 1.0."),
        ("unem-gaussian", {"balance": "1,2"}, "a number, or 10 with commas between them, of at least 0, got '1,2'."),
        ("unem-gaussian", {"temperature": 0.0}, "a number, or 10 with commas between them, positive, got 0.0."),
    ],
)
def test_wrong_parameters_are_refused(features: Features, name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(FsbenchError) as caught:
        method_class(name).configure(Context(balanced=False, base=features.statistics), **options)
    assert words in str(caught.value)


def test_whole_numbers_that_stand_for_others_are_the_same_parameters() -> None:
    one, other = (method_class("tim-gd").configure(Context(balanced=False), rate=rate, steps=5) for rate in (1, 1.0))
    assert repr(one.params()) == repr(other.params())


@pytest.mark.parametrize("name", ["ncm", "soft-kmeans", "bavardage"])
def test_without_base_classes_a_method_says_what_it_lacks(name: str) -> None:
    with pytest.raises(FsbenchError, match="needs statistics of the base classes"):
        fsbench.predict(name, np.ones((1, 2, 3)), np.array([[0, 1]]), np.ones((1, 4, 3)))


@pytest.mark.parametrize(
    ("support", "labels", "query", "words"),
    [
        (np.ones((1, 2, 48)), np.array([[0, 2]]), np.ones((1, 3, 48)), "every class in every task"),
        (np.ones((1, 2, 48)), np.array([[-1, 0]]), np.ones((1, 3, 48)), "found -1"),
        (np.ones((1, 2, 48)), np.array([[0.0, 1.0]]), np.ones((1, 3, 48)), "support_labels: must be integers"),
        (np.ones((2, 48)), np.array([0, 1]), np.ones((3, 48)), "support: expected (B, S, D), got (2, 48)"),
        (np.ones((1, 2, 48)), np.array([[0, 1]]), np.ones((1, 3, 47)), "query: expected (1, Q, 48)"),
        (np.ones((1, 2, 7)), np.array([[0, 1]]), np.ones((1, 3, 7)), "base: has 48 features per image, support has 7"),
        (np.full((1, 2, 48), np.nan), np.array([[0, 1]]), np.ones((1, 3, 48)), "support: must be finite"),
        (np.ones((1, 2, 48)), np.array([["cat", "dog"]]), np.ones((1, 3, 48)), "support_labels: expected an array of"),
        (np.ones((1, 2, 48)), np.array([0, 1]), np.ones((1, 3, 48)), "support_labels: expected (1, 2), one per"),
        (np.ones((1, 2, 48)), np.array([[0, 0]]), np.ones((1, 3, 48)), "support_labels: a task needs at least two"),
        ([["a"]], np.array([[0, 1]]), np.ones((1, 3, 48)), "support: expected an array of numbers"),
    ],
)
def test_predict_names_what_is_wrong(features: Features, support: Any, labels: Any, query: Any, words: str) -> None:
    with pytest.raises(FsbenchError) as caught:
        fsbench.predict("ncm", support, labels, query, base=features.statistics)
    assert words in str(caught.value)
