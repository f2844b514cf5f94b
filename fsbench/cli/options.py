"""Options of commands that Python has no function for; those of solve, compare, extract and label are in `evaluation`.

The docstring of a model is the help of its command. Nothing heavy is imported, so that help and completion are fast.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from fsbench.backbones.families import BACKBONES, TIMM
from fsbench.data.catalog import DATASETS, SPLITS
from fsbench.evaluation import options as shared
from fsbench.evaluation.options import NAMED_BACKBONES, of_method, of_output, of_tasks
from fsbench.options import AxisValues, Count, Names, Numbers, argument, option
from fsbench.train.settings import CLASSES, RECIPES

PARTS = ("table1", "table2", "table3", "figure3", "figure4", "figure5")


class Scatter(shared.Features, shared.Quiet):
    """Compute mean and within-class scatter S_w of the base features.

    Writes a file next to each feature file. Other commands compute missing ones automatically.

    Example: [bold]fsbench scatter features/mini-wrn.h5[/bold]
    """


class Reproduce(shared.Running, shared.Measuring, shared.Force):
    """Reproduce a table or figure of the article, next to its numbers.

    Uses all feature files that have a place in it, and says which checkpoints the other cells need. Parameters are the
    article's where the network is the published one, and the scale-free defaults elsewhere. table2, the elements of
    BAVARDAGE, also includes all other feature files.

    Example: [bold]fsbench reproduce table3 --out table3.tex[/bold]
    """

    what: str = argument(..., f"{', '.join(PARTS)}.", metavar="WHAT", completion=PARTS)
    tasks: Count | None = of_tasks(None, "Tasks per setting. (default: 10,000; figures 1,000)", ge=1, le=10**9)
    seed: Count = of_tasks(0, "Random seed of the task lists.", ge=0)
    out: Path | None = of_output(None, "Table file (.md, .tex, .csv, .json, .txt) or figure file (.png, .pdf, .svg).")


class Sweep(shared.Drawing, shared.Unbalanced, shared.Preset, shared.Setting, shared.Running, shared.Force):
    """Show how accuracy depends on a parameter, as tables and a figure.

    The first --over runs along the curves, every further one adds curves. Every point is recorded and reused.

    Example: [bold]fsbench sweep --over tau=0.1,0.2,0.3,0.5 --split val,novel[/bold]
    """

    over: AxisValues = option(..., "A parameter of the method, or shots, queries, ways, alpha.", metavar="NAME=VALUE,…")
    methods: Names = option(("bavardage",), "Names separated by commas.", completion="methods")
    split: Names = option(("novel",), "Splits separated by commas: val, novel, base.", completion=tuple(SPLITS))
    tasks: Count = of_tasks(1_000, "Tasks per setting.", ge=1, le=10**9)
    out: Path | None = of_output(None, "Figure file: PNG, PDF or SVG.", metavar="FILE")


class Tune(shared.Drawing, shared.Unbalanced, shared.Setting, shared.Running):
    """Tune parameters on the val classes, never on novel ones.

    By a grid, or by gradient where a method learns its parameters (unem-gaussian). The result is stored next to the
    feature file, and `solve --tune` and `compare --tune` use it. Run the same command again to resume an interrupted
    search.

    Example: [bold]fsbench tune --method bavardage --shots 1[/bold]
    """

    method: str = of_method("bavardage", "NAME, NAME:VARIANT or file.py:CLASS.", completion="methods")
    over: AxisValues = of_method(
        {}, "Parameters and values to search. (default: the method's own grid)", metavar="NAME=VALUE,…"
    )
    goal: Literal["accuracy", "confidence"] = of_method(
        "accuracy", "accuracy, or confidence: a temperature for the smallest calibration error.", flag="--for"
    )
    tasks: Count = of_tasks(500, "Tasks per setting.", ge=1, le=10**9)


class Records(shared.ResultsFolder, shared.Quiet):
    records: list[Path] = argument([], "Records, or folders of them. (default: the results folder)", metavar="RECORDS")


class Report(Records, shared.Measuring):
    """Write all records into one self-contained HTML page.

    It begins with the method to use and how sure that is, then has a ranking per feature file and setting, ablations,
    sweeps, and the command behind every number.

    Example: [bold]fsbench report --out report.html[/bold]
    """

    baseline: str = option("soft-kmeans", "Method that others are compared to.", completion="methods")
    published: bool = option(True, "Show published numbers.", flag="--published/--no-published")
    title: str = option("", "Heading of the page. (default: the method to use)", metavar="TEXT")
    out: Path = option(Path("report.html"), "The HTML file to write.", metavar="FILE")


class Verify(Records, shared.Device, shared.FeaturesFolder, shared.ImageFolders, shared.AsJson):
    """Solve tasks of stored records again, and compare.

    A random sample of each record's tasks is solved, and the right answers are compared task by task. Features are
    found by their content in the features folder. The exit status is 1 if a record differs or none could be verified.
    Other processors round differently, which can move an answer in a few tasks of 10,000.

    Example: [bold]fsbench verify theirs/ --sample 500[/bold]
    """

    sample: Count | Literal["all"] = option(200, "Tasks of every record to solve again, drawn at random.")
    seed: Count | None = option(None, "Random seed of the sample. (default: a new one each time)", ge=0)
    methods: Names = option((), "Methods of your own in the records: file.py:CLASS, with commas.", metavar="NAMES")


class Import(shared.FeaturesFolder, shared.Quiet):
    """Make a feature file from features of another program.

    Pickles of S2M2, PT-MAP, BAVARDAGE, SimpleShot and TIM, EASY's tensors, S2M2's HDF5, npz and torch files are
    recognised by their content. Nothing in them is executed. Reports missing, conflicting and inferred fields.
    text=FILE is a table of text prototypes of the classes (pt, npy, npz).

    Example: [bold]fsbench import base=base_cub.plk novel=cub.plk --dataset cub --backbone rn18[/bold]
    """

    files: list[str] = argument(..., "Files of features; SPLIT=FILE names the split.", metavar="FILE")
    dataset: str = option(..., "Name of the data set, such as mini, or one of your own.", completion=DATASETS)
    backbone: str = option(
        ..., f"Name of the backbone: {NAMED_BACKBONES}, or any other.", completion=(*BACKBONES, TIMM)
    )
    crops: Count = option(1, "Crops per image that features are averaged over (EASY's AS: 30).", ge=1)
    out: Path | None = option(None, "The feature file. (default: features/DATASET-BACKBONE.h5)")
    force: bool = option(False, "Overwrite an existing file.")


class Tasks(shared.Drawing, shared.Unbalanced, shared.Quiet):
    """Write a list of tasks for models that fsbench does not run.

    An npz file with the rows and names of the images of every task, and the labels of its support. `fsbench score`
    makes a record of the predictions.

    Example: [bold]fsbench tasks features/mini-wrn.h5 --shots 5 --out tasks.npz[/bold]
    """

    features: Path = argument(..., "The feature file.", metavar="FEATURES")
    shots: Count = of_tasks(1, "Labelled images per class.")  # type: ignore[assignment]
    tasks: Count = shared.Sampling.model_fields["tasks"]  # type: ignore[assignment]
    split: str = shared.Sampling.model_fields["split"]  # type: ignore[assignment]
    out: Path = option(Path("tasks.npz"), "The npz file to write.", metavar="FILE")
    force: bool = option(False, "Overwrite an existing file.")


class Score(shared.ResultsFolder, shared.Quiet):
    """Make a record of predictions for a list of tasks.

    The npz file of predictions has `predicted` (T, Q), labels from 0 to K − 1 as the support has them, and may have
    `confidence` (T, Q); or `probabilities` (T, Q, K). `report` and `compare --with` show the record beside others.

    Example: [bold]fsbench score features/mini-wrn.h5 tasks.npz predictions.npz --name my-model[/bold]
    """

    features: Path = argument(..., "The feature file that the tasks were drawn from.", metavar="FEATURES")
    tasks: Path = argument(..., "The list that `fsbench tasks` wrote.", metavar="TASKS")
    predictions: Path = argument(..., "The npz file of predictions.", metavar="PREDICTIONS")
    name: str = option(..., "Name of the model in tables.", metavar="NAME")
    assumes: str = option("", "What it assumes of the tasks, in a few words.", metavar="TEXT")


class Doctor(shared.ImageFolders, shared.FeaturesFolder):
    """Check data, weights and environment.

    Data sets are compared with the benchmark, split by split; weights, features, libraries and devices are listed.
    With --data, your own images are checked instead: what is used, what is ignored, which tasks are feasible.

    Example: [bold]fsbench doctor --data-dir /mnt/data[/bold]
    """

    data: Path | None = shared.OwnImages.model_fields["data"]  # type: ignore[assignment]


class Methods(shared.AsJson):
    """List methods or protocols.

    NAME describes one method: what it assumes and needs, its parameters with tuning grid and their defaults in every
    setting, and its source.

    Example: [bold]fsbench methods bavardage[/bold]
    """

    name: str | None = argument(
        None,
        "Method to describe: NAME, NAME:VARIANT or file.py:CLASS. (default: list all)",
        metavar="NAME",
        completion="methods",
    )
    protocols: bool = of_output(False, "List the protocols.")


class Demo(shared.ImageFolders, shared.FeaturesFolder, shared.ResultsFolder, shared.Quiet):
    """Run the full pipeline on the built-in data set, in a minute.

    Render, extract, scatter, solve, compare, one figure. Works offline and needs no data.

    Example: [bold]fsbench demo[/bold]
    """

    tasks: Count = of_tasks(2_000, "Tasks per setting.", ge=2, le=10**9)


class Train(shared.OwnImages, shared.Device, shared.ImageFolders, shared.Quiet):
    """Train a backbone on the base classes.

    Writes the weights, in half precision, where `fsbench extract` looks for them. After an interruption, run the same
    command again to resume; on a CPU it ends with the same weights. Several processes share the work under torchrun.

    The recipes maml and versa train the networks of the methods of that name.

    Example: [bold]fsbench train --backbone rn12 --dataset cifarfs[/bold]
    """

    backbone: str | None = option(
        None, f"One of {NAMED_BACKBONES}. (default: rn12; on tasks conv4)", completion=BACKBONES
    )
    recipe: str = option(
        CLASSES,
        f"{CLASSES} trains on the base classes; {', '.join(RECIPES[1:])} on tasks drawn from them.",
        completion=RECIPES,
    )
    dataset: str | None = option(None, "The data set. (default: the one found)", completion=DATASETS)
    width: float | None = option(None, "Base width (rn12, rn18, conv4), widening factor (wrn). (default: 64; wrn 10)")
    image_size: Count | None = option(
        None, "Side of the images in pixels. (default: as published for the data set)", ge=16
    )
    epochs: Count | None = option(
        None, "Passes over the base images, or times 100 updates on tasks. (default: 20, 30)", ge=1
    )
    batch: Count | None = option(None, "Images, or tasks, per step, over all processes. (default: 64, 4)", ge=1)
    lr: float | None = option(None, "Peak learning rate. (default: 0.1, on tasks 0.001)", gt=0)
    seed: Count = option(0, "Random seed.", ge=0)
    rotation: bool = option(False, "Add a rotation loss.", flag="--rotation/--no-rotation")
    mixup: bool = option(False, "Add a pass with manifold mixup.", flag="--mixup/--no-mixup")
    flip: bool | None = option(None, "Mirror images at random. (default: not for glyphs)", flag="--flip/--no-flip")
    shots: Numbers = of_tasks((1, 5), "Support images per class, taking turns from update to update.", metavar="N,N")
    inner_steps: Count = of_tasks(5, "MAML: steps within a task.", ge=1)
    inner_rate: float = of_tasks(0.1, "MAML: rate of these steps.", gt=0)
    first_order: bool = of_tasks(False, "MAML: no gradients through them.")
    precision: Literal["fp32", "tf32", "bf16"] = option(
        "fp32", "fp32, or for GPUs tf32 and bf16.", completion=("fp32", "tf32", "bf16")
    )
    eval_every: Count = option(10, "Evaluate on the val classes every N epochs.", ge=1)
    out: Path | None = option(None, "The weights file. (default: where extract looks)")
    force: bool = option(False, "Overwrite an existing weights file.")


class Drawn(shared.Quiet):
    width: Literal["column", "page"] = of_output("page", "True width on paper: column is 3.25 in, page 6.75 in.")
    out: Path | None = of_output(None, "PNG, PDF or SVG file. (default: named after the figure, PNG)", metavar="FILE")


class Dots(Records, shared.Measuring, Drawn):
    """Plot accuracies or differences as dots with intervals.

    Example: [bold]fsbench plot dots --width column --out dots.pdf[/bold]
    """

    baseline: str = option("", "Plot paired differences to this method instead of means.")


class Confusion(Records, Drawn):
    """Plot which classes are confused, over all tasks.

    Plots the first setting of the table; pass a record file to choose another one.

    Example: [bold]fsbench plot confusion --method bavardage --out confusion.pdf[/bold]
    """

    method: str = option("", "Label of the method. (default: the one with the best accuracy)")


class Calibration(Records, Drawn):
    """Plot how often methods are right against how sure they are.

    One panel per setting, with the expected calibration error (ECE) of every method in 15 bins.

    Example: [bold]fsbench plot calibration --out calibration.pdf[/bold]
    """


class Spectrum(shared.Features, Drawn):
    """Plot the spectrum of S_w, and what the clamp σ cuts.

    Example: [bold]fsbench plot spectrum features/mini-wrn.h5 features/mini-rn18.h5 --out spectrum.pdf[/bold]
    """
