"""Every fact about a method stands in its information, and every other place reads it there."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

import pytest
import torch

from fsbench.cli import complete
from fsbench.errors import FsbenchError
from fsbench.evaluation.spec import parse_methods
from fsbench.features.store import FeatureFile
from fsbench.methods.base import Context
from fsbench.methods.catalog import INFOS
from fsbench.methods.registry import (
    BASELINE,
    BASELINE_WITHOUT_BASE,
    METHODS,
    method_class,
    needs_base,
    plain_label,
    split_variant,
    told,
)
from fsbench.results.published import _names, published_rows
from tests.comparing import compared
from tests.records import make_record

if TYPE_CHECKING:
    from pathlib import Path

    from tests.synthetic import Features

INFO = {name: method_class(name).info for name in METHODS}
LABELS = [f"{name}:{word}" for name, info in INFO.items() if info.variants for word in info.variants.values]


@pytest.mark.parametrize("name", METHODS)
def test_a_class_has_its_row_of_the_catalog(name: str) -> None:
    assert INFO[name] is INFOS[name]
    assert INFOS[name].learned == hasattr(method_class(name), "learn")


def test_the_catalog_has_no_other_rows() -> None:
    assert [*INFOS] == [*METHODS]


@pytest.mark.parametrize("name", METHODS)
def test_what_is_said_of_a_method_holds_for_it(name: str, features: Features) -> None:
    cls, info = method_class(name), INFO[name]
    assert info.name == name
    assert info.title
    assert info.reference
    fields = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    assert set(info.grid) <= fields
    assert all(set(needed) <= fields for needed in info.published.values())
    if info.variants:
        assert getattr(cls, info.variants.parameter) == info.variants.default
        assert {*info.variants.in_all, *info.variants.without_base} <= set(info.variants.values)
    rows = torch.from_numpy(features.novel.features[:4])
    method = cls.configure(Context(balanced=False, base=features.statistics))
    if info.network:
        with pytest.raises(FsbenchError, match="works on images"):
            method.embed(rows, None)
    elif info.needs_base:
        with pytest.raises(FsbenchError, match="needs statistics of the base classes"):
            method.embed(rows, None)
    else:
        assert len(method.embed(rows, None)) == 4


@pytest.mark.parametrize("label", LABELS)
def test_every_variant_is_a_word_that_the_method_takes(label: str, features: Features) -> None:
    name, options = split_variant(label)
    method = method_class(name).configure(Context(balanced=False, base=features.statistics), **options)
    assert method.params().items() >= options.items()
    assert label in complete.methods(f"{name}:")
    assert plain_label(label) == (name if method == method_class(name)() else label)
    rows = torch.from_numpy(features.novel.features[:4])
    if method.info.network_for(options):
        with pytest.raises(FsbenchError, match="works on images"):
            method.embed(rows, None)
    elif needs_base(label):
        with pytest.raises(FsbenchError, match="needs statistics"):
            method.embed(rows, None)
    else:
        method.embed(rows, None)


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("ncm:article", "ncm has no variants"),
        ("bavardage:relased", "Did you mean 'released'"),
        ("bavardge:released", "Did you mean 'bavardage'"),
    ],
)
def test_a_wrong_variant_is_named(label: str, words: str) -> None:
    with pytest.raises(FsbenchError, match=words):
        split_variant(label)


def test_all_is_every_method_with_its_notable_variants() -> None:
    labels = [choice.label for choice in parse_methods("all")]
    assert [label for label in labels if ":" not in label] == [*METHODS]
    assert {label for label in labels if ":" in label} == {
        "bavardage:released", "bavardage:transport", "maml:transductive", "versa:transductive", "entropy-min:head",
    }  # fmt: skip


def test_what_methods_are_told_is_known() -> None:
    assert told("paddle") == told("unem-gaussian") == {"with --blind": "the same"}
    assert told("ncm")["base classes"]
    assert "base classes" not in told("simpleshot:L2N")
    assert told("tim-gd") == {
        "balanced or not": "marginal = 10 on balanced tasks, else 1",
        "class proportions": "assumed to be equal in every setting",
        "with --blind": "marginal = 1 in every setting; equal class proportions are still assumed",
    }
    assert told("bavardage") == {
        "base classes": "statistics of their features",
        "balanced or not": "t_km = 10 on balanced tasks, else 50; mixing = uniform on balanced tasks, else learned",
        "class proportions": "assumed to be equal on balanced tasks",
        "sampler's α": "only with --prior-alpha sampler, else prior_alpha = 2",
        "with --blind": "t_km = 50, mixing = learned in every setting",
    }
    assert told("laplacianshot")["balanced or not"].startswith(
        "weight = 0.7 (1-shot) or 0.3 (5-shot) on balanced tasks, else 1 (1-shot) or 0.7 (5-shot)"
    )
    assert told("alpha-tim")["shots"] == "order = 2 (1-shot) or 7 (5-shot)"
    assert told("bavardage:transport")["class proportions"] == "assumed to be equal in every setting"
    assert {name for name in METHODS if "balanced or not" in told(name)} == {
        "bavardage", "laplacianshot", "protolp", "soft-kmeans", "tim-gd",
    }  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_a_blind_method_is_what_the_page_says(name: str, features: Features) -> None:
    method = method_class(name)
    unbalanced, balanced = (
        method.configure(Context(balanced=balanced, base=features.statistics)).params() for balanced in (False, True)
    )
    blind = told(name)["with --blind"]
    assert ("in every setting" in blind) == (unbalanced != balanced)
    assert all(f"{key} = " in blind for key in unbalanced if unbalanced[key] != balanced[key])


def test_the_baselines_can_run_where_they_are_used() -> None:
    assert BASELINE in METHODS
    assert not needs_base(BASELINE_WITHOUT_BASE)


def test_variants_are_completed_after_a_colon() -> None:
    assert complete.methods("simp") == ["simpleshot"]
    assert complete.methods("ncm,simpleshot:U") == ["ncm,simpleshot:UN"]
    assert complete.methods("ncm:") == []


def test_every_published_name_of_a_method_has_rows() -> None:
    known = {row["method"] for row in published_rows()}
    for info in INFO.values():
        assert set(info.published) <= known


@pytest.mark.parametrize(
    ("method", "params", "names"),
    [
        ("bavardage", {}, ["BAVARDAGE"]),
        ("bavardage", {"stage": "vb"}, ["Soft-KMEANS+VB"]),
        ("simpleshot", {"norm": "CL2N"}, ["SimpleShot"]),
        ("simpleshot", {"norm": "UN"}, []),  # SimpleShot's published rows are of centred features
        ("tim-gd", {}, ["TIM", "TIM-GD"]),
        ("mine.py:Mine@12345678", {}, []),
    ],
)
def test_published_rows_belong_to_parameters(method: str, params: dict[str, Any], names: list[str]) -> None:
    assert _names(make_record(method, params=params)) == names


OWN = """
from __future__ import annotations
from dataclasses import dataclass
from pathlib import Path
from fsbench.methods.ncm import NearestClassMean

