"""The cards (README.md) of exported models and data sets. All numbers come from files of the workflow."""

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import yaml

from rmft.artifacts.files import is_artifact
from rmft.artifacts.here import without_folder
from rmft.artifacts.number_text import difference, number
from rmft.export import ADAPTER_GGUF, DATA
from rmft.export.iteration import BuiltIteration
from rmft.lineage.trace import Trace
from rmft.metrics.comparison import paired_difference
from rmft.params.files import evaluation_of
from rmft.results import read_players
from rmft.suite.measuring import mean_interval
from rmft.workflow.plan_outputs import ENVIRONMENT_TITLES

if TYPE_CHECKING:
    from rmft.export.models import ModelFormat

LOAD = {
    "peft": """\
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer{imports}

base = AutoModelForCausalLM.from_pretrained("{base}"{options})
model = PeftModel.from_pretrained(base, "FOLDER")
tokenizer = AutoTokenizer.from_pretrained("FOLDER")""",
    "merged": """\
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("FOLDER")
tokenizer = AutoTokenizer.from_pretrained("FOLDER")""",
    "gguf": "llama-server --model BASE.gguf --lora FOLDER/{file}",
    "dataset": """\
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

data = load_dataset("FOLDER", split="train").select_columns("messages")
config = SFTConfig(max_length=None, assistant_only_loss=True)  # replies alone, if TRL knows the chat template
SFTTrainer("MODEL", config, train_dataset=data).train()""",
}
COLUMNS = """\
| column | |
|---|---|
| `messages` | the conversation: a prompt and a reply for each round; in summary games one conversation a round |
| `scenario`, `trajectory` | the trajectories of one scenario had the same rewards |
| `regret` | {notion} regret of the whole game |
| `selected` | {selected} |
| `invalid_replies` | replies of the conversation that state no decision; fine-tuning does not learn from them |
"""
INVALID = (
    "A trainer that reads `messages` learns from invalid replies, too, which rmft masks in fine-tuning; keep rows "
    "with `invalid_replies` 0 to leave them out. Such a trainer makes tokens of the texts by its chat template; rmft "
    "trains on the tokens as they were sampled."
)
LIMITS = (
    "The model was trained for short games in words. The figures above say how it plays such games, and nothing about "
    "other tasks; the limits and the license of the base model hold as well."
)


def model_card(source: BuiltIteration, form: "ModelFormat", trace: Trace) -> str:
    """Return the card of an exported model."""
    kind = "All weights of a model" if form == "merged" else "An adapter (LoRA)"
    base = source.base_model
    head = {
        **({"base_model": base} if source.revision else {}),
        **({} if form == "gguf" else {"library_name": {"peft": "peft", "merged": "transformers"}[form]}),
        "pipeline_tag": "text-generation",
        "tags": ["rmft", "regret", *(["gguf"] if form == "gguf" else []), *([] if form == "merged" else ["lora"])],
    }
    load = LOAD[form].format(**_base_to_load(source), file=ADAPTER_GGUF)
    on_hub = source.revision or form == "merged"
    alone = "" if on_hub else "\n\nThe base model is not on the hub; without its files an adapter is of no use."
    return _card(
        head,
        f"{source.experiment}, iteration {source.iteration}",
        f"{kind} that plays games in words: {base}, trained with rmft. {_learnt_from(source)}",
        ("Load", f"```{'sh' if form == 'gguf' else 'python'}\n{load}\n```{alone}"),
        ("Training", _table(_training(source, trace))),
        ("Regret before and after", "\n".join(_regret(source))),
        ("Limits", LIMITS),
        ("Lineage", _lineage(trace)),
    )


