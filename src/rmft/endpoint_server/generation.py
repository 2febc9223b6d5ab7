"""From requests to responses: tokenise a conversation, have the engine generate, and write the response."""

import asyncio
import logging
import secrets
import time
from array import array
from copy import deepcopy
from pathlib import Path

import numpy as np
from pydantic_core import to_json

from rmft.agents.chat_template import ChatTemplate
from rmft.agents.local import LanguageModel, free_memory, games_at_a_time, load, products_depend_on_batch
from rmft.endpoint_server.chat import ChatRequest, CompletionRequest, choice, token_entry, usage
from rmft.endpoint_server.engine import Engine
from rmft.endpoint_server.errors import ApiError, invalid
from rmft.endpoint_server.idempotency import digest_of
from rmft.endpoint_server.model_runner import CHUNK, Generation, prefix_keys
from rmft.endpoint_server.models import ServedModel, ServedModels, require_tuned_weights
from rmft.endpoint_server.schema import texts_of
from rmft.endpoint_server.settings import FEW_MODELS, MANY_MODELS, MANY_SLOTS, ServerSettings
from rmft.endpoint_server.store import Json
from rmft.endpoint_server.tokenisation import ConversationTokenizer, TokenDecoder
from rmft.streams import stream

log = logging.getLogger(__name__)


