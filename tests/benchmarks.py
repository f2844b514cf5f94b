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
PLACE = re.compile(r"(<!-- table: (.*?) -->\n).*?(<!-- end of table -->)", flags=re.DOTALL)
SHOWN_DIFFERENCES = "bavardage"  # start of the methods whose differences to the baseline are shown


def with_tables(page: str, features: str) -> str:
    """The page with all tables of feature files that exist in a folder."""
    methods = re.findall(r"--methods (\S+)", page.replace("\\\n", ""))[0]

    def place(match: re.Match[str]) -> str:
        words = shlex.split(match[2].replace("features/", f"{features}/"))
        if not Path(words[0]).is_file():
            print(f"{words[0]} not found; its table stays as it is.", file=sys.stderr)
            return match[0]
        command = [sys.executable, "-m", "fsbench", "compare", *words, "--methods", methods, "--no-published"]
        done = subprocess.run([*command, "--format", "markdown"], stdout=subprocess.PIPE, text=True, check=True)
        return f"{match[1]}\n{shown_of(done.stdout)}\n\n{match[3]}"

    return PLACE.sub(place, page)


def shown_of(output: str) -> str:
    """What the page shows of the output of `compare`: accuracies, differences of some methods, and the signature."""
    start = output[: output.index("**")]  # what `compare` says first, if anything
    accuracies, differences, *_ = re.findall(r"^\*\*.*\*\*\n\n(?:\|.*\n)+", output, flags=re.MULTILINE)
    caption, _, *rows = differences.splitlines()
    kept = [*rows[:2], *(row for row in rows[2:] if row.startswith(f"| {SHOWN_DIFFERENCES}"))]
    signature = re.findall(r"^`fsbench:.*`$", output, flags=re.MULTILINE)[-1]
    shown = "\n".join([start + accuracies, caption, "", *kept, "", signature])
    for text, unbroken in {"-shot |": "\N{NON-BREAKING HYPHEN}shot |", "free / ": "free\xa0/\xa0"}.items():
        shown = shown.replace(text, unbroken)
    return shown


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), *sys.argv[1:] or ["features"]), encoding="utf-8")
