"""`make benchmarks`: writes the tables of `docs/benchmarks.md` from `results/`, and computes what is missing there.

The page says what to run: the methods are those of its first command, and every table stands between two comments, of
which the first names the feature file and the options. Text around the tables is left as it is.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
START, END = "<!-- table: ", "<!-- end of table -->"
SHOWN_DIFFERENCES = "bavardage"  # start of the methods whose differences to the baseline are shown


def write_tables(features: str = "features") -> None:
    """Write the tables of all feature files that exist in a folder, one after the other."""
    page = PAGE.read_text(encoding="utf-8")
    methods = re.findall(r"--methods (\S+)", page.replace("\\\n", ""))[0]
    for asked in re.findall(f"{START}(.*) -->", page):
        words = shlex.split(asked.replace("features/", f"{features}/"))
        if not Path(words[0]).is_file():
            print(f"{words[0]} not found; its table stays as it is.", file=sys.stderr)
            continue
        command = [sys.executable, "-m", "fsbench", "compare", *words, "--methods", methods, "--no-published"]
        done = subprocess.run([*command, "--format", "markdown"], stdout=subprocess.PIPE, text=True, check=True)
        before, rest = PAGE.read_text(encoding="utf-8").split(f"{START}{asked} -->\n")
        table = f"{START}{asked} -->\n\n{shown_of(done.stdout)}\n\n"
        PAGE.write_text(before + table + rest[rest.index(END) :], encoding="utf-8")


def shown_of(output: str) -> str:
    """What the page shows of the output of `compare`: accuracies, differences of some methods, and the signature."""
    start = output[: output.index("**")]  # what `compare` says first, if anything
    accuracies, differences, *_ = re.findall(r"^\*\*.*\*\*\n\n(?:\|.*\n)+", output, flags=re.MULTILINE)
    caption, _, *rows = differences.splitlines()
    kept = [*rows[:2], *(row for row in rows[2:] if row.startswith(f"| {SHOWN_DIFFERENCES}"))]
    signature = re.findall(r"^`fsbench:.*`$", output, flags=re.MULTILINE)[-1]
    shown = "\n".join([start + accuracies, caption, "", *kept, "", signature])
    shown = shown.replace("-shot |", "\N{NON-BREAKING HYPHEN}shot |")
    return shown.replace("free / uniform prior", "free\xa0/\xa0uniform\xa0prior")


if __name__ == "__main__":
    write_tables(*sys.argv[1:])
