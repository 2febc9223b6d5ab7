"""GRPO on games in words: a rival of RMFT that learns from all trajectories, weighted by their rewards.

With advantages A of the rounds (`advantages`), π the model, π_old the one that played and π_0 the base model, a step
maximises the mean over conversations of the mean over the tokens that the model sampled of

    min(r A, clip(r, 1 - ε, 1 + ε) A) - β (π_0/π - log π_0/π - 1),    r = π/π_old,

each π being the token's probability given all before it (Shao et al., 2024, Eqs. 3 and 4). TRL's GRPOTrainer computes
the loss but does not play: `rollout_func` gives it the tokens of rollouts as they were sampled and, as `env_mask`,
which of them the model sampled, so training is token-exact over many turns. We add one thing, an advantage for every
token: TRL gives a whole conversation one advantage, and leaves those by token to subclasses. π_old is computed with the
weights before the first step. The games were played with weights that are rounded in another way where an adapter was
merged in bfloat16 or llama.cpp played quantised ones; this difference is not corrected.

# ASSUME: the paper states nothing about its GRPO but the budget. Each iteration is a new run of AdamW, as in SFT; the
# reference of the divergence is the base model throughout. An invalid reply is credited with its round, in which chance
# decided, and diverges like any other: otherwise nothing would keep a model from forgetting how to reply. What was
# sampled again is in no conversation, and is not learnt from.

Symbols: N conversations (n games; in a summary n · T), P tokens of the longest one, its first left out.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import transformers
from datasets import Dataset
from huggingface_hub import hf_hub_download
from torch.nn.utils.rnn import pad_sequence
from trl import GRPOConfig, GRPOTrainer

from rmft.agents.weights import fix_rotary_factors
from rmft.language.protocol import NOT_LEARNT
from rmft.params.grpo import Objective
from rmft.params.language_model import LanguageModelSettings
from rmft.selection import Scoring, TrajectoryColumns, earnings, final_regrets, table_of
from rmft.streams import Word
from rmft.training.advantages import advantages, rounds_of
from rmft.training.learner import FineTuned, Learner, LogCallback

LOGGED = {  # columns of the log by what TRL calls them
    "loss": "loss",
    "learning_rate": "learning_rate",
    "grad_norm": "grad_norm",
    "kl": "kl",
    "clip_ratio/region_mean": "clipped",
    "entropy": "entropy",
}


def reinforce(
    played: TrajectoryColumns,
    base: LanguageModelSettings,
    start: Path | None,
    settings: Objective,
    scoring: Scoring,
    temperature: float,
    seed: int,
    words: tuple[Word, ...] = (),
    on_step: Callable[[int, int, float], object] = lambda *_: None,
    on_scored: Callable[[int], object] = lambda _: None,
) -> FineTuned:
    """Return θ_{i+1} from the games of θ_i: `base` with the weights or the adapter in `start`, if there are any.

    scoring: the notion of regret that credits rounds. temperature: at which the games were sampled. seed, words: the
    names of the random streams; the same arguments give the same bytes on the same machine. on_step: called with the
    step, the number of steps and the loss. on_scored: called, before the first step, with the number of conversations
    whose probabilities are known: under the model that played, and then again from 1 on under the base model.

    A row of the log: step, epoch, loss (before the step), learning_rate, grad_norm (before clipping), kl (from the base
    model; 0 where it has no weight), clipped (share of tokens), entropy (of a token, in nats), and of all games reward
    (a round) and regret (at the end), the same in all rows. kl, clipped and entropy are means over the passes of a
    step, each a mean over its tokens.
    """
    table = table_of(played)
    rewards, regrets = earnings(played, table, scoring), final_regrets(played, table, scoring)
    credited = advantages(settings.reward, np.array(played["scenario"]), rewards, regrets)
    batch = CreditedConversations.of(played, credited, rewards)
    log = _Log("grpo.learning_rate", on_step, {"reward": float(rewards.mean()), "regret": float(regrets.mean())})
    with Learner.of(base, start, settings, "grpo", seed, words) as learner:
        learner.refuse_longer(batch.ids, "rollouts")
        if not Path(base.folder).is_dir():  # TRL would read of which kind the reference is from its newest revision
            pinned = hf_hub_download(base.folder, "config.json", revision=base.revision, local_files_only=True)
            learner.model.config._name_or_path = str(Path(pinned).parent)
        config = _config(settings, batch, temperature, learner.arguments)
        return learner.train(TokenCreditTrainer, config, log, batch=batch, learner=learner, on_scored=on_scored)


@dataclass(frozen=True)
class CreditedConversations:
    """N conversations, and the advantage of each of their tokens; those of a group follow each other.

    groups: (N,), the scenario, and in a summary the round, whose conversations are compared. ids, sampled: the tokens,
    and which of them the model sampled. advantages: of each token, 0 where the model did not sample it. earned: (N,),
    the rewards of the whole game.
    """

    groups: list[str]
    ids: list[list[int]]
    sampled: list[list[bool]]
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
        rounds = [rounds_of(sampled, credited.shape[1]) for sampled in played["sampled"]]
        conversations = cls([], [], [], [], [])
        for scenario, part, _, game in sorted(keys):
            of_tokens = rounds[game][part]
            conversations.groups.append(f"{scenario}/{part}")
            conversations.ids.append(played["ids"][game][part])
            conversations.sampled.append(played["sampled"][game][part])
            conversations.advantages.append(np.where(of_tokens >= 0, credited[game][of_tokens], 0.0))
            conversations.earned.append(float(earned[game].sum()))
        return conversations


class TokenCreditTrainer(GRPOTrainer):
    """TRL's trainer on conversations that have been played, with an advantage for every token."""

    def __init__(
        self,
        batch: CreditedConversations,
        learner: Learner,
        on_scored: Callable[[int], object],
        args: GRPOConfig,
        **options: object,
    ) -> None:
        self.credited, self.on_scored, self.scored = batch, on_scored, 0
        groups = Dataset.from_dict({"prompt": list(dict.fromkeys(batch.groups))})
        super().__init__(reward_funcs=_rewards, args=args, train_dataset=groups, rollout_func=_played, **options)
        if "ref" in getattr(self.model, "peft_config", {}):  # TRL copies the adapter; the base model is meant
            self.model.delete_adapter("ref")
        if self.ref_model is not None:  # TRL has loaded the base model once more, in float32 as it was published
            for weight in self.ref_model.parameters():
                weight.data = weight.data.to(learner.dtype).float()
            fix_rotary_factors(self.ref_model, learner.context)
        torch.manual_seed(args.data_seed)  # TRL shuffles conversations with the global generator

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self.sampled = _padded(self.credited.sampled).bool()
        batch = super()._generate_and_score_completions(inputs)
        of_tokens = _padded(self.credited.advantages)[:, 1:]  # (N, P)
        return batch | {"advantages": of_tokens.to(batch["completion_ids"].device)}

    def _compute_loss(self, model: torch.nn.Module, inputs: dict[str, Any]) -> torch.Tensor:
        self.sampled = torch.nn.functional.pad(inputs["tool_mask"].bool(), (1, 0))
        return super()._compute_loss(model, inputs)

    def _get_per_token_logps_and_entropies(
        self,
        model: torch.nn.Module,
        input_ids: torch.Tensor,
        *more: object,
        batch_size: int | None = None,
        **options: object,
    ) -> tuple[torch.Tensor | None, ...]:
        """Compute the output layer only at tokens that the model sampled: the loss masks all others."""
        parts = iter(self.sampled.to(input_ids.device).split(batch_size or len(input_ids)))

        def at_sampled(*, labels: torch.Tensor, **inputs: object) -> transformers.utils.ModelOutput:
            scored = model(labels=labels.where(next(parts), NOT_LEARNT), **inputs)
            if not torch.is_grad_enabled():
                self.scored = self.scored % len(self.credited.ids) + len(labels)
                self.on_scored(self.scored)
            return scored

        return super()._get_per_token_logps_and_entropies(
            at_sampled, input_ids, *more, batch_size=batch_size, **options
        )


