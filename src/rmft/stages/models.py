"""Stage `models`: pre-train an embedded language model.

Reads the templates of the prompts. Writes the model, its tokenizer and fidelity.csv into a folder.
"""

from functools import partial
from pathlib import Path

from rmft.agents.local import LanguageModel, LocalChatModel
from rmft.artifacts.csv_files import write_rows
from rmft.artifacts.files import SCRATCH, note_reading
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
    """Pre-train the model. One that does not pass the fidelity gate is kept in SCRATCH; then raise InputError."""
    settings, coverage = job.pretraining, job.pretraining.corpora[job.name]
    note_reading(map(Path, prompt_files(settings.prompts)))
    prompts = Prompts.load(Path(settings.prompts))
    tokenizer = build_tokenizer(job.seed, coverage, prompts)
    network = pretrain(job.seed, settings, coverage, prompts, tokenizer, training_steps(f"models {folder}"))
    model = LanguageModel.of(network, tokenizer)
    open_model = partial(LocalChatModel, model, capacity=CONTEXT, max_tokens=MAX_TOKENS)
    rows = list(examine_all(open_model, coverage, prompts, job.seed, settings.gate_games))
    failed = failures(rows)
    target = SCRATCH / "models" / job.name if failed else folder
    write_pretrained(target, network, tokenizer)
    write_rows(target / "fidelity.csv", rows)
    if failed:
        reasons = "; ".join(failed)
        raise InputError(f"models {folder}: the model does not pass its gate: {reasons}; it is kept in {target}")
