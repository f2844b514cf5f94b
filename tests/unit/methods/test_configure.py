from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import fsbench
from fsbench.errors import FsbenchError
from fsbench.evaluation.run import configure
from fsbench.evaluation.source import Source
from fsbench.methods.base import Context
from fsbench.methods.bavardage import Bavardage
from fsbench.methods.registry import METHODS, method_class, method_names
from fsbench.methods.soft_kmeans import SoftKMeans
from fsbench.tasks.protocol import TaskProtocol

if TYPE_CHECKING:
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


@pytest.mark.parametrize("dataset", ["mini", "tiered", "cub", "cub-feat", "fc100", "cifarfs"])
@pytest.mark.parametrize("name", [*METHODS])
def test_the_name_of_a_data_set_changes_no_parameter(features: Features, dataset: str, name: str) -> None:
    for shots, alpha in ((1, None), (5, 2.0)):
        protocol = TaskProtocol(shots=shots, alpha=alpha)
        known, unknown = (
            configure(name, Source(named, "rn12", "novel", features.novel, features.statistics), protocol, {})
            for named in (dataset, "own")
        )
        assert known == unknown
        assert known[1] == "default"


@pytest.mark.parametrize(("dataset", "benchmark"), [("mini", "mini"), ("cub", "cub"), ("cub-feat", "cub")])
def test_a_preset_that_is_asked_for_is_that_of_the_benchmark(features: Features, dataset: str, benchmark: str) -> None:
    source = Source(dataset, "rn12", "novel", features.novel, features.statistics)
    method, origin = configure("bavardage", source, TaskProtocol(), {}, "article")
    expected = Bavardage.configure(Context(balanced=False, preset=benchmark, base=features.statistics))
    assert (method, origin) == (expected, f"preset:{benchmark}")
    assert configure("ncm", source, TaskProtocol(), {}, "article")[1] == "default"  # it has no parameters
    five = TaskProtocol(shots=5)
    weight = 0.8 if benchmark == "cub" else 0.7
    assert configure("laplacianshot", source, five, {}, "article")[0].params()["weight"] == weight


def test_a_data_set_without_a_preset_is_told_which_ones_have_one(features: Features) -> None:
    source = Source("own", "rn12", "novel", features.novel, features.statistics)
    with pytest.raises(FsbenchError, match="no preset for own") as caught:
        configure("bavardage", source, TaskProtocol(), {}, "article")
    assert "mini, fc100, cifarfs, tiered, cub" in caught.value.hint
    with pytest.raises(FsbenchError, match="Did you mean 'article'"):
        configure("bavardage", source, TaskProtocol(), {}, "articl")


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
    ("options", "words"),
    [
        ({"t_vb": 1.0, "tau": 1.0}, "a value was given in both"),
        ({"s_max": 1.0, "sigma": 1.0}, "a value was given in both"),
        ({"t_vb": -1.0}, "t_vb must be a positive number"),
        ({"tau": 0.0}, "tau must be a positive number"),
        ({"tau": "lerned"}, "tau must be a positive number"),
        ({"sigma": float("nan")}, "sigma must be a positive number"),
        ({"t_vb": float("inf")}, "tau must be a positive number"),
        ({"sigma": float("inf"), "stage": "vb"}, "sigma must be a positive number"),
        ({"steps": 2.5}, "steps must be a whole number"),
        ({"steps": 0}, "steps must be a whole number from 1 to 1,000,000"),
        ({"beta": -1.0}, "beta must be a number of at least 0"),
        ({"variant": "relased"}, "variant must be one of"),
        ({"sigmma": 1.0}, "Did you mean 'sigma'"),
    ],
)
def test_wrong_parameters_are_refused(features: Features, options: dict[str, Any], words: str) -> None:
    with pytest.raises(FsbenchError) as caught:
        Bavardage.configure(Context(balanced=False, base=features.statistics), **options)
    assert words in str(caught.value)


def test_installed_packages_offer_methods_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("theirs", "fsbench.methods.ncm:NearestClassMean", "fsbench.methods")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [entry] if group == "fsbench.methods" else [])
    assert method_class("theirs").info.name == "ncm"
    assert "theirs" in method_names()
    with pytest.raises(FsbenchError, match="Did you mean 'theirs'"):
        method_class("theirz")


def test_unknown_methods_get_the_nearest_name() -> None:
    with pytest.raises(FsbenchError, match="Did you mean 'bavardage'"):
        method_class("bavardge")


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
