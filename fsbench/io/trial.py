"""A program that reads one file within limits, and says with its exit status how that went.

A library can hang, crash or ask for any amount of memory on a file that is damaged or hostile, so such a file is read
in a process of its own first. `probe.py` runs this. It imports nothing of fsbench, and neither do the readers.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys

UNREADABLE, NO_MEMORY = 4, 3


def limit_memory(size: int) -> None:
    """Let this process take so many bytes, where the system has such limits."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (size, resource.getrlimit(resource.RLIMIT_AS)[1]))


def main(reader: str, path: str, largest: str) -> int:
    """Run the function `try_out` of a reader.

    Args:
        reader: Its file.
        path: The file that it reads.
        largest: Bytes of the largest array in it.
    """
    try:
        spec = importlib.util.spec_from_file_location("reader", reader)
        if spec is None or spec.loader is None:
            raise ImportError(reader)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.try_out(path, int(largest), limit_memory)
    except MemoryError:
        return NO_MEMORY
    except Exception as error:  # every library has its own words for damage, and for memory that it does not get
        told = str(error).strip().partition("\n")[0] or type(error).__name__
        sys.stdout.buffer.write(told[:300].encode(errors="replace"))
        return UNREADABLE
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
