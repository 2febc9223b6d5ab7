"""The program `rmft`: a job of Snakemake's is handed over to the process that has its libraries, see `forkserver`."""

import sys

from rmft.workflow.forkserver import hand_over


def main() -> None:
    """Run the command line, here or there."""
    code = hand_over()
    if code is not None:
        sys.exit(code)
    from rmft.cli import main as run

    run()


if __name__ == "__main__":
    main()