with (Path(__file__).parent / "executions").open("a") as log:
    log.write("x")

@dataclass(frozen=True)
class One(NearestClassMean):
    rate: float = 0.5

class Two(NearestClassMean):
    pass
"""


def test_a_file_of_the_user_is_executed_once_for_all_its_classes(features: Features, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(OWN)
    file = FeatureFile.open(features.write(tmp_path / "synthetic-none.h5"))
    for _ in range(2):
        compared(f"{own}:One,{own}:Two", [file], tasks=5, results=tmp_path / "results")
    assert (tmp_path / "executions").read_text() == "x"
    assert method_class(f"{own}:One").__module__ == method_class(f"{own}:Two").__module__
    assert method_class(f"{own}:One").configure(Context(balanced=False)).params() == {"rate": 0.5}


def test_a_file_that_changed_is_executed_again(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    rates = []
    for rate in ("0.5", "0.7"):  # of equal length, within one second: a compiled copy would pass for up to date
        own.write_text(OWN.replace("0.5", rate))
        rates.append(method_class(f"{own}:One").configure(Context(balanced=False)).params()["rate"])
    assert rates == [0.5, 0.7]
    assert (tmp_path / "executions").read_text() == "xx"
    assert not (tmp_path / "__pycache__").exists()


def test_a_file_that_fails_is_named_and_tried_again(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text("raise ValueError('no licence')")
    for _ in range(2):
        with pytest.raises(FsbenchError, match="cannot be imported: ValueError: no licence"):
            method_class(f"{own}:One")
    own.write_text("x = (")
    with pytest.raises(FsbenchError, match="cannot be imported: SyntaxError"):
        method_class(f"{own}:One")


def test_every_method_links_to_a_page_of_its_article() -> None:
    for name in METHODS:
        assert re.fullmatch(r"https://(arxiv\.org/abs/\d{4}\.\d{4,5}|doi\.org/10\.\S+)", method_class(name).info.url), (
            name
        )
