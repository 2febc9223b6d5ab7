"""The thread that owns the loaded models and generates all responses."""

import logging
import queue
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import torch

from rmft.agents.local import LanguageModel
from rmft.endpoint_server.errors import ApiError, stopping
from rmft.endpoint_server.model_runner import Generation, ModelRunner
from rmft.errors import InputError

log = logging.getLogger(__name__)


class Engine:
    """The thread and its queue.

    load: loads the model of some weights, None for the base model. slots: conversations in the cache of each model.
    models: loaded at a time. threads: of a forward pass.
    """

    def __init__(self, load: Callable[[Path | None], LanguageModel], slots: int, models: int, threads: int) -> None:
        self.load, self.slots, self.models, self.threads = load, slots, models, threads
        self.runners: OrderedDict[Path | None, ModelRunner] = OrderedDict()  # the longest unused first
        self.queued: dict[Path | None, deque[Generation]] = {}
        self.inbox: queue.SimpleQueue[list[Generation] | None] = queue.SimpleQueue()
        self.stopped = False
        self.thread = threading.Thread(target=self._run, name="engine", daemon=True)

    # --- Called by other threads ---

    def start(self) -> None:
        """Start the thread."""
        self.thread.start()

    def submit(self, generations: list[Generation]) -> None:
        """Queue responses."""
        if self.stopped:
            raise stopping()
        self.inbox.put(generations)

    def stop(self) -> None:
        """End the thread; pending responses end with an error."""
        self.stopped = True
        self.inbox.put(None)

    # --- In the engine's thread ---

    def _run(self) -> None:
        torch.set_num_threads(self.threads)
        while self._receive():
            self._load_models()
            for weights, runner in list(self.runners.items()):
                try:
                    self._step(weights, runner)
                except Exception as error:  # whatever it is: this model's clients are told, and the others go on
                    self._fail(weights, error)
        self._end_all(stopping())

    def _fail(self, weights: Path | None, error: Exception) -> None:
        """End all responses of a model that has failed, and unload it."""
        log.error("a model failed", exc_info=error)
        reason = str(error) if isinstance(error, InputError) else "The model failed; the server's log says why."
        runner = self.runners.pop(weights, None)
        for generation in [*(runner.active if runner else ()), *self.queued.pop(weights, ())]:
            generation.end(ApiError(500, reason))

    def _receive(self) -> bool:
        """Take new responses from the inbox; wait for them if there is nothing to do. Return False at the end."""
        idle = not any(self.queued.values()) and not any(runner.active for runner in self.runners.values())
        while idle or not self.inbox.empty():
            generations = self.inbox.get()
            if generations is None:
                return False
            for generation in generations:
                self.queued.setdefault(generation.weights, deque()).append(generation)
            idle = False
        return True

    def _load_models(self) -> None:
        """Load the models that queued responses need, in place of unneeded ones, else of the longest unused one."""
        new = set()  # loaded here, so that they have no response yet
        for runner in self.runners.values():
            runner.closing = False
        for weights in [key for key, queued in self.queued.items() if queued and key not in self.runners]:
            if len(self.runners) >= self.models:
                inactive = [key for key, runner in self.runners.items() if not runner.active and key not in new]
                if not inactive:
                    if oldest := next((runner for key, runner in self.runners.items() if key not in new), None):
                        oldest.closing = True  # starts no response until it is replaced
                    continue
                unneeded = [key for key in inactive if not self.queued.get(key)]
                del self.runners[(unneeded or inactive)[0]]
            try:
                self.runners[weights] = ModelRunner(self.load(weights), self.slots)
                new.add(weights)
            except Exception as error:
                self._fail(weights, error)

    def _step(self, weights: Path | None, runner: ModelRunner) -> None:
        """Start queued responses of a model as far as slots are free, and add a token to all that it generates."""
        queued, later = self.queued.get(weights, deque()), []
        try:
            while queued and not runner.closing:
                if runner.should_wait(queued[0]):
                    later.append(queued[0])
                elif not queued[0].done.cancelled() and not runner.start(queued[0]):
                    break
                queued.popleft()
        finally:
            queued.extendleft(reversed(later))
        if not queued:
            self.queued.pop(weights, None)
        if runner.active:
            self.runners.move_to_end(weights)
            runner.step()

    def _end_all(self, error: ApiError) -> None:
        """End all pending responses with an error."""
        pending = [generation for runner in self.runners.values() for generation in runner.active]
        pending += chain(*self.queued.values())
        while not self.inbox.empty():
            pending += self.inbox.get() or ()
        self.queued.clear()
        for generation in pending:
            generation.end(error)
