"""The program `rmft`. A job of Snakemake is handed over to the process that has its libraries, see `forkserver`."""

import sys

from rmft.workflow.forkserver import hand_over


def main() -> None:
    """Run the command line, in this process or in a fork of the server."""
    code = hand_over()
    if code is not None:
        sys.exit(code)
    from rmft.cli import main as run

    run()


if __name__ == "__main__":
    main()
