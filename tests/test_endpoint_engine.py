"""The engine of our own endpoint: a response depends on its request alone.

The oracle of the engine is the plain model (eager attention, no cache) on the whole conversation, tokenised from texts.
"""

from array import array
from pathlib import Path

import numpy as np
import pytest
import torch
from test_chat_template import byte_tokenizer
from test_local import fresh_model, incline, naive_reply, pair, plain_logits

from rmft.agents.chat_template import ChatTemplate
from rmft.agents.chat_tokenizer import text_of
from rmft.agents.local import LanguageModel
from rmft.endpoint_server.engine import Engine
from rmft.endpoint_server.errors import ApiError
from rmft.endpoint_server.model_runner import CHUNK, PATIENCE, Generation, ModelRunner, prefix_keys
from rmft.endpoint_server.tokenisation import ConversationTokenizer, TokenDecoder
from rmft.errors import InputError

MODELS = ["qwen3-sliding", "gemma", "phi3"]  # a window in all layers, in every other one, in none
LIMIT = 8


class Case:
    """A model with slots, and the plain model that says what its responses are to be."""

    def __init__(self, name: str, slots: int) -> None:
        self.plain, self.model = pair(name)
        self.runner, self.tokenizer = ModelRunner(self.model, slots), tokenizer_of(self.model)

    def ask(self, texts: list[str], number: int, **options) -> Generation:
        """Return a response to be generated. number: of its random stream."""
        return ask(self.tokenizer, texts, number, **options)

    def answer(self, *replies: Generation) -> list[Generation]:
        """Have responses generated."""
        return answer(self.runner, list(replies))

    def expected(self, texts: list[str], reply: Generation) -> list[int]:
        """Return the tokens that the plain model samples."""
        ids, ends = ids_of(self.tokenizer, texts), self.model.chat_tokenizer.ends
        return naive_reply(self.plain, ends, ids, reply.uniforms, reply.temperature)


def tokenizer_of(model: LanguageModel) -> ConversationTokenizer:
    return ConversationTokenizer(model.chat_tokenizer.template)


def ask(tokenizer: ConversationTokenizer, texts: list[str], number: int, **options) -> Generation:
    """Return a response to be generated. number: of its random stream."""
    drawn = np.random.default_rng(number).random(options.pop("limit", LIMIT))
    return Generation(None, array("i", ids_of(tokenizer, texts)), prefix_keys(texts), 1.0, drawn, **options)


def ids_of(tokenizer: ConversationTokenizer, texts: list[str]) -> list[int]:
    """Return the ids of a conversation."""
    return [token for turn in tokenizer.encode(texts) for token in turn]


def answer(runner: ModelRunner, replies: list[Generation]) -> list[Generation]:
    """Have responses generated, in as many slots as there are."""
    waiting = list(replies)
    while waiting or runner.active:
        while waiting and not runner.should_wait(waiting[0]) and runner.start(waiting[0]):
            waiting.pop(0)
        runner.step()
    return replies


def message(game: int, t: int) -> str:
    return f"Round {t} of game {game}: it paid {game + t / 4}. " + "Go on! " * (game + (12 if t == 0 else 0))


@pytest.mark.parametrize(("name", "slots"), [*((name, 8) for name in MODELS), ("gemma", 2)])
def test_replies_are_those_of_a_model_that_reads_the_whole_conversation_anew_from_its_texts(name, slots):
    case, games, retokenised, cached = Case(name, slots), [[] for _ in range(3)], 0, 0
    for t in range(3):
        for game, texts in enumerate(games):
            texts.append(message(game, t))
        replies = case.answer(*(case.ask(texts, 10 * t + game) for game, texts in enumerate(games)))
        for texts, reply in zip(games, replies, strict=True):
            assert reply.ids == case.expected(texts, reply)
            texts.append(reply.text)
            retokenised += list(case.tokenizer.encode(texts)[-1])[: len(reply.ids)] != reply.ids
            cached += reply.cached
    assert retokenised  # random replies come to other tokens when they are read as texts
    assert cached or slots == 2