def _padded(rows: Sequence[Sequence[float]]) -> torch.Tensor:
    """Return a row (P + 1,) for each conversation, with zeros after its end."""
    return pad_sequence([torch.tensor(row, dtype=torch.float32) for row in rows], batch_first=True)


def _played(prompts: list[str], trainer: TokenCreditTrainer) -> dict[str, list[Any]]:
    """Return all conversations at once, as TRL's rollout_func does. The first token of each stands as its "prompt".

    With prompts of one token no row needs left padding, so positions equal those at rollout time.
    """
    batch = trainer.credited
    if prompts != batch.groups:
        raise ValueError("TRL asks for other groups than there are, or in another order")
    return {
        "prompt_ids": [ids[:1] for ids in batch.ids],
        "completion_ids": [ids[1:] for ids in batch.ids],
        "env_mask": [[int(of) for of in row[1:]] for row in batch.sampled],
        "logprobs": None,  # TRL computes them with the weights that are trained
        "earned": batch.earned,
    }


def _rewards(earned: list[float], **_: object) -> list[float]:
    """Return the rewards that TRL requires. Its advantages of them are replaced by those of tokens."""
    return earned


def _config(
    settings: Objective,
    batch: CreditedConversations,
    temperature: float,
    arguments: dict[str, Any],
) -> GRPOConfig:
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"  # rollout_func is experimental; we pin TRL's version
    return GRPOConfig(
        **arguments
        | {"num_train_epochs": 1},  # what TRL calls an epoch plays, and reads its games num_iterations times
        num_iterations=settings.epochs,
        steps_per_generation=len(batch.ids) * settings.accumulation // settings.batch_size,
        num_generations=len(batch.ids) // len(set(batch.groups)),
        shuffle_dataset=False,
        temperature=temperature,
        beta=settings.kl,
        epsilon=settings.clip,
        loss_type="grpo",  # a conversation's mean, then the mean of conversations, as in the original
        disable_dropout=True,  # dropout would make π differ from π_old before any step
    )


class _Log(LogCallback):
    """of_games: columns that are the same in all rows."""

    def __init__(self, key: str, on_step: Callable[[int, int, float], object], of_games: dict[str, float]) -> None:
        super().__init__(key, on_step)
        self.of_games = of_games

    def row(self, args: GRPOConfig, state: transformers.TrainerState, logs: dict[str, float]) -> dict[str, float]:
        """Return the columns that `reinforce` names."""
        columns = {column: logs.get(name, 0.0) for name, column in LOGGED.items()}
        return {"epoch": state.global_step * args.num_iterations / state.max_steps, **columns, **self.of_games}
