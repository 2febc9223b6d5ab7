"""TRL: a `rollout_func` with which GRPOTrainer's own model plays games, and the reward function that goes with it.

    rollouts = BanditRollouts(GameOptions(seed=1, instances=64, horizon=10, environment="mab"))
    GRPOTrainer(model, reward_funcs=minus_regret, train_dataset=rollouts.dataset(), rollout_func=rollouts, args=...)

A prompt of a dataset names an instance, and the completions of its group are games on that instance. A game is one
sequence of tokens, as they were sampled; `env_mask` says which of them the model sampled. Unlike `training.grpo`, which
gives every token an advantage of its own, TRL gives one to a whole game.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from datasets import Dataset
from trl import GRPOTrainer

from rmft.adapters.games import GameOptions, OfferedGames, offered
from rmft.agents.chat_models import Conversations
from rmft.agents.chat_tokenizer import ChatTokenizer
from rmft.agents.served import SampledTokens, ServedChatModel, TokenRequest
from rmft.errors import InputError
from rmft.rollouts import Games, roll_out
from rmft.suite.parts import read_suite

TRAINING, HELD_OUT = "game", "held-out game"  # what prompts begin with; the number of the instance follows, from 1


class BanditRollouts:
    """The games that options name, as TRL's `rollout_func`. Raise InputError for options without a seed of their own.

    held_out: other games, which the trainer's evaluation plays; they may be the suite's. TRL's `max_completion_length`
    limits one reply; the whole game must fit into the model's context.
    """

    def __init__(self, options: GameOptions, held_out: GameOptions | None = None) -> None:
        if options.seed in (None, read_suite().seed):
            raise InputError(
                "seed: needed, and another than the suite's, since a model that has trained on the suite's own games "
                "cannot be measured"
            )
        sets = {TRAINING: options, **({HELD_OUT: held_out} if held_out else {})}
        if any(of.max_tokens is not None for of in sets.values()):
            raise InputError("max_tokens: in TRL, max_completion_length of GRPOConfig limits a reply")
        self.offered = {name: offered(of) for name, of in sets.items()}
        self.place, self.seen = "", Counter()  # games of training so far by instance, at this place

    def dataset(self) -> Dataset:
        """Return a row for each instance."""
        return self._dataset(TRAINING)

    def held_out(self) -> Dataset:
        """Return a row for each held-out instance, for `eval_dataset`. Raise InputError where there are none."""
        if HELD_OUT not in self.offered:
            raise InputError("held_out: BanditRollouts got no options for held-out games")
        return self._dataset(HELD_OUT)

    def _dataset(self, name: str) -> Dataset:
        return Dataset.from_dict({"prompt": [f"{name} {i + 1}" for i in range(len(self.offered[name].uniform))]})

    def __call__(self, prompts: Sequence[str], trainer: GRPOTrainer) -> dict[str, list[object] | None]:
        """Play a game for each prompt, and return what TRL asks for, with the regret and `minus_regret`'s reward.

        Raise InputError for a prompt that is no row of `dataset` or `held_out`, and where a game may not fit into the
        model's context.
        """
        offered_games, games = self._games(prompts, trainer)
        client = TrainerClient(trainer)
        tokenizer = ChatTokenizer.of(trainer.processing_class, trainer.model.config, trainer.eos_token_ids, None)
        limit = trainer.max_completion_length
        Conversations(games.settings, games.rewards.shape[1], limit).capacity(tokenizer)
        played = roll_out(games, lambda ids: ServedChatModel(client, tokenizer, ids, limit), len(prompts))
        results = offered_games.scored(played)
        conversations = [conversation for (conversation,) in played["ids"]]
        sampled = [row for (row,) in played["sampled"]]
        starts = [max(1, row.index(True)) for row in sampled]
        return {
            "prompt_ids": [row[:start] for row, start in zip(conversations, starts, strict=True)],
            "completion_ids": [row[start:] for row, start in zip(conversations, starts, strict=True)],
            "env_mask": [[int(of) for of in row[start:]] for row, start in zip(sampled, starts, strict=True)],
            "logprobs": client.logprobs_of(conversations, starts),
            "regret": [game.regret for game in results],
            "game_reward": [game.reward for game in results],
        }

    def _games(self, prompts: Sequence[str], trainer: GRPOTrainer) -> tuple[OfferedGames, Games]:
        """Return the games of prompts; the name of their random streams differs in each step and process.

        Where TRL generates several times in a step of training, the games of an instance are counted over all of them.
        An evaluation begins anew each time, so that it plays the same games again.
        """
        place = f"process-{trainer.accelerator.process_index}/step-{trainer.state.global_step}"
        if place != self.place:
            self.place, self.seen = place, Counter()
        ids = []
        name = prompts[0].rpartition(" ")[0]  # a step trains or evaluates, so that its prompts are of one dataset
        seen = self.seen if name == TRAINING else Counter()
        for prompt in prompts:
            of, _, number = prompt.rpartition(" ")
            known = of == name and of in self.offered and number.isdecimal()
            if not known or not 1 <= int(number) <= len(self.offered[of].uniform):
                raise InputError(f"prompt {prompt!r}: is no row of the datasets that this BanditRollouts made")
            instance = int(number) - 1
            ids.append((instance, seen[instance]))
            seen[instance] += 1
        chosen = self.offered[name].named(place)
        return chosen, replace(chosen.games, ids=np.array(ids))


class TrainerClient:
    """TRL's own generation as a `TokenClient`: in transformers, or in vLLM where the trainer uses it."""

    def __init__(self, trainer: GRPOTrainer) -> None:
        self.trainer = trainer
        self.logprobs: dict[tuple[int, int], list[float]] = {}  # by conversation and the place where they begin

    def sample(self, requests: Sequence[TokenRequest]) -> list[SampledTokens]:
        """Return the completions of prompts (n,). Temperature, limit and random numbers are the trainer's.

        TRL generates up to the tokens that end a text for it, which need not be all that end a completion here.
        """
        prompts = [list(request.prompt) for request in requests]
        sampled, logprobs = self.trainer._generate_single_turn(prompts, None, {}, num_generations=1)
        completions = [_up_to_stop(list(ids), request.stop) for ids, request in zip(sampled, requests, strict=True)]
        for request, ids, of in zip(requests, completions, logprobs or [], strict=False):
            self.logprobs[request.conversation, len(request.prompt)] = of[: len(ids)]
        return [SampledTokens(ids, [{}] * len(ids)) for ids in completions]

    def likeliest(self, requests: Sequence[TokenRequest]) -> list[dict[int, float]]:
        """Raise InputError: TRL's generation returns the sampled tokens alone."""
        raise InputError(
            "actions under full feedback need log-probabilities of other tokens, which TRL does not return"
        )

    def logprobs_of(self, conversations: Sequence[Sequence[int]], starts: Sequence[int]) -> list[list[float]] | None:
        """Return log-probabilities from a start on, 0 where the model sampled nothing; None where TRL computes them."""
        if not self.logprobs:
            return None
        rows = [np.zeros(len(conversation)) for conversation in conversations]
        for (conversation, place), of in self.logprobs.items():
            row = rows[conversation][place : place + len(of)]
            row[:] = of[: len(row)]
        return [row[start:].tolist() for row, start in zip(rows, starts, strict=True)]


def _up_to_stop(ids: list[int], stop: Sequence[int]) -> list[int]:
    """Return tokens up to the first one that ends a completion, and with that one."""
    end = next((place for place, token in enumerate(ids) if token in stop), len(ids))
    return ids[: end + 1]


def minus_regret(game_reward: list[float], **_: object) -> list[float]:
    """Return the rewards of games: −regret / (10 T); see `GameResult.reward`."""
    return game_reward