def test_a_beginning_that_others_have_is_read_once_and_copied():
    case, texts = Case("gemma", 6), [message(2, 0)]
    replies = case.answer(*(case.ask(texts, number) for number in range(5)))
    for reply in replies:
        assert reply.ids == case.expected(texts, reply)
    assert [reply.cached > 0 for reply in replies] == [False, True, True, True, True]
    for number, reply in enumerate(replies):  # and then each goes on in its own slot
        longer = [*texts, reply.text, message(number, 1)]
        (again,) = case.answer(case.ask(longer, 100 + number))
        assert again.ids == case.expected(longer, again)


def test_conversations_that_are_word_for_word_the_same_go_on_in_their_own_slots():
    case, texts = Case("gemma", 8), [message(0, 0)]
    twins = case.answer(case.ask(texts, 1), case.ask(texts, 1))
    unused = len(case.runner.unused)
    longer = [*texts, twins[0].text, message(0, 1)]
    for reply in case.answer(case.ask(longer, 2), case.ask(longer, 3)):
        assert reply.ids == case.expected(longer, reply)
    assert len(case.runner.unused) == unused  # no copy, which would take one more slot


def test_a_conversation_may_be_asked_again_or_go_back_as_far_as_it_likes():
    case, texts = Case("gemma", 2), [message(1, 0)]
    for t in range(1, 5):
        (reply,) = case.answer(case.ask(texts, t))
        texts += [reply.text, message(1, t)]
    for length in (9, 9, 7, 1, 5, 9):
        (reply,) = case.answer(case.ask(texts[:length], 50 + length))
        assert reply.ids == case.expected(texts[:length], reply)


def test_what_was_asked_is_asked_again_after_a_long_reply():
    case, texts = Case("gemma", 2), [message(0, 0)]
    for model in (case.plain, case.model.model):
        incline(model, {case.model.chat_tokenizer.template.end: -1e4})
    for number, limit in enumerate((CHUNK + 30, 3, CHUNK - 10, 3, 3)):
        (reply,) = case.answer(case.ask(texts, number, limit=limit))
        assert len(reply.ids) == limit
        assert reply.ids[:9] == case.expected(texts, reply)[:9]
        assert reply.cached == (len(reply.prompt_ids) - 1 if number else 0)  # however long the reply before it was


def test_conversations_that_go_on_change_rows_with_those_between_them():
    case, games = Case("gemma", 6), [[message(game, 0)] for game in range(6)]
    for model in (case.plain, case.model.model):
        incline(model, {case.model.chat_tokenizer.template.end: -1e4})  # a reply ends at its limit

    def go_on(limits: dict[int, int]) -> list[Generation]:
        """Have games played for one more round, and check their rows and their replies. limits: by game, of tokens."""
        replies = [case.ask(games[place], place, limit=limit) for place, limit in limits.items()]
        for reply in replies:
            assert case.runner.start(reply)
        while not all(len(reply.ids) > 1 for reply in replies):
            case.runner.step()
        rows = sorted(slot.row for slot in case.runner.active.values())
        assert rows == list(range(rows[0], rows[0] + len(rows)))
        case.answer()
        for place, reply in zip(limits, replies, strict=True):
            assert reply.ids[:9] == case.expected(games[place], reply)[:9]
            games[place] += [reply.text, message(place, len(games[place]))]
        return replies

    go_on(dict.fromkeys(range(6), 3))
    # Game 3 comes to row 1. What its long reply overwrites is kept, for when it is asked again.
    go_on({0: 3, 3: CHUNK + 30})
    assert [*case.runner.chat_model.bookmarks] == [1]
    go_on({0: 3, 2: 3})  # game 2 comes to row 1, and game 3 to the row of game 2
    assert [*case.runner.chat_model.bookmarks] == [2]
    del games[3][-2:]
    (again,) = go_on({3: 3})
    assert again.cached == len(again.prompt_ids) - 1


