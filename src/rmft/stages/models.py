"""Stage `models`: pre-train an embedded language model.

Reads the templates of the prompts. Writes the model, its tokenizer and fidelity.csv into a folder.
"""

from functools import partial
from pathlib import Path

from rmft.agents.local import LanguageModel, LocalChatModel
from rmft.artifacts.csv_files import write_rows
from rmft.artifacts.files import note_reading
from rmft.artifacts.tensors import write_pretrained
from rmft.embedded_model.fidelity import CONTEXT, MAX_TOKENS, examine_all, failures
from rmft.embedded_model.pretraining import pretrain
from rmft.embedded_model.tokenizer import build_tokenizer
from rmft.errors import InputError
from rmft.language.prompts import Prompts
from rmft.params.files import prompt_files
from rmft.progress import training_steps
from rmft.workflow.records import ModelsJob


def run(job: ModelsJob, folder: Path) -> None:
    """Pre-train the model; write it only if it passes the fidelity gate."""
    settings, coverage = job.pretraining, job.pretraining.corpora[job.name]
    note_reading(map(Path, prompt_files(settings.prompts)))
    prompts = Prompts.load(Path(settings.prompts))
    tokenizer = build_tokenizer(job.seed, coverage, prompts)
    network = pretrain(job.seed, settings, coverage, prompts, tokenizer, training_steps(f"models {folder}"))
    model = LanguageModel.of(network, tokenizer)
    open_model = partial(LocalChatModel, model, capacity=CONTEXT, max_tokens=MAX_TOKENS)
    rows = list(examine_all(open_model, coverage, prompts, job.seed, settings.gate_games))
    if failed := failures(rows):
        raise InputError(f"models {folder}: the model does not pass its gate: {'; '.join(failed)}")
    write_pretrained(folder, network, tokenizer)
    write_rows(folder / "fidelity.csv", rows)
