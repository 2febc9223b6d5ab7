"""GRPO on games told in words: a rival of RMFT that learns from all trajectories, weighted by what they earned.

With advantages A of the rounds (`advantages`), π the model, π_old the one that played and π_0 the base model, a step
maximises the mean over conversations of the mean over the tokens that the model chose of

    min(r A, clip(r, 1 - ε, 1 + ε) A) - β (π_0/π - log π_0/π - 1),    r = π/π_old,

each π being the token's probability given all before it (Shao et al., 2024, Eqs. 3 and 4). TRL's GRPOTrainer computes
that. It does not play: its `rollout_func` hands it the tokens of rollouts as they were sampled and, as `env_mask`,
which of them the model chose, so it is token-exact over many turns. One thing is added, an advantage for every token:
TRL gives a whole conversation one, and leaves those by token to subclasses.

# ASSUME: the paper says nothing of its GRPO but the budget. Each iteration is a new run of AdamW, as in SFT; the
# reference of the divergence is the base model throughout.

Symbols: N conversations (n games; in a summary n · T), P tokens of the longest one, its first left out.
"""

import math
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import transformers
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from rmft.agents.context import context_limit
from rmft.agents.weights import load_pretrained
from rmft.errors import InputError
from rmft.selection import TrajectoryColumns, earnings, final_regrets, table_of
from rmft.streams import stream
from rmft.training.advantages import advantages, rounds_of
from rmft.training.attention import within_window
from rmft.training.sft import FineTuned, arguments, on_one_gpu, quiet, same_every_time, to_write, trainable, unrounded
from rmft.workflow.records import GRPOJob

LOGGED = {  # columns of the log by what TRL calls them
    "loss": "loss",
    "learning_rate": "learning_rate",
    "grad_norm": "grad_norm",
    "kl": "kl",
    "clip_ratio/region_mean": "clipped",
    "entropy": "entropy",
}


def reinforce(
    job: GRPOJob,
    played: TrajectoryColumns,
    start: Path | None,
    on_step: Callable[[int, int, float], object] = lambda *_: None,
) -> FineTuned:
    """Return θ_{i+1} from the games of θ_i, the base model with the weights or the adapter in `start`.

    The same arguments give the same bytes on the same machine. on_step is told (step, of how many, its loss). A row of
    the log: step, epoch, loss (before the step), learning_rate, grad_norm (before clipping), kl (from the base model; 0
    where it has no weight), clipped (share of tokens), entropy (of a token, in nats), and of all games reward (a round)
    and regret (at the end), which are the same in all rows.
    """
    job = job.model_copy(update={"model": on_one_gpu(job.model)})
    same_every_time(job.model.device)
    games = job, played, table_of(played, job.problem.d), job.problem.credited_regret
    rewards, regrets = earnings(*games), final_regrets(*games)
    credited = advantages(job.grpo.reward, np.array(played["scenario"]), rewards, regrets)
    batch = Credited.of(played, credited, rewards)
    log = _Log(on_step, {"reward": float(rewards.mean()), "regret": float(regrets.mean())})
    with quiet(), tempfile.TemporaryDirectory() as folder:
        model, tokenizer = load_pretrained(job.model)
        batch.check(context_limit(model.config, job.model.context))
        dtype = model.dtype
        seeds = [
            int(stream(job.seed, purpose, "grpo", job.stream).integers(2**32))
            for purpose in ("initialisation", "shuffle")
        ]
        torch.manual_seed(seeds[0])
        model = trainable(model, job.grpo, start)
        with unrounded(model):
            trainer = Trainer(model, _config(job, batch, seeds, folder), batch, tokenizer, log)
        torch.manual_seed(seeds[1])
        trainer.train()
    return FineTuned(*to_write(model, model.state_dict(), dtype), log.rows)


@dataclass(frozen=True)
class Credited:
    """What was told and said in N conversations, and what of it is credited; those of a group follow each other.

    groups: (N,) the scenario, and in a summary the round, whose conversations are compared. ids, chosen: the tokens,
    and which of them the model chose. advantages: of each token, 0 where it did not. earned: (N,) in the whole game.
    """

    groups: list[str]
    ids: list[list[int]]
    chosen: list[list[bool]]
    advantages: list[np.ndarray]
    earned: list[float]

    @classmethod
    def of(cls, played: TrajectoryColumns, credited: np.ndarray, earned: np.ndarray) -> Self:
        """Return the conversations of games with advantages (n, T) and rewards (n, T)."""
        keys = [
            (played["scenario"][game], part, played["trajectory"][game], game)
            for game, conversations in enumerate(played["ids"])
            for part in range(len(conversations))
        ]
        rounds = [
            rounds_of(replied, ~np.array(fallback))
            for replied, fallback in zip(played["replied"], played["fallback"], strict=True)
        ]
        found = cls([], [], [], [], [])
        for scenario, part, _, game in sorted(keys):
            of_tokens = rounds[game][part]
            found.groups.append(f"{scenario}/{part}")
            found.ids.append(played["ids"][game][part])
            found.chosen.append((of_tokens >= 0).tolist())
            found.advantages.append(np.where(of_tokens >= 0, credited[game][of_tokens], 0.0))
            found.earned.append(float(earned[game].sum()))
        return found

    def check(self, context: int | None) -> None:
        """Refuse what cannot be learnt from as it is; nothing is ever cut."""
        longest = max(map(len, self.ids))
        if context is not None and longest > context:
            raise InputError(f"rollouts: a conversation has {longest} tokens, the context {context}; play fewer rounds")