def test_conversations_of_very_different_lengths_are_read_beside_each_other():
    case, conversations = Case("gemma", 4), [["x" * length] for length in (1, 3 * CHUNK + 5, 20, CHUNK)]
    replies = case.answer(*(case.ask(texts, number) for number, texts in enumerate(conversations)))
    for texts, reply in zip(conversations, replies, strict=True):
        assert reply.ids == case.expected(texts, reply)


def test_temperatures_may_differ_and_at_zero_the_likeliest_token_is_taken():
    case = Case("qwen3-sliding", 4)
    replies = [case.ask([message(game, 0)], 7) for game in range(4)]
    for reply, temperature in zip(replies, (0.0, 0.5, 1.0, 0.0), strict=True):
        reply.temperature = temperature
    for game, reply in enumerate(case.answer(*replies)):
        assert reply.ids == case.expected([message(game, 0)], reply)


def letters_only() -> LanguageModel:
    """Return a model that says letters and nothing else, and that never ends."""
    language_model = LanguageModel.of(fresh_model("qwen3-sliding"), byte_tokenizer("qwen3"))
    ids = language_model.chat_tokenizer.tokenizer.convert_tokens_to_ids(list("abcdefgh"))
    incline(language_model.model, dict.fromkeys(ids, 0.0), otherwise=-1e4)
    return language_model


def test_a_stop_ends_a_reply_before_it():
    language_model = letters_only()
    tokenizer = tokenizer_of(language_model)
    (whole,) = answer(ModelRunner(language_model, 1), [ask(tokenizer, ["Hi"], 3, limit=40)])
    assert whole.reason == "length"
    stop = whole.text[17:20]
    reply = ask(tokenizer, ["Hi"], 3, limit=40, stops=("zzz", stop))
    answer(ModelRunner(language_model, 1), [reply])
    assert (reply.reason, reply.text) == ("stop", whole.text[: whole.text.index(stop)])
    assert len(reply.ids) == len(reply.text) + 3


def test_a_reply_that_nobody_waits_for_any_more_frees_its_slot():
    language_model = letters_only()
    runner, tokenizer = ModelRunner(language_model, 1), tokenizer_of(language_model)
    gone, next_one = (ask(tokenizer, [text], 0, limit=1000 if text == "Hi" else 4) for text in ("Hi", "Ho"))
    assert runner.start(gone)
    runner.step()
    assert not runner.start(next_one)
    gone.done.cancel()
    runner.step()
    assert runner.start(next_one)
    answer(runner, [])
    assert next_one.reason == "length"


def test_short_prompts_wait_for_each_other_beside_replies_in_generation_but_not_for_long():
    language_model = letters_only()
    runner, tokenizer = ModelRunner(language_model, 63), tokenizer_of(language_model)
    for game in range(60):
        runner.start(ask(tokenizer, [message(0, 0)], game, limit=1000))
    while not all(reply.ids for reply in runner.active):
        runner.step()
    alone, *together = (ask(tokenizer, [text], 100) for text in ("Hi", "Ho", "Hu"))
    assert len(alone.prompt_ids) < 60 < 2 * len(alone.prompt_ids)
    runner.start(alone)
    for _ in range(PATIENCE):
        assert not alone.ids
        runner.step()
    assert alone.ids
    for reply in together:
        runner.start(reply)
    runner.step()
    assert all(reply.ids for reply in together)


def test_the_likeliest_tokens_and_what_was_chosen_are_noted_with_their_logarithms():
    case = Case("gemma", 2)
    three, none = case.answer(case.ask([message(0, 0)], 0, top=3), case.ask([message(1, 0)], 1))
    assert (none.logprobs, none.tops) == ([], [])
    ids = list(three.prompt_ids) + three.ids
    logprobs = plain_logits(case.plain, ids).log_softmax(-1)[len(three.prompt_ids) - 1 : -1]
    for row, token, logprob, tops in zip(logprobs, three.ids, three.logprobs, three.tops, strict=True):
        assert logprob == pytest.approx(float(row[token]), abs=1e-4)
        assert [token for token, _ in tops] == row.topk(3).indices.tolist()
        assert [value for _, value in tops] == pytest.approx(row.topk(3).values.tolist(), abs=1e-4)


