"""Histories are token-exact: what a model is fed turn by turn is what its chat template says of the whole."""

from pathlib import Path

import pytest
import trl
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rmft.agents.chat_template import VARIABLES, ChatTemplate
from rmft.errors import InputError

TEMPLATES = Path(trl.__file__).parent / "chat_templates"
BOS = {"gemma": "<bos>", "llama3": "<|begin_of_text|>", "llama3_2": "<|begin_of_text|>"}
SPECIAL = [
    "<|endoftext|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>", "<bos>", "<start_of_turn>", "<end_of_turn>",
    "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
]  # fmt: skip
APPENDING = ("phi3_5", "phi3_5_training", "gemma", "gemma_training", "llama3", "llama3_training", "llama3_2",
             "qwen3_training", "qwen2_5", "qwen3_instruct_2507")  # fmt: skip
# as Qwen and Llama-3 split text
PIECES = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
USERS = ("Which action, 1 or 2?", "It paid **3.25**.\n\nNext?", " It paid -1. ", "And now?")
REPLIES = ("1", "I take 2,\nas before", "2")


def byte_tokenizer(template: str, family: str | None = None) -> PreTrainedTokenizerFast:
    """Return a tokenizer of bytes, and of line ends in pairs, with a chat template: its name or its text."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("Ċ", "Ċ"), ("Ġ", "t")]
    vocabulary = {token: i for i, token in enumerate([*letters, *("".join(pair) for pair in merges)])}
    core = Tokenizer(models.BPE(vocabulary, merges))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(PIECES), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    core.decoder = decoders.ByteLevel()
    bos = BOS.get((family or template).removesuffix("_training"))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token=bos, eos_token="<|endoftext|>", additional_special_tokens=SPECIAL
    )
    path = TEMPLATES / f"{template}.jinja"
    tokenizer.chat_template = path.read_text() if "{" not in template else template
    return tokenizer


def whole(tokenizer, contents: list[str]) -> list[int]:
    """Return the ids of a conversation rendered at once, up to where the next reply starts."""
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": content} for i, content in enumerate(contents)]
    return tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False, **VARIABLES)


def turn_by_turn(turns: ChatTemplate, users, replies) -> list[int]:
    """Return the ids of a conversation that is fed message by message, with replies as if they had been sampled."""
    ids = turns.first(users[0])
    for reply, user in zip(replies, users[1:], strict=True):
        ids += [*turns.tokenizer(reply, add_special_tokens=False).input_ids, turns.end, *turns.next(user)]
    return ids


@pytest.mark.parametrize("family", APPENDING)
def test_turns_one_by_one_are_the_template_on_the_whole_conversation(family):
    tokenizer = byte_tokenizer(family)
    ids = turn_by_turn(ChatTemplate.probe(tokenizer), USERS, REPLIES)
    contents = [text for pair in zip(USERS, (*REPLIES, ""), strict=True) for text in pair][:-1]
    assert ids == whole(tokenizer, contents), tokenizer.decode(ids)


@pytest.mark.parametrize("family", [*BOS, "gemma_training", "llama3_training"])
def test_a_conversation_begins_with_bos_and_has_it_nowhere_else(family):
    tokenizer = byte_tokenizer(family)
    ids = turn_by_turn(ChatTemplate.probe(tokenizer), USERS, REPLIES)
    assert ids[0] == tokenizer.bos_token_id
    assert ids.count(tokenizer.bos_token_id) == 1


@pytest.mark.parametrize("family", ["phi3_5", "qwen3", "gemma", "llama3"])
def test_a_history_only_ever_grows(family):
    turns = ChatTemplate.probe(byte_tokenizer(family))
    shorter, longer = (turn_by_turn(turns, USERS[: n + 1], REPLIES[:n]) for n in (1, 3))
    assert longer[: len(shorter)] == shorter


def test_qwen3_does_not_think_and_every_reply_of_its_history_says_so_as_the_first_one_does():
    tokenizer = byte_tokenizer("qwen3")
    text = tokenizer.decode(turn_by_turn(ChatTemplate.probe(tokenizer), USERS, REPLIES))
    assert text.count("<|im_start|>assistant\n<think>\n\n</think>\n\n") == len(USERS)
    assert whole(tokenizer, [USERS[0]]) == ChatTemplate.probe(tokenizer).first(USERS[0])
    training = byte_tokenizer("qwen3_training")  # trl's template for training makes the same choice
    contents = [text for pair in zip(USERS, (*REPLIES, ""), strict=True) for text in pair][:-1]
    assert tokenizer.decode(whole(training, contents)) == text


REFUSED = {
    "deepseek_r1_distill": "a reply begins with",  # opens a thought that is gone once the reply is past
    "gptoss": "a reply begins with",
    "lfm2_2_5": "thoughts",
    "{{ messages[-1].content }}": "written 0 times",
    "{{ raise_exception('no user, please') }}": "no user, please",
    "{% for m in messages %}### {{ m.role }}: {{ m.content }}\n{% endfor %}### assistant: ": "no special token",
    "{% for m in messages %}{{ loop.length - loop.index }}{{ m.content }}<|end|>{% endfor %}": "differently",
    "{% for m in messages %}{{ m.content }}<|end|>\ud800{% endfor %}": "surrogates not allowed",
    "{% for m in messages[:3] %}{{ m.content }}<|end|>{% endfor %}": "written 0 times|anew",
}


@pytest.mark.parametrize("template", REFUSED)
def test_a_template_that_rewrites_history_is_refused_in_a_line_that_says_what_to_do(template):
    with pytest.raises(InputError, match=REFUSED[template]) as refusal:
        ChatTemplate.probe(byte_tokenizer(template))
    assert "only appends" in str(refusal.value)
    assert "\n" not in str(refusal.value)
