"""The program `rmft`. A job of Snakemake is handed over to the process that has its libraries, see `forkserver`."""

import sys

from rmft.workflow.handover import hand_over


def main() -> None:
    """Run the command line, in this process or in a fork of the server. What a terminal lacks is printed as `?`."""
    for stream in filter(None, (sys.stdout, sys.stderr)):  # a closed one is None
        stream.reconfigure(errors="replace")
    code = hand_over()
    if code is not None:
        sys.exit(code)
    from rmft.instructions import use_avx2_only

    use_avx2_only()
    run()


def serve_jobs(*arguments: str) -> None:
    """Be the fork server of a Snakemake run; run the command line in its forks. arguments: see `forkserver.serve`."""
    from rmft.instructions import use_avx2_only
    from rmft.workflow import forkserver

    use_avx2_only()
    if forkserver.serve(*arguments):
        use_avx2_only()  # the job has the environment of the process that handed it over
        forkserver.do_and_end(run)


def run() -> None:
    """Run the command line in this process."""
    try:
        from rmft.cli import main as command_line

        command_line()
    except KeyboardInterrupt:  # while the command line is being imported
        from rmft.errors import AFTER_CTRL_C, INTERRUPTED

        print(f"rmft: {AFTER_CTRL_C}", file=sys.stderr)
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