def test_more_models_than_fit_are_served_one_after_the_other_and_one_that_cannot_be_had_is_its_own_askers_trouble():
    loaded = []
    weights = [Path(f"{number}.safetensors") for number in range(5)]

    def load(path: Path) -> LanguageModel:
        if path == weights[2]:
            raise InputError("damaged")
        loaded.append(path)
        return letters_only()

    engine = Engine(load, slots=4, models=2, threads=1)
    tokenizer = tokenizer_of(letters_only())
    replies = [ask(tokenizer, [f"Hi {number}"], number, limit=20) for number in range(20)]
    for number, reply in enumerate(replies):
        reply.weights = weights[number % 5]
    engine.start()
    engine.submit(replies)
    errors = [reply.done.exception(60) for reply in replies]
    engine.stop()
    engine.thread.join(10)
    assert len(engine.runners) == 2
    assert sorted(loaded) == sorted({*weights} - {weights[2]})  # each once: none is given up before it has answered
    for number, (reply, error) in enumerate(zip(replies, errors, strict=True)):
        assert (error.status_code, error.detail) == (500, "damaged") if number % 5 == 2 else reply.text


def test_a_model_that_fails_takes_no_other_model_with_it():
    loaded = []

    def load(path: Path | None) -> LanguageModel:
        loaded.append(path)
        model = letters_only()
        if path is not None:
            torch.nn.init.constant_(model.model.get_input_embeddings().weight, torch.nan)  # as after too large steps
        return model

    engine = Engine(load, slots=8, models=2, threads=1)
    replies = [ask(tokenizer_of(letters_only()), [f"Hi {number}"], number, limit=200) for number in range(8)]
    for reply in replies[4:]:
        reply.weights = Path("broken")
    engine.start()
    engine.submit(replies)
    errors = [reply.done.exception(60) for reply in replies]
    engine.submit(again := [ask(tokenizer_of(letters_only()), ["Hi"], 8)])
    assert again[0].done.exception(60) is None
    engine.stop()
    assert errors[:4] == [None] * 4
    assert all("not finite" in error.detail for error in errors[4:])
    assert loaded.count(None) == 1


def test_who_waits_when_the_engine_stops_is_told():
    engine = Engine(lambda _: letters_only(), slots=1, models=1, threads=1)
    replies = [ask(tokenizer_of(letters_only()), ["Hi"], number, limit=10_000) for number in range(2)]
    engine.start()
    engine.submit(replies)
    engine.stop()
    assert {reply.done.exception(60).status_code for reply in replies} == {503}
    with pytest.raises(ApiError):
        engine.submit(replies)


# --- Tokenisation ---


@pytest.mark.parametrize("family", ["phi3_5", "gemma", "llama3", "qwen3"])
def test_a_conversation_is_tokenised_as_its_template_writes_it(family):
    tokenizer = byte_tokenizer(family)
    turns = ConversationTokenizer(ChatTemplate.probe(tokenizer))
    texts = ["Which one?", "I take 2,\nas before", "It paid 1.\n\nNext?"]
    ids = ids_of(turns, texts)
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    whole = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False, enable_thinking=False
    )
    if family != "qwen3":  # which leaves its empty thoughts out of what is past, and ChatTemplate does not
        assert ids == whole
    assert text_of(tokenizer, ids).count("I take 2,\nas before") == 1


@pytest.mark.parametrize("text", ["plain", "Grüße, 💡!", "", "\ufffd", " a\n\n b"])
def test_the_bytes_of_tokens_in_a_row_are_those_of_the_text(text):
    tokenizer = byte_tokenizer("qwen3")
    decoder = TokenDecoder(tokenizer)
    ids = tokenizer(text, add_special_tokens=False).input_ids
    pieces = decoder.split(ids, text_of(tokenizer, ids))
    assert b"".join(raw for _, raw in pieces) == text.encode()
    broken = [*ids, *tokenizer("💡", add_special_tokens=False).input_ids[:2]]  # half of a character
    pieces = decoder.split(broken, text_of(tokenizer, broken))
    assert b"".join(raw for _, raw in pieces) == text_of(tokenizer, broken).encode()
