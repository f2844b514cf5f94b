"""The options that commands and Python functions share, in groups that they compose."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal

from fsbench.backbones.families import BACKBONES, TIMM
from fsbench.data.catalog import DATASETS, SPLITS
from fsbench.options import Amount, Count, Names, Numbers, Options, Parameters, Shares, argument, option
from fsbench.tasks.protocol import PRESETS

of_tasks, of_method, of_run, of_output, for_experts = (
    partial(option, panel=panel) for panel in ("Tasks", "Method", "Run", "Output", "Advanced")
)
SETTINGS = ("unbalanced", "balanced")
# Those of fsbench.results.metrics, without numpy.
METRIC_NAMES = ("accuracy", "balanced-accuracy", "macro-f1", "ece", "auroc", "aupr")
PROMPT = "a photo of a {}."
NAMED_BACKBONES = ", ".join(BACKBONES)


class Drawing(Options):
    alpha: float | None = of_tasks(None, "Dirichlet α of unbalanced queries. (default: 2)")
    shots: Numbers = of_tasks((1, 5), "Labelled images per class, separated by commas.", metavar="N,N")
    queries: Amount | None = of_tasks(
        None, "Unlabelled images per task: a number, 15/class, or all. (default: by protocol, mostly 75)", metavar="N"
    )
    seed: Count = of_tasks(0, "Random seed of the task lists.", ge=0)
    protocol: str = of_tasks(
        "disjoint",
        "How tasks are drawn: disjoint, released, veilleux, keff, all-way, batches, meta, open-set, … "
        "See fsbench methods --protocols.",
        completion=tuple(PRESETS),
    )
    ways: Amount | None = of_tasks(
        None, "Classes per task: a number, 5-50, or all. (default: by protocol, mostly 5)", metavar="N"
    )
    present: Amount | None = for_experts(
        None, "Classes of a task among its queries: a number or 3-10. (default: by protocol, mostly all)", metavar="N"
    )
    unknown: Count | None = for_experts(
        None, "Further classes among the queries, without support. (default: by protocol, open-set 5)", ge=0
    )


class Unbalanced(Options):
    unbalanced: bool = of_tasks(True, "Class proportions of the queries.", flag="--unbalanced/--balanced")

    @property
    def settings(self) -> tuple[str, ...]:
        """The one setting, as a list of them."""
        return SETTINGS[:1] if self.unbalanced else SETTINGS[1:]


class Sampling(Drawing):
    tasks: Count | None = of_tasks(None, "Tasks per setting. (default: by protocol, mostly 10,000)", ge=1, le=10**9)
    split: str = of_tasks(
        "novel", "Classes that tasks are drawn from.", metavar="novel|val|base", completion=tuple(SPLITS)
    )
    skip_infeasible: bool = for_experts(False, "Leave out settings for which a file has too few images.")


class Measuring(Options):
    metrics: Names = of_output(
        ("accuracy",),
        f"Metrics, separated by commas: {', '.join(METRIC_NAMES)}.",
        metavar="NAMES",
        completion=METRIC_NAMES,
    )


class Preset(Options):
    preset: Literal["", "article"] = of_method(
        "", "`article`: the article's parameters for its own data sets. (default: scale-free ones)", metavar="NAME"
    )


class Configuring(Preset):
    tune: bool = of_method(False, "Use parameters tuned on the val classes, where a method has some.")
    blind: bool = of_method(False, "Tell no method whether tasks are balanced: the same defaults in every setting.")


class Setting(Options):
    parameters: Parameters = of_method(
        {}, "Any parameter; fsbench methods NAME lists them.", flag="--set", metavar="NAME=VALUE"
    )


class Device(Options):
    device: str = of_run("auto", "auto, cpu, cuda, cuda:1, mps.", completion=("auto", "cpu", "cuda", "mps"))


class Computing(Device):
    batch: Count | None = for_experts(None, "Tasks per block. (default: automatic)", ge=1)


class Force(Options):
    force: bool = of_run(False, "Recompute existing results.")


class FeaturesFolder(Options):
    features_dir: Path = of_run(Path("features"), "Folder of feature files.", metavar="DIR", envvar="FSBENCH_FEATURES")


class ImageFolders(Options):
    data_dir: Path = of_run(Path("data"), "Folder of data sets.", metavar="DIR", envvar="FSBENCH_DATA")
    weights_dir: Path = of_run(Path("weights"), "Folder of checkpoints.", metavar="DIR", envvar="FSBENCH_WEIGHTS")


class ResultsFolder(Options):
    results_dir: Path = of_run(Path("results"), "Folder of records.", metavar="DIR", envvar="FSBENCH_RESULTS")


class Features(FeaturesFolder, ImageFolders):
    features: list[Path] = argument(
        [], "Feature files. (default: all files in the features folder)", metavar="FEATURES"
    )


class Quiet(Options):
    quiet: bool = of_run(False, "Suppress progress and notes.", flag="--quiet/-q")


class AsJson(Options):
    as_json: bool = of_output(False, "Print JSON instead of text.", flag="--json")


class Running(Computing, Features, ResultsFolder, AsJson, Quiet):
    """What every command that solves tasks of feature files has."""


class InPython(Options):
    results: Path | None = option(None, "Folder of records: existing results are reused. (default: nothing is stored)")
    progress: bool = option(False, "Show progress and notes on stderr.")


class Base(Options):
    base: Path | None = of_method(
        None, "Feature file of the same backbone whose base classes to use; pool: each task's own images.",
        metavar="FILE|pool",
    )  # fmt: skip


class Comparing(Sampling, Configuring, Measuring, Computing, Force, ImageFolders):
    methods: Names = of_method(
        ("soft-kmeans", "bavardage", "bavardage:released", "bavardage:transport"),
        "Names separated by commas, NAME:VARIANT, file.py:CLASS, or all. See fsbench methods.",
        metavar="NAMES",
        completion="methods",
    )
    settings: Names = of_tasks(SETTINGS, "unbalanced, balanced, or both.", metavar="NAMES", completion=SETTINGS)
    baseline: str | None = of_method(
        None,
        "Method that others are compared to. (default: soft-kmeans; without base classes simpleshot:L2N)",
        completion="methods",
        min_length=1,
    )
    published: bool = of_output(True, "Show published numbers.", flag="--published/--no-published")
    over_classes: bool = of_output(False, "Add intervals for new classes.")


class ComparingInPython(Comparing, InPython):
    """The options of `fsbench.compare`."""


class Compare(Comparing, Base, Running):
    """Compare methods on the same tasks, with paired statistics.

    Shows accuracy with its interval, the paired difference to a baseline, and the published numbers that match data
    set, backbone and setting. The best of a column and all that is not significantly worse are marked. Intervals are
    those for more tasks from the same images, unless --over-classes asks for more. Results are recorded in results/
    and reused.

    Example: [bold]fsbench compare --methods all --out table.tex[/bold]
    """

    others: list[Path] = of_output(
        [], "Add records from this folder or file, where tasks are the same.", flag="--with", metavar="PATH"
    )
    fail_if_worse: str = of_output(
        "", "End with status 1 if it is below the baseline, by the paired interval.", metavar="METHOD"
    )
    by: float = of_output(0.0, "With --fail-if-worse: by more than X points.", ge=0)
    per_class: bool = of_output(False, "Add the recall of every class, largest difference to the baseline first.")
    sort: bool = of_output(False, "Order methods by their mean accuracy, the best first.")
    output: Literal["rich", "markdown", "latex", "csv", "json"] | None = of_output(
        None,
        "rich, markdown, latex, csv or json. (default: by the ending of --out, else rich)",
        flag="--format",
        metavar="NAME",
    )
    out: Path | None = of_output(None, "Write the table to this file: .md, .tex, .csv, .json, .txt.", metavar="FILE")


class Evaluating(Sampling, Configuring, Computing, Force, ImageFolders, InPython):
    shots: Count = of_tasks(1, "Labelled images per class.")  # type: ignore[assignment]
    balanced: bool = of_tasks(False, "Draw equally many queries of every class.")

    @property
    def settings(self) -> tuple[str, ...]:
        """The one setting, as a list of them."""
        return SETTINGS[1:] if self.balanced else SETTINGS[:1]


class Solve(Sampling, Unbalanced, Configuring, Setting, Measuring, Base, Running, Force):
    """Run one method, with Soft-KMEANS as the baseline.

    Every run is recorded task by task in results/ and reused. BAVARDAGE has scale-free parameters, τ = T_vb/n̄ and
    σ = s_max·√n̄ with n̄ images per base class; `--preset article` uses those of the article for its own data sets.

    Example: [bold]fsbench solve --unbalanced --alpha 2[/bold]
    """

    method: str = of_method(
        "bavardage", "bavardage, bavardage:released, soft-kmeans, … or file.py:CLASS.", completion="methods"
    )


class OwnImages(Options):
    data: Path | None = option(None, "Folder of your own images, one folder per class.")
    split_fractions: Shares | None = option(
        None, "With --data: shares of base, val and novel classes, such as 0.64,0.16,0.2.", metavar="X,X,X"
    )
    split_seed: Count | None = option(None, "Random seed of the split. (default: 0)", ge=0)
    min_images: Count | None = option(None, "With --data: leave out classes with fewer images than this.", ge=1)


class Extracting(OwnImages, Device, ImageFolders):
    backbone: str = option("rn12", f"{NAMED_BACKBONES}, timm/NAME or open_clip/NAME.", completion=(*BACKBONES, TIMM))
    weights: Path | None = option(None, "Checkpoint. (default: weights/DATASET/BACKBONE.*)")
    random_weights: Count | None = option(None, "Use random weights of this seed.", ge=0)
    pretrained: bool = option(False, "Use the published weights of a timm or open_clip model, downloaded if need be.")
    transform: str | None = option(None, "Replace the backbone's own transform, e.g. ptmap.")
    crops: Count = option(1, "Average the features of that many random crops (RN12*: 30).", ge=1, le=1000)
    precision: Literal["fp32", "tf32", "bf16", "fp16"] = option(
        "fp32",
        "fp32, tf32, bf16 or fp16; the last two are slow on CPUs without instructions for them.",
        completion=("fp32", "tf32", "bf16", "fp16"),
    )
    text: list[str] = option(
        [], f'Template of text prototypes, such as "{PROMPT}"; of open_clip models. May be repeated.'
    )
    batch: Count | None = option(None, "Images per forward pass. (default: automatic)", ge=1)
    workers: Count | None = option(None, "Processes that read images. (default: automatic)", ge=0)
    skip_broken: bool = option(False, "Leave out unreadable images, and record it.")
    out: Path | None = option(None, "A .h5 file or a folder. (default: in features/)")
    force: bool = option(False, "Replace other features, recompute the same ones.")


class ExtractingInPython(Extracting):
    progress: bool = InPython.model_fields["progress"]  # type: ignore[assignment]


class Extract(Extracting, FeaturesFolder, Quiet):
    """Run a backbone over image folders: one feature file per data set.

    Without options: every data set in data/, else the built-in one, into features/DATASET-BACKBONE.h5, with the weights
    at weights/DATASET/BACKBONE.* and the transform that belongs to them. Run the same command again to resume an
    interrupted extraction. A file with other features is never replaced without --force. Features of images that were
    extracted before in the same way are reused, so that new splits and new classes cost little. Several processes share
    the images under torchrun.

    Example: [bold]fsbench extract --backbone wrn[/bold]
    """

    dataset: str | None = option(None, "Data sets, separated by commas. (default: all)", completion=DATASETS)


class Labelling(Device):
    backbone: str = option(
        "timm/convnext_tiny.in12k_ft_in1k", f"timm/NAME, or {NAMED_BACKBONES}.", completion=(*BACKBONES, TIMM)
    )
    weights: Path | None = option(
        None, "Checkpoint, or the data set of a shipped one, such as cub. (default: from weights/ or timm's cache)"
    )
    pretrained: bool = option(False, "Use the published weights of a timm or open_clip model, downloaded if need be.")
    method: str = option(
        "bavardage:weighted", "Method that labels: NAME, NAME:VARIANT or file.py:CLASS.", completion="methods"
    )
    base: str = option(
        "pool", "Feature file of base classes of the same backbone; pool: the images themselves.", metavar="FILE|pool"
    )
    classes: str = option(
        "", "Names of classes, with commas between them, or a text file with one per line; for models that know text."
    )
    text: list[str] = option(
        [], f'Template of text prototypes, by default "{PROMPT}" with --classes; of open_clip models. May be repeated.'
    )
    suggest: Count = option(0, "List that many images whose labels would help most.", ge=0)
    out: Path = option(Path("labels.csv"), "The CSV file of labels; features are kept beside it.", metavar="FILE")
    weights_dir: Path = ImageFolders.model_fields["weights_dir"]  # type: ignore[assignment]


class LabellingInPython(Labelling):
    progress: bool = InPython.model_fields["progress"]  # type: ignore[assignment]


class Label(Labelling, AsJson, Quiet):
    """Label images, given a few labelled ones of each class.

    UNLABELLED is a folder, a text file with a path per line, or - for standard input. --support has one folder per
    class, or is a CSV file with the columns file,label; with a model that knows text, --classes are enough. Writes
    labels.csv with the confidence of every label, and labels.html, a page to check and correct them; what is downloaded
    there goes back in as --support. Hides the labelled images in turn to tell how many labels to expect right. Run the
    same command again to resume; features are computed once per image. Nothing of yours is moved or changed.

    Example: [bold]fsbench label photos --support labelled --pretrained[/bold]
    """

    unlabelled: str = argument(..., "Folder of images, text file of paths, or -.", metavar="UNLABELLED")
    support: list[Path] = option([], "Folder with one folder per class, or CSV file; can be repeated.")
    page: bool = of_output(True, "Write labels.html beside the CSV file.", flag="--page/--no-page")
    sort_into: Path | None = of_output(None, "New folder to fill: one folder per class, with links.", metavar="DIR")
    copy_files: bool = of_output(False, "With --sort-into: copies instead of links.", flag="--copy")
    force: bool = of_output(False, "Overwrite existing labels.")
