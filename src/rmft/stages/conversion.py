"""Stage `conversion`: convert the GGUF file of a model into files that transformers loads.

Reads the GGUF file, the templates of the prompts and sets of scenarios. Writes the model, its tokenizer and
conversion.csv into a folder, if llama.cpp agrees with them.
"""

import os
from pathlib import Path

import torch
from transformers.utils import logging

from rmft.agents.checkpoint import gguf_file
from rmft.agents.extras import check_extra
from rmft.artifacts.csv_files import write_rows
from rmft.artifacts.files import note_reading, noted
from rmft.artifacts.tensors import publish, unpublished
from rmft.conversion.checkpoint import convert
from rmft.conversion.gate import Row, compare, conversations, load_converted
from rmft.conversion.llama_cpp import llama_cpp
from rmft.errors import InputError
from rmft.language.prompts import Prompts
from rmft.language.scenarios import read_scenarios
from rmft.params.files import prompt_files
from rmft.progress import now_and_then
from rmft.workflow.records import ConversionJob

GRANTED = "MKL_NUM_THREADS"  # in which Snakemake says how many threads a job may have


def run(job: ConversionJob, folder: Path) -> None:
    """Convert the file; write the model only if it passes the gate."""
    for library in ("gguf", "xllamacpp"):
        check_extra(library, f"{job.name}: weights: {job.checkpoint.file or job.checkpoint.weights}", "gguf")
    torch.set_num_threads(int(os.environ.get(GRANTED) or os.cpu_count() or 1))
    logging.disable_progress_bar()  # jobs share a terminal
    gguf, say = gguf_file(job.checkpoint), now_and_then(0)
    with unpublished(folder) as made:
        say(f"conversion {folder}: reads {gguf}")
        convert(job.checkpoint, gguf, made)
        rows = examined(job, gguf, made, log=Path("logs", "llama_cpp", f"{folder}.log"))
        publish(made, folder)
    write_rows(folder / "conversion.csv", rows)


def examined(job: ConversionJob, gguf: Path, made: Path, log: Path) -> list[Row]:
    """Return the rows of conversion.csv. Raise InputError where the converted files do not pass the gate.

    log: file of llama.cpp's output.
    """
    say = now_and_then()
    note_reading(map(Path, prompt_files(job.prompts)))
    scenario_sets = [read_scenarios(noted(Path(file))) for file in job.scenario_sets]
    talks = list(conversations(Prompts.load(Path(job.prompts)), scenario_sets))
    chat_tokenizer, next_logprobs = load_converted(made)
    longest = max(len(chat_tokenizer.template.first(max(talk.messages, key=len))) for talk in talks)
    try:
        with llama_cpp(gguf, 4 * longest, torch.get_num_threads(), log) as reference:
            return compare(
                talks, chat_tokenizer, next_logprobs, reference, lambda line: say(f"conversion of {gguf}: {line}")
            )
    except InputError as error:
        raise InputError(f"conversion of {gguf}: {error}; nothing is written") from None
