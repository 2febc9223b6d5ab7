"""DPO on regret: in each scenario the model learns to prefer its trajectory of lowest regret to that of highest regret.

Ours, not the paper's. With π_i the model that played, π the model in training, and y the tokens that the model chose in
a trajectory, a step minimises the mean over pairs of

    -log σ(β (log π(best)/π_i(best) - log π(worst)/π_i(worst)))

(Rafailov et al., 2023, Eq. 7). TRL's DPOTrainer computes this loss on the token ids of rollouts, as they were sampled.
Tokens that the environment wrote have no part in it.

`params.yaml` loads this file at every start, so libraries that take long to import are imported in functions.

Symbols: n trajectories, N pairs, P tokens of the longest conversation.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field

from rmft.errors import InputError
from rmft.extensions import method

if TYPE_CHECKING:
    import torch
    from trl import DPOTrainer

    from rmft.training.learner import FineTuned, LogCallback
    from rmft.workflow.records import MethodJob

# Token ids and, for each, whether the model chose it: best, best_chosen, worst, worst_chosen
Pair = dict[str, list[int]]
LOGGED = {  # columns of the training log, by the names that TRL gives them
    "epoch": "epoch",
    "loss": "loss",
    "learning_rate": "learning_rate",
    "grad_norm": "grad_norm",
    "rewards/margins": "margin",
    "rewards/accuracies": "accuracy",
}


@dataclass(frozen=True)
class DPOSettings:
    """beta: β, how strongly the model is kept close to the one that played. learning_rate: None for that of `sft`."""

    beta: Annotated[float, Field(gt=0)] = 0.1  # ASSUME: TRL's default
    learning_rate: Annotated[float, Field(gt=0)] | None = None


@method("dpo", settings=DPOSettings, title="DPO on regret")
def train(
    job: "MethodJob",
    trajectories: Mapping[str, Sequence[Any]],
    selection: Mapping[str, np.ndarray],
    start: Path | None,
    report: Callable[[int, int, float], object],
) -> "FineTuned":
    """Return model(i + 1) from the trajectories of model(i): the base model with the weights or adapter in `start`.

    The steps are those of `job.sft`, where batch_size counts pairs. The same arguments give the same bytes on the same
    machine. The log has the columns of LOGGED. Before each step margin is β times the difference of the log-ratios, and
    accuracy the share of pairs with a positive margin.
    """
    from datasets import Dataset
    from trl import DPOConfig

    from rmft.training.learner import Learner

    own_rate = job.settings["learning_rate"]
    steps = job.sft.model_copy(update={"learning_rate": own_rate or job.sft.learning_rate})
    log = _log("settings.learning_rate" if own_rate else "sft.learning_rate", report)
    with Learner.of(job.model, start, steps, "dpo", job.seed, (job.stream,)) as learner:
        pairs = pairs_of(trajectories, selection["regret"])
        learner.refuse_longer((ids for pair in pairs for ids in pair.values()), "T")
        config = DPOConfig(
            **learner.arguments,
            beta=job.settings["beta"],
            max_length=None,  # by default conversations are cut to 1,024 tokens
            remove_unused_columns=False,
        )
        return learner.train(
            _trainer_class(),
            config,
            log,
            ref_model=copy.deepcopy(learner.model) if steps.method == "full" else None,  # else TRL copies the adapter
            data_collator=lambda batch: collate(batch, learner.tokenizer.pad_token_id or 0),
            train_dataset=Dataset.from_list(pairs),
        )


def pairs_of(trajectories: Mapping[str, Sequence[Any]], regrets: np.ndarray) -> list[Pair]:
    """Return for each scenario its trajectory of lowest regret (best) and that of highest regret (worst).

    regrets: (n,). Among equal regrets the trajectory that was sampled first is taken. A scenario whose trajectories all
    have the same regret gives no pair. Raise InputError if no scenario gives a pair, or if trajectories are no
    dialogues.
    """
    if any(len(conversations) != 1 for conversations in trajectories["ids"]):
        raise InputError("protocol.interaction: dpo compares whole dialogues; set it to dialogue")
    scenarios, pairs = np.array(trajectories["scenario"]), []
    for scenario in np.unique(scenarios):
        rows = np.flatnonzero(scenarios == scenario)
        best, worst = rows[regrets[rows].argmin()], rows[regrets[rows].argmax()]
        if regrets[best] < regrets[worst]:
            pair = {"best": trajectories["ids"][best][0], "best_chosen": trajectories["replied"][best][0]}
            pair |= {"worst": trajectories["ids"][worst][0], "worst_chosen": trajectories["replied"][worst][0]}
            pairs.append(pair)
    if not pairs:
        raise InputError("rmft.trajectories: in every scenario all trajectories have the same regret; sample more")
    return pairs


def collate(pairs: Sequence[Pair], padding: int) -> dict[str, "torch.Tensor"]:
    """Return a batch (2N, P) as TRL's loss reads it: the best of all pairs, then the worst, padded on the right."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    ids = [torch.tensor(pair[side]) for side in ("best", "worst") for pair in pairs]
    chosen = [torch.tensor(pair[f"{side}_chosen"]).long() for side in ("best", "worst") for pair in pairs]
    return {
        "input_ids": pad_sequence(ids, batch_first=True, padding_value=padding),
        "attention_mask": pad_sequence([torch.ones_like(row) for row in ids], batch_first=True),
        "completion_mask": pad_sequence(chosen, batch_first=True),
    }


def _trainer_class() -> "type[DPOTrainer]":
    from trl import DPOTrainer

    class TokenExactDPOTrainer(DPOTrainer):
        """TRL's trainer on conversations that are token ids already: it renders, tokenises and cuts nothing."""

        def _prepare_dataset(self, dataset: object, *_: object) -> object:
            return dataset

    return TokenExactDPOTrainer


def _log(key: str, report: Callable[[int, int, float], object]) -> "LogCallback":
    """Return a log with the columns of LOGGED. key: the parameter to lower where the loss diverges."""
    from rmft.training.learner import LogCallback

    class Log(LogCallback):
        def row(self, _args: object, _state: object, logs: dict[str, float]) -> dict[str, float]:
            return {column: logs[name] for name, column in LOGGED.items()}

    return Log(key, report)
