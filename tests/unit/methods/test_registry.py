"""Methods by name: discovered files, variants, packages, files of the user, and the names of their results."""

import hashlib
import importlib
import re
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest

from fsbench.cli.app import complete_methods
from fsbench.errors import FsbenchError
from fsbench.evaluation.spec import parse_methods
from fsbench.features.store import FeatureFile
from fsbench.methods import registry
from fsbench.methods.base import Context
from fsbench.methods.registry import METHODS, installed_info, method_class, method_key, method_names, split_variant
from fsbench.results.published import published_rows, text_rows
from tests.comparing import compared
from tests.synthetic import Features

INFO = {name: method_class(name).info for name in METHODS}
LABELS = [f"{name}:{word}" for name, info in INFO.items() if info.variants for word in info.variants.values]


def test_methods_are_discovered_in_their_order_and_with_the_facts_of_their_classes() -> None:
    assert [*METHODS] == sorted(METHODS, key=lambda name: INFO[name].order)
    assert {"ncm", "pt-map", "soft-kmeans", "bavardage", "zero-shot", "maml"} < {*METHODS}
    for name, info in INFO.items():
        assert installed_info(name) == info
        assert info.name == name
        assert re.fullmatch(r"https://(arxiv\.org/abs/\d{4}\.\d{4,5}|doi\.org/10\.\S+)", info.url)
        assert set(info.published) <= {row["method"] for row in (*published_rows(), *text_rows())}
    assert len({info.order for info in INFO.values()}) == len(INFO)


@pytest.mark.parametrize("label", LABELS)
def test_every_variant_is_a_word_that_the_method_takes(label: str, features: Features) -> None:
    name, options = split_variant(label)
    method = method_class(name).configure(Context(balanced=False, base=features.statistics), **options)
    assert method.params().items() >= options.items()
    assert label in complete_methods(f"{name}:")
    assert registry.plain_label(label) == (name if method == method_class(name)() else label)


def test_a_wrong_name_or_variant_is_named() -> None:
    for label, words in (("ncm:article", "no variants"), ("bavardage:relased", "'released'"), ("ncn", "'ncm'")):
        with pytest.raises(FsbenchError, match=words):
            method_class(split_variant(label)[0])


def test_lists_of_methods_are_parsed_and_completed() -> None:
    labels = [choice.label for choice in parse_methods("all")]
    assert [label for label in labels if ":" not in label] == [*METHODS]
    assert [choice.label for choice in parse_methods("ncm, ncm,pt-map")] == ["ncm", "pt-map"]
    assert complete_methods("ncm,simpleshot:U") == ["ncm,simpleshot:UN"]


def install(monkeypatch: pytest.MonkeyPatch, *places: str) -> list[EntryPoint]:
    entries = [EntryPoint(f"theirs{n}", place, "fsbench.methods") for n, place in enumerate(places)]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: entries)
    return entries


def test_installed_packages_offer_methods_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    (entry,) = install(monkeypatch, "fsbench.methods.ncm:NearestClassMean")
    assert method_class("theirs0").info.name == "ncm"
    assert method_names() == registry.working_methods() == [*METHODS, "theirs0"]
    assert method_key("theirs0") == "theirs0"
    vars(entry)["dist"] = SimpleNamespace(version="1.2")
    assert method_key("theirs0") == "theirs0@1.2+ncm1"


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("fsbench_absent.mine:Mine", "ModuleNotFoundError: No module named 'fsbench_absent'"),
        ("fsbench.methods.base:MethodInfo", "is not a method"),
    ],
)
def test_a_broken_package_is_named_and_left_out(monkeypatch: pytest.MonkeyPatch, place: str, words: str) -> None:
    install(monkeypatch, "fsbench.methods.ncm:NearestClassMean", place)
    with pytest.raises(FsbenchError, match=words):
        method_class("theirs1")
    with pytest.warns(UserWarning, match=rf"theirs1.*{words}.*left out"):
        labels = [choice.label for choice in parse_methods("all")]
    assert "theirs0" in labels
    assert "theirs1" not in labels


