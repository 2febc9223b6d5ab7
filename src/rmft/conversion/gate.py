"""The gate of a conversion: transformers must read our prompts as llama.cpp does, and expect the same tokens next.

llama.cpp rounds activations to 8 bits where weights are quantised, and the checkpoint holds weights rounded to its
type, so distributions differ a little. Total variation is half the sum of the absolute differences of probabilities.

Symbols: n tokens of a conversation, V vocabulary, p features of a context, d actions.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from rmft.agents.chat_tokenizer import ChatTokenizer
from rmft.conversion.llama_cpp import Reference
from rmft.errors import InputError
from rmft.language.prompts import Prompts
from rmft.language.protocol import Protocol, Round, Scenario, all_protocols
from rmft.language.scenarios import for_actions
from rmft.streams import stream

SIZES = {2: 0, 3: 0, 5: 3}  # d → p
PLAYED, POSITIONS = 8, 6  # conversations whose distributions are compared, and places in each of them
LIKELIEST = 100  # tokens that distributions are compared on, beside all others together
# A wrong rotation, norm or permutation moves most of the mass (> 0.5), 8-bit activations little: see docs/language.md.
MEAN_DISTANCE, MOST_DISTANCE = 0.05, 0.25
Row = dict[str, object]


@dataclass(frozen=True)
class Conversation:
    """Two rounds of a game. reply: the completion between the messages, and the beginning of the next one."""

    protocol: Protocol
    messages: tuple[str, str]
    reply: str


def conversations(prompts: Prompts, scenario_sets: Sequence[Sequence[Scenario]]) -> Iterator[Conversation]:
    """Yield the beginnings of games of every protocol: without a scenario, and with the first of each set."""
    rng = stream(0, "environment", "conversion")
    for d, p in SIZES.items():
        of_sets = [fitting[0] for scenarios in scenario_sets if (fitting := for_actions(scenarios, d))]
        for scenario in (None, *of_sets):
            for protocol in all_protocols(d, scenario):
                rewards, context = rng.uniform(0, 10, d), tuple(rng.uniform(0, 1, p))
                policy = tuple(rng.dirichlet(np.ones(d)).round(2)) if protocol.output == "distribution" else None
                played, first = replace(protocol, features=p), Round(1, d - 1, policy, tuple(rewards), context)
                messages = prompts.message(played, [], context), prompts.message(played, [first], context)
                shares = ", ".join(f"{share:.2f}" for share in policy) if policy else ""
                yield Conversation(played, messages, f"Policy: [{shares}]" if policy else f"Action: {d}")


def compare(
    talks: Sequence[Conversation],
    chat_tokenizer: ChatTokenizer,
    next_logprobs: Callable[[list[int], np.ndarray], np.ndarray],
    reference: Reference,
    say: Callable[[str], None],
) -> list[Row]:
    """Return a row of conversion.csv for each conversation.

    next_logprobs: returns the log-probabilities (k, V) of the tokens after k positions of n tokens.
    Raise InputError where the token ids differ, or the distributions by more than the limits.
    """
    rows, played = [], range(0, len(talks), len(talks) // PLAYED + 1)
    for number, talk in enumerate(talks):
        ids = same_ids(talk, chat_tokenizer, reference)
        row = {key: getattr(talk.protocol, key) for key in ("interaction", "output", "feedback", "format", "d")}
        row |= {"features": talk.protocol.features, "told": talk.protocol.scenario is not None, "tokens": len(ids)}
        if number in played:
            distances, agree = compared(ids, next_logprobs, reference)
            row |= {"positions": len(distances), "total_variation": round(float(distances.mean()), 4)}
            row |= {"most_total_variation": round(float(distances.max()), 4), "same_likeliest": round(agree, 4)}
            say(f"{len(rows) + 1}/{len(talks)} conversations, total variation {row['total_variation']}")
        rows.append(row)
    refuse_distant(rows)
    return [dict.fromkeys(rows[0] | rows[-1]) | row for row in rows]


def same_ids(talk: Conversation, chat_tokenizer: ChatTokenizer, reference: Reference) -> list[int]:
    """Return the ids of a conversation. Raise InputError where llama.cpp reads its messages as other tokens."""
    template, (first, later) = chat_tokenizer.template, talk.messages
    found = template.first(first), template.next(later)
    texts = template.opening + first + template.head, template.closing + later + template.head
    expected = reference.tokens(texts[0]), reference.tokens(texts[1])[1:]  # without the end token
    for ours, theirs, text in zip(found, expected, texts, strict=True):
        if ours != theirs:
            at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), len(theirs))
            before = chat_tokenizer.tokenizer.decode(ours[max(0, at - 5) : at + 1])
            raise InputError(
                f"its tokenizer cuts {before!r} otherwise than llama.cpp (token {at} of {len(theirs)} in {text[:40]!r})"
            )
    return [*found[0], *template.completion(talk.reply), *found[1], *template.completion(talk.reply)[:-2]]


def compared(
    ids: list[int], next_logprobs: Callable[[list[int], np.ndarray], np.ndarray], reference: Reference
) -> tuple[np.ndarray, float]:
    """Return total variations (POSITIONS,) of the next token, and the share where the likeliest token is the same."""
    places = np.linspace(len(ids) // 4, len(ids) - 1, POSITIONS).astype(int)
    ours, distances, agree = next_logprobs(ids, places), np.empty(POSITIONS), np.empty(POSITIONS)
    for i, place in enumerate(places):
        theirs = reference.likeliest(ids[: place + 1], LIKELIEST)
        tokens = list(theirs)
        q, p = np.exp(list(theirs.values())), np.exp(ours[i, tokens].astype(float))
        distances[i] = (np.abs(p - q).sum() + abs(q.sum() - p.sum())) / 2
        agree[i] = ours[i].argmax() == tokens[q.argmax()]
    return distances, float(agree.mean())


def refuse_distant(rows: Sequence[Row]) -> None:
    """Raise InputError where the distributions of the played conversations differ by more than the limits."""
    played = [row for row in rows if "positions" in row]
    mean = float(np.mean([row["total_variation"] for row in played]))
    most = max(row["most_total_variation"] for row in played)
    if not (mean <= MEAN_DISTANCE and most <= MOST_DISTANCE):
        raise InputError(
            f"its next tokens are not those of llama.cpp: total variation {mean:.3f} on average and {most:.3f} at most,"
            f" where {MEAN_DISTANCE} and {MOST_DISTANCE} are allowed"
        )


def load_converted(folder: Path) -> tuple[ChatTokenizer, Callable[[list[int], np.ndarray], np.ndarray]]:
    """Return the chat tokenizer of a folder, and the function that gives log-probabilities, computed in float32."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32", use_safetensors=True).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    chat_tokenizer = ChatTokenizer.of(tokenizer, model.config, model.generation_config.eos_token_id, None)

    @torch.inference_mode()
    def next_logprobs(ids: list[int], places: np.ndarray) -> np.ndarray:
        logits = model(torch.tensor([ids]), logits_to_keep=torch.as_tensor(places)).logits[0]
        return logits.float().log_softmax(dim=-1).numpy()

    return chat_tokenizer, next_logprobs