def dataset_card(source: BuiltIteration, conversations: int, trace: Trace, *, everything: bool) -> str:
    """Return the card of an exported data set."""
    which = "All trajectories" if everything or not source.settings.selects else "The selected trajectories"
    after = f" after {source.iteration} iteration{'s' * (source.iteration > 1)}" if source.iteration else ""
    player = f"a language model ({source.base_model}{after})"
    if "distillation" in source.settings.stages:
        player = f"an algorithm ({source.settings.distillation.teacher})"
    selected = "whether the model learnt from it"
    if "method" in source.settings.stages:
        selected = "whether it is among those of lowest regret; the method itself chooses what the model learns from"
    head = {
        "configs": [{"config_name": "default", "data_files": [{"split": "train", "path": DATA}]}],
        "task_categories": ["text-generation"],
        "tags": ["rmft", "regret", "trl", "sft"],
    }
    return _card(
        head,
        f"{source.experiment}, trajectories of iteration {source.iteration}",
        f"{which} that {player} played in iteration {source.iteration}, as {conversations} "
        f"conversations. {_learnt_from(source)}",
        ("Load", f"```python\n{LOAD['dataset']}\n```"),
        ("Columns", f"{COLUMNS.format(notion=source.settings.training_regret, selected=selected)}\n{INVALID}"),
        ("Games", _table(_training(source, trace))),
        ("Lineage", _lineage(trace)),
    )


def _base_to_load(source: BuiltIteration) -> dict[str, str]:
    """Return the arguments with which transformers loads the base model, as text, and what they import."""
    base, options = source.base_model, {"revision": source.revision, "gguf_file": source.base.file}
    if source.base.is_gguf and not source.base.file:
        path = PurePosixPath(base)
        base, options["gguf_file"] = str(path.parent), path.name
    given = "".join(f', {name}="{value}"' for name, value in options.items() if value)
    if not source.base.is_gguf:
        return {"base": base, "options": given, "imports": ""}
    return {
        "base": base,
        "options": f"{given}, quantization_config=GgufConfig(dequantize=True)",
        "imports": ", GgufConfig",
    }


def _learnt_from(source: BuiltIteration) -> str:
    """Return how the model of an experiment learns, in a sentence."""
    settings = source.settings
    if "distillation" in settings.stages:
        return f"The model learns from games of an algorithm ({settings.method_name}), and not from its own."
    if "grpo" in settings.stages:
        return f"The model learns from all games that it plays ({settings.method_name}), a rival of RMFT."
    if "method" in settings.stages:
        return f"The model learns from games that it plays ({settings.method_name}), in place of RMFT."
    lowest = "of lowest regret" if settings.rmft.score == "regret" else f"selected by score `{settings.rmft.score}`"
    among = "each scenario" if settings.rmft.pool == "scenario" else "all scenarios together"
    return (
        f"The model learns from its own trajectories {lowest} among those of {among} (iterative regret-minimization "
        "fine-tuning, RMFT)."
    )


def _card(head: dict[str, Any], title: str, first: str, *sections: tuple[str, str]) -> str:
    body = "\n\n".join(f"## {name}\n\n{text.strip()}" for name, text in sections)
    return f"---\n{yaml.safe_dump(head, sort_keys=False)}---\n\n# {title}\n\n{first}\n\n{body}\n"