class Trainer(GRPOTrainer):
    """TRL's trainer, with an advantage for every token, on conversations that have been had."""

    def __init__(
        self,
        model: transformers.PreTrainedModel,
        config: GRPOConfig,
        batch: Credited,
        tokenizer: transformers.PreTrainedTokenizerBase,
        log: "_Log",
    ) -> None:
        self.credited = batch
        super().__init__(
            model,
            reward_funcs=_rewards,
            args=config,
            train_dataset=Dataset.from_dict({"prompt": list(dict.fromkeys(batch.groups))}),
            processing_class=tokenizer,
            rollout_func=_had,
            callbacks=[log],
        )
        self.remove_callback(transformers.PrinterCallback)
        if self.ref_model is not None:
            within_window(self.ref_model)
        elif "ref" in getattr(self.model, "peft_config", {}):  # a copy of the adapter; the base model is meant
            self.model.delete_adapter("ref")

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        batch = super()._generate_and_score_completions(inputs)
        of_tokens = torch.zeros(batch["completion_ids"].shape)  # (N, P)
        for row, values in enumerate(self.credited.advantages):
            of_tokens[row, : len(values) - 1] = torch.as_tensor(values[1:])
        return batch | {"advantages": of_tokens.to(batch["completion_ids"].device)}


def _had(prompts: list[str], trainer: Trainer) -> dict[str, list[Any]]:
    """Return the conversations that TRL asks for, all of them at once; its "prompt" is the first token alone.

    So rows begin together, and every position is what it was when they were had.
    """
    batch = trainer.credited
    if prompts != batch.groups:
        raise ValueError("TRL asks for other groups than there are, or in another order")
    return {
        "prompt_ids": [ids[:1] for ids in batch.ids],
        "completion_ids": [ids[1:] for ids in batch.ids],
        "env_mask": [[int(chosen) for chosen in row[1:]] for row in batch.chosen],
        "logprobs": None,  # worked out anew, by the weights that played
        "earned": batch.earned,
    }


def _rewards(earned: list[float], **_: object) -> list[float]:
    """Return what TRL asks for. It makes an advantage of it, which is then replaced by those of tokens."""
    return earned


def _config(job: GRPOJob, batch: Credited, seeds: Sequence[int], folder: str) -> GRPOConfig:
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"  # of rollout_func, whose like we pin
    settings = job.grpo
    revision = job.model.revision
    return GRPOConfig(
        model_init_kwargs={"revision": revision} if revision else None,  # of the base model, as the reference
        **arguments(settings, job.model.device, seeds, folder)
        | {"num_train_epochs": 1},  # what TRL calls an epoch plays, and reads its games num_iterations times
        num_iterations=settings.epochs,
        steps_per_generation=len(batch.ids) * settings.accumulation // settings.batch_size,
        num_generations=len(batch.ids) // len(set(batch.groups)),
        shuffle_dataset=False,
        temperature=job.temperature,
        beta=settings.kl,
        epsilon=settings.clip,
        loss_type="grpo",  # a conversation's mean, then the mean of conversations, as in the original
        disable_dropout=True,  # it would make π differ from π_old before any step
    )


class _Log(transformers.TrainerCallback):
    """The rows of the log. played: what is the same in all of them."""

    def __init__(self, on_step: Callable[[int, int, float], object], played: dict[str, float]) -> None:
        self.on_step, self.played, self.rows = on_step, played, []

    def on_log(
        self, args: GRPOConfig, state: transformers.TrainerState, *_: object, logs: dict[str, float], **__: object
    ) -> None:
        if "loss" not in logs:  # the summary at the end
            return
        step = state.global_step
        if not math.isfinite(logs["grad_norm"]):
            raise InputError(f"grpo.learning_rate: at {args.learning_rate} the loss diverges in step {step}; lower it")
        epoch = step * args.num_iterations / state.max_steps
        row = {column: logs.get(name, 0.0) for name, column in LOGGED.items()}
        self.rows.append({"step": step, "epoch": epoch, **row, **self.played})
        self.on_step(step, state.max_steps, logs["loss"])