class ResponseGenerator:
    """Generates responses. Call it in one event loop only."""

    def __init__(self, settings: ServerSettings, models: ServedModels) -> None:
        self.settings, self.models = settings, models
        base = load(settings.model, batch_invariant=True)
        if products_depend_on_batch(base.model):
            log.warning("here the last bits of logits depend on how many requests are answered together")
        # The engine's thread has its own tokenizers, since tokenizers are not thread-safe.
        tokenizer = deepcopy(base.chat_tokenizer.tokenizer)
        self.tokenizer, self.decoder = ConversationTokenizer(ChatTemplate.probe(tokenizer)), TokenDecoder(tokenizer)
        self.ends, self.context = base.chat_tokenizer.ends, base.chat_tokenizer.limit
        self.vocabulary = base.model.get_input_embeddings().num_embeddings
        self.base: LanguageModel | None = base  # until the engine takes it
        self.pending = 0  # responses in generation
        slots = settings.slots or (settings.model.batch if self.context else max(settings.model.batch, MANY_SLOTS))
        loaded = FEW_MODELS if self.context else MANY_MODELS  # the most at a time
        if self.context and (free := free_memory(base.model.device)):
            # Each further model has weights of its own beside those of the base model, which are loaded.
            weights = sum(parameter.nbytes for parameter in base.model.parameters())
            loaded = min(loaded, 1 + int(free // (2 * weights)))
            slots = games_at_a_time(base, self.context, CHUNK, slots, (free - (loaded - 1) * weights) // loaded)
        self.engine = Engine(self._load, slots, loaded, settings.model.threads)

    def _load(self, weights: Path | None) -> LanguageModel:
        """Load a model, in the engine's thread."""
        base, self.base = self.base, None
        if weights is not None:
            require_tuned_weights(weights)
        return base if base and weights is None else load(self.settings.model, weights, batch_invariant=True)

    async def chat(self, request: ChatRequest, name: str) -> Json:
        """Return the response to a chat request. name: for its id."""
        created = int(time.time())
        request.check()
        model = self.models.get(request.model)
        generations = self._generations(request, model)
        await self._generate(generations)
        first = generations[0]
        return {
            "id": f"chatcmpl-{name}",
            "object": "chat.completion",
            "created": created,
            "model": model.id,
            "choices": [
                choice(number, generation.text, generation.reason, self._token_entries(generation))
                for number, generation in enumerate(generations)
            ],
            "usage": usage(len(first.prompt_ids), first.cached, sum(len(one.ids) for one in generations)),
            "service_tier": "default",
            # What the response depends on besides the request.
            "system_fingerprint": f"fp_{digest_of(model.identity.encode()).hex()[:10]}",
        }

    async def complete(self, request: CompletionRequest, name: str) -> Json:
        """Return the response to a request for a completion of ids. name: for its id."""
        created = int(time.time())
        model, limit = self.models.get(request.model), request.max_tokens
        if max(request.prompt) >= self.vocabulary:
            raise invalid(f"prompt has ids that are no tokens: there are {self.vocabulary}.", "prompt")
        ids = array("i", request.prompt)
        if limit > self.settings.max_tokens:
            raise invalid(f"A response has at most {self.settings.max_tokens} tokens here.", "max_tokens")
        self._check_context(len(ids), limit, "prompt")
        uniforms = self._uniforms(model, ids.tobytes(), request.seed, request.temperature, limit)
        prefixes = prefix_keys([ids.tobytes().hex()])
        generation = Generation(model.weights, ids, prefixes, request.temperature, uniforms, top=request.logprobs)
        await self._generate([generation])
        tops = [{f"token_id:{token}": logprob for token, logprob in top} for top in generation.tops]
        completion = {
            "index": 0,
            "text": generation.text,
            "finish_reason": generation.reason,
            "token_ids": generation.ids,
            "logprobs": {"top_logprobs": tops},
        }
        return {
            "id": f"cmpl-{name}",
            "object": "text_completion",
            "created": created,
            "model": model.id,
            "choices": [completion],
            "usage": usage(len(ids), generation.cached, len(generation.ids)),
        }

    def _generations(self, request: ChatRequest, model: ServedModel) -> list[Generation]:
        """Return the responses that a request asks for, to be generated. Raise ApiError where that is impossible."""
        texts = texts_of(request.messages, "user")
        temperature = 1.0 if request.temperature is None else request.temperature
        ids = array("i")
        for part in self.tokenizer.encode(texts):
            ids.extend(part)
        left = self.context and self.context - len(ids)
        limit = request.token_limit(self.settings.max_tokens, left)
        self._check_context(len(ids), limit, "messages")
        return [
            Generation(
                model.weights,
                ids,
                prefixes=prefix_keys(texts),
                temperature=temperature,
                uniforms=self._uniforms(model, to_json(texts), request.seed, temperature, limit, number),
                stops=request.stops(),
                top=(request.top_logprobs or 0) if request.logprobs else None,
            )
            for number in range(request.n or 1)
        ]

    def _uniforms(
        self, model: ServedModel, prompt: bytes, seed: int | None, temperature: float, limit: int, *choice: int
    ) -> np.ndarray:
        """Return the random numbers (limit,) of a response. Without a seed they are different each time."""
        seed = secrets.token_hex(16) if seed is None else seed
        words = ["endpoint", model.identity, digest_of(prompt).hex(), seed, repr(temperature), *choice]
        return stream(self.settings.seed, "sampling", *words).random(limit)

    def _check_context(self, prompt: int, limit: int, param: str) -> None:
        """Raise ApiError if prompt and response together may have more tokens than the model's context."""
        if self.context is not None and prompt + limit > self.context:
            raise invalid(
                f"This model's maximum context length is {self.context} tokens. However, you requested "
                f"{prompt + limit} tokens ({prompt} in the {param}, {limit} in the completion). "
                f"Please reduce the length of the {param} or completion.",
                param,
                "context_length_exceeded",
            )

    async def _generate(self, generations: list[Generation]) -> None:
        """Wait until the engine has generated responses. Raise ApiError if it cannot."""
        if self.pending and self.pending + len(generations) > self.settings.queue:
            message = f"The queue is full with {self.pending} responses; send the request again later."
            raise ApiError(429, message, code="rate_limit_exceeded", headers={"Retry-After": "1"})
        self.pending += len(generations)
        try:
            self.engine.submit(generations)
            await asyncio.gather(*(asyncio.wrap_future(generation.done) for generation in generations))
        finally:  # where the client has disconnected, the engine stops generating
            self.pending -= len(generations)
            for generation in generations:
                generation.done.cancel()

    def _token_entries(self, generation: Generation) -> list[Json] | None:
        """Return the tokens of a response with their log-probabilities, or None if they are not wanted."""
        if generation.top is None:
            return None
        ids = generation.ids[:-1] if generation.ids[-1] in self.ends else generation.ids
        entries, begin, end = [], 0, len(generation.text.encode())
        tokens = self.decoder.split(ids, generation.text)
        for token, logprob, tops in zip(tokens, generation.logprobs, generation.tops, strict=False):
            if begin >= end:
                break
            begin += len(token[1])
            likeliest = [token_entry(self.decoder.token(other), value) for other, value in tops]
            entries.append({**token_entry(token, logprob), "top_logprobs": likeliest})
        return entries