def _table(rows: Iterable[tuple[str, object]]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


def _training(source: BuiltIteration, trace: Trace) -> Iterator[tuple[str, object]]:
    """Yield what the model was trained on, as the records of the jobs have it, or else params.yaml."""
    settings, loop = source.settings, source.settings.loop
    sizes = {name: getattr(loop, name) for name in ("scenarios", "trajectories", "selected") if hasattr(loop, name)}
    facts = {"T": settings.T, "process": settings.process, "seed": source.params.seed, **sizes}
    for ancestor in reversed(trace.part(trace.path).ancestors.values()):  # the nearest last
        recorded = ancestor.record.settings if ancestor.record else {}
        games = recorded.get("games")  # of distillation: those that the teacher plays
        recorded = recorded | (games if isinstance(games, dict) else {})
        # A job of another stage may have a section of a fact's name.
        facts |= {
            name: recorded[name] for name in facts.keys() & recorded.keys() if type(recorded[name]) is type(facts[name])
        }
    yield "base model", f"{source.base_model}{f' at {source.revision}' if source.revision else ''}"
    yield "experiment", f"{source.experiment}, training seed {source.training_seed}, root seed {facts['seed']}"
    yield "iteration", f"{source.iteration} of {loop.iterations}"
    yield "method", settings.method_name
    yield "games", f"{ENVIRONMENT_TITLES[settings.environment]}: {settings.d} actions, {facts['T']} rounds"
    yield "protocol", f"{settings.protocol.interaction}, output {settings.protocol.output}, {settings.protocol.format}"
    yield "rewards", ", ".join(facts["process"])
    kept = f", {facts['selected']} of each selected" if settings.selects else ""
    yield "each iteration", f"{facts['scenarios']} scenarios of {facts['trajectories']} trajectories{kept}"
    if settings.scale is None and source.params.scale != "paper":
        yield "scale", f"{source.params.scale}: smaller than the paper's, not its result"


def _regret(source: BuiltIteration) -> Iterator[str]:
    """Yield a table of all evaluations that measured this model, and a line for each that did not."""
    rows, missing = [], []
    for name in source.settings.evaluations:
        row, why_not = _measured(source, name)
        rows += row
        missing += why_not
    if rows:
        yield "Mean final regret with its 95% interval over the games; lower is better. Before: the base model.\n"
        yield "| evaluation | games | rounds | before | after | after less before | invalid replies a round |"
        yield "|---|--:|--:|--:|--:|--:|--:|"
        yield from rows
        yield ""
    yield from missing


def _measured(source: BuiltIteration, name: str) -> tuple[list[str], list[str]]:
    """Return a row of the table, or else a line about what is missing."""
    path, last = evaluation_of(source.experiment, name), source.iteration == source.settings.loop.iterations
    if not Path(path).exists():
        return [], [f"- Not evaluated on `{name}`."]
    players = read_players(Path(path))
    player = "trained" if last else f"iteration-{source.iteration}"
    if player not in players or source.training_seed >= len(players[player].final):
        return [], [f"- `{name}` did not evaluate iteration {source.iteration}."]
    after, base = players[player].final[source.training_seed], players["base"].final
    before = base[source.training_seed if len(base) > 1 else 0]
    means = [{end: number(value, 2) for end, value in mean_interval(of).items()} for of in (before, after)]
    rounds = players[player].regret.shape[2]
    cells = [name, str(len(after)), str(rounds)]
    cells += ["{mean} [{low}, {high}]".format(**mean) for mean in means]
    cells.append(difference(paired_difference(after, before).interval, 2))
    invalid = [
        number(of.invalid[min(source.training_seed, len(of.invalid) - 1)].mean() / rounds, 2)
        for of in (players["base"], players[player])
    ]
    return [f"| {' | '.join([*cells, ' → '.join(invalid)])} |"], []


def _lineage(trace: Trace) -> str:
    """Return the hashes of what the export was made from."""
    exported = trace.ancestors[trace.path]
    shown = [exported, *(trace.ancestors[path] for path in exported.inputs)]
    hashes = [(without_folder(of.path), of.sha256) for of in shown]
    if exported.record:
        hashes += exported.record.receipt.hub.items()
    lines = ["| file | SHA-256 |", "|---|---|", *(f"| {path} | {digest} |" for path, digest in hashes), ""]
    if exported.record:
        lines.append(f"Code: {exported.record.code['digest']}; commit: {exported.record.receipt.commit or 'none'}.")
    if trace.problems:
        lines.append(f"Not verified: {without_folder(trace.problems[0].path)} ({trace.problems[0].kind}).")
    else:
        artifacts = sum(map(is_artifact, trace.ancestors))
        lines.append(f"`rmft lineage` verified {artifacts} artifacts back to the root seed when this was exported.")
    return "\n".join(lines)
