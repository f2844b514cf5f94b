"""`make benchmarks`: the tables of `docs/benchmarks.md`, written anew from `results/`; what is missing there is computed.

The page itself says what to run: the methods are those of its command, and every table stands between two comments, of which
the first names the feature file and the options. Text around the tables is left as it is.
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
        return f"{match[1]}\n{shown(done.stdout)}\n\n{match[3]}"

    return PLACE.sub(place, page)


def shown(output: str) -> str:
    """Of the output of `compare`, what the page shows: accuracies, the differences of some methods, and the signature."""
    start, *tables = re.split(r"^(?=\*\*.*\*\*$)", output, flags=re.MULTILINE)
    accuracies, (caption, _, *rows) = (re.match(r"(?:.*\n){2}(?:\|.*\n)+", table)[0].splitlines() for table in tables[:2])
    differences = [caption, "", *rows[:2], *(row for row in rows[2:] if row.startswith(f"| {SHOWN_DIFFERENCES}"))]
    signature = re.findall(r"^`fsbench:.*`$", output, flags=re.MULTILINE)[-1]
    return "\n".join([*start.splitlines(), *accuracies, "", *differences, "", signature])


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), *sys.argv[1:] or ["features"]), encoding="utf-8")