OWN = """
from __future__ import annotations
from pathlib import Path
from fsbench.methods.ncm import NearestClassMean

with (Path(__file__).parent / "executions").open("a") as log:
    log.write("x")

class One(NearestClassMean):
    rate: float = 0.5

class Two(NearestClassMean):
    depends_on = ("w.npy",)
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "w.npy").write_bytes(b"1")
    return tmp_path / "own.py"


def test_a_file_of_the_user_is_executed_once_for_all_its_classes(features: Features, own: Path) -> None:
    file = FeatureFile.open(features.write(own.with_name("synthetic-none.h5")))
    for _ in range(2):
        compared(f"{own}:One,{own}:Two", [file], tasks=5, results=own.with_name("results"))
    assert own.with_name("executions").read_text() == "x"
    assert method_class(f"{own}:One").__module__ == method_class(f"{own}:Two").__module__
    configured = method_class(f"{own}:One").configure(Context(balanced=False), rate=1)
    assert repr(configured.params()) == "{'rate': 1.0}"


def test_a_file_that_changed_or_fails_is_executed_again(own: Path) -> None:
    rates = []
    for rate in ("0.5", "0.7"):  # of equal length, within one second: a compiled copy would pass for up to date
        own.write_text(OWN.replace("0.5", rate))
        rates.append(method_class(f"{own}:One").configure(Context(balanced=False)).params()["rate"])
    assert rates == [0.5, 0.7]
    assert own.with_name("executions").read_text() == "xx"
    assert not own.with_name("__pycache__").exists()
    own.write_text("raise ValueError('no licence')")
    for _ in range(2):
        with pytest.raises(FsbenchError, match="cannot be imported: ValueError: no licence"):
            method_class(f"{own}:One")
    own.write_text(OWN.replace("float", "Unknown"))
    with pytest.raises(FsbenchError, match="annotations of One cannot be read"):
        method_class(f"{own}:One").configure(Context(balanced=False))


def test_the_key_follows_the_file_and_what_it_depends_on(own: Path) -> None:
    one, two = (method_key(f"{own}:{name}") for name in ("One", "Two"))
    assert one == f"own.py:One@{hashlib.sha256(own.read_bytes() + b'+ncm1').hexdigest()[:8]}"  # which it extends
    own.with_name("w.npy").write_bytes(b"2")
    assert method_key(f"{own}:One") == one
    assert method_key(f"{own}:Two") != two
    loaded = method_class(f"{own}:One")
    own.write_text(OWN + "\n")
    assert method_key(f"{own}:One", loaded) == one  # of what was loaded
    assert method_key(f"{own}:One") != one
    own.with_name("w.npy").unlink()
    with pytest.raises(FsbenchError, match=r"depends on w\.npy, which cannot be read"):
        method_key(f"{own}:Two")
    renamed = own.rename(own.with_name("a\nb.py"))  # a name that no record may have
    with pytest.raises(FsbenchError, match="cannot be recorded"):
        method_key(f"{renamed}:One")


@pytest.mark.parametrize(("module", "file"), [("lib_of_own.core", "lib_of_own/core.py"), ("own_help", "own_help.py")])
def test_helpers_are_part_of_a_method(own: Path, monkeypatch: pytest.MonkeyPatch, module: str, file: str) -> None:
    monkeypatch.syspath_prepend(own.parent)
    (own.parent / file).parent.mkdir(exist_ok=True)
    own.write_text(OWN.replace("from pathlib", f"from {module} import RATE\nfrom pathlib").replace("0.5", "RATE"))
    for rate in (0.5, 0.7):
        (own.parent / file).write_text(f"RATE = {rate}")
        assert method_class(f"{own}:One").configure(Context(balanced=False)).params() == {"rate": rate}


def test_the_key_follows_what_is_imported_from_elsewhere_and_late(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helpers = [own.with_name(f"own_{name}.py") for name in ("first", "second", "third", "fourth", "unused")]
    for helper, text in zip(helpers, ("", "from own_third import *", "from . import own_fourth", "", ""), strict=True):
        helper.write_text(text)
    monkeypatch.syspath_prepend(own.parent)
    importlib.import_module("own_first")
    own.with_name("methods").mkdir()
    moved = own.rename(own.with_name("methods") / "own.py")
    late = "    def classify(self, tasks):\n        import own_second\n        return super().classify(tasks)\n"
    moved.write_text(f"{OWN}\nimport __main__, own_first\n\nclass Late(One):\n{late}")
    keys = [method_key(f"{moved}:Late")]
    for helper in helpers:
        helper.write_text(f"{helper.read_text()}\n#")
        keys.append(method_key(f"{moved}:Late"))
    assert len({*keys}) == len({*keys[:-1]}) == 5
