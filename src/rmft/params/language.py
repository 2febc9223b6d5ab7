"""Experiments in which a language model plays: Sections 5 and 6, Algorithm `ssft-language-model`."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from rmft.environments import ENVIRONMENTS, check_features, check_processes
from rmft.language.protocol import MOST_TOKENS, Format, Interaction, Output
from rmft.params.endpoint import FineTuningSettings
from rmft.params.evaluation import Evaluation
from rmft.params.experiment import RMFT, Experiment
from rmft.params.section import Actions, Betas, Count, Name, NotNegative, Positive, Section, Several, known, prefixed

if TYPE_CHECKING:
    from rmft.params.whole import Params

WHOLE = "model.safetensors"  # what fine-tuning in full writes
LEAST_LINES = 10  # in a fine-tuning job, by the protocol
TWO_DIGITS = 10  # from so many actions on, the number of one action begins with the number of another


class ProtocolSettings(Section):
    """How games become prompts, and replies decisions: App. `prompt-open-weight`."""

    interaction: Interaction = Field(
        description="dialogue: one conversation for all rounds; summary: a new conversation each round, with a summary."
    )
    output: Output = Field(description="What a completion states: an action, or a distribution over actions.")
    format: Format = Field(description="Whether a completion may reason before its decision.")
    prompts: str = Field(description="Folder of the templates.")
    scenarios: Name | None = Field(
        default=None, description="The set of `scenarios` that says what the actions stand for; null: only numbers."
    )
    max_tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)] = Field(
        description=f"Largest number of tokens of a completion: at most {MOST_TOKENS}."
    )
    retries: Annotated[int, Field(ge=0, le=100)] = Field(
        description="Further samples after a completion without a valid decision; after these rmft decides uniformly."
    )
    tolerance: Annotated[float, Field(ge=0, lt=1)] = Field(
        description="How far the sum of a stated policy may be from 1: less than 1."
    )


Score = Literal["regret", "reward", "rerolled", "random"]
Pool = Literal["scenario", "iteration"]


class LanguageRMFT(RMFT):
    """Algorithm `ssft-language-model`."""

    temperature: Positive = Field(description="Temperature of sampling, by which trajectories differ.")
    score: Score = Field(
        default="regret",
        description="What ranks trajectories: `regret`, as in the paper; `reward`; `rerolled`, the regret of the same "
        "decisions averaged over rewards drawn again; or `random`, a control.",
    )
    pool: Pool = Field(
        default="scenario",
        description="Among which trajectories the best are kept: k of each `scenario`, as in the paper, or kM of an "
        "`iteration`.",
    )


class LoRA(Section):
    """Low-rank adapters."""

    rank: Count = Field(description="Rank of an adapter.")
    alpha: Count = Field(description="Numerator of the adapters' scale, alpha / rank.")
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(description="Dropout before an adapter.")
    target: Literal["all-linear"] | Several = Field(
        description="Names of modules, or all-linear: all linear layers except the last."
    )


class LanguageSFT(Section):
    """The step that maximises the likelihood of demonstrations, by AdamW."""

    method: Literal["full", "lora"] = Field(description="What is trained: all weights, or low-rank adapters.")
    lora: LoRA = Field(description="The adapters, for method lora.")
    learning_rate: Positive = Field(description="Step size after the warm-up.")
    batch_size: Count = Field(description="Conversations of a step.")
    accumulation: Count = Field(
        default=1, description="Parts that the batch of a step is split into; more parts need less memory."
    )
    epochs: Count = Field(description="How often all conversations are read.")
    schedule: Literal["constant", "linear", "cosine"] = Field(description="Learning rate after the warm-up.")
    warmup_steps: Annotated[int, Field(ge=0)] = Field(default=0, description="Steps in which the step size grows.")
    weight_decay: NotNegative = Field(default=0.0, description="Weight decay of AdamW.")
    betas: Betas = Field(default=[0.9, 0.999], description="Decay rates of AdamW's moments.")
    epsilon: Positive = Field(default=1e-8, description="ε of AdamW.")
    max_grad_norm: NotNegative = Field(default=1.0, description="Largest norm of a gradient; 0: no clipping.")
    gradient_checkpointing: bool = Field(description="Whether activations are computed again, to save memory.")
    report_to: Literal["tensorboard", "trackio", "wandb"] | None = Field(
        default=None,
        exclude_if=lambda tracker: tracker is None,
        description="Where the trainer sends its log too, which must be installed: tensorboard writes below "
        "logs/tensorboard, the others to project rmft. A change trains again.",
    )
    processes: Count = Field(
        default=1,
        description="Processes that share a step, each on a GPU of its own; with method full also the weights (FSDP).",
    )

    @model_validator(mode="after")
    def _divisible(self) -> Self:
        if self.batch_size % self.accumulation:
            raise ValueError(f"accumulation: {self.accumulation} must divide batch_size: {self.batch_size}")
        if (one := self.batch_size // self.accumulation) % self.processes:
            raise ValueError(f"processes: {self.processes} must divide what is read in a pass, {one} conversations")
        return self

    @property
    def file(self) -> str:
        """Return the name of the file that training writes."""
        return {"full": WHOLE, "lora": "adapter.safetensors"}[self.method]


class LanguageProblem(Section):
    """What is played, and how it becomes prompts."""

    kind: Literal["language", "endpoint", "distillation", "grpo", "method"] = Field(
        description="Kind of the experiment."
    )
    environment: Literal["fol", "mab", "ns-mab", "cb"] = Field(
        description="Full-information online learning, multi-armed bandits, non-stationary or contextual bandits."
    )
    d: Actions = Field(description="Number of actions.")
    features: Count | None = Field(
        default=None, description="Features of the context that is shown before each round, in cb."
    )
    protocol: ProtocolSettings = Field(description="How games become prompts, and completions become decisions.")

    @property
    def feedback(self) -> Literal["full", "bandit"]:
        """Return what an agent sees of a round."""
        return "full" if ENVIRONMENTS[self.environment].full_feedback else "bandit"

    @property
    def training_regret(self) -> Literal["realized", "expected"]:
        """Return the regret that selects: over policies, where they are stated or every reward is shown.

        For actions in bandits it is realized (App. `regret-instantitaion`, which is about those). Where all rewards are
        shown, policies are read off the tokens of actions (Sec. `ssec:setting-sec5`); regret is over them.
        """
        return "expected" if self.protocol.output == "distribution" or self.feedback == "full" else "realized"

    @property
    def credited_regret(self) -> Literal["realized", "expected"]:
        """Return the regret that credits tokens: of what they chose, which is an action or a policy.

        The regret of a policy that is read off an action's tokens does not depend on which action was drawn.
        """
        return "expected" if self.protocol.output == "distribution" else "realized"

    @property
    def space(self) -> Literal["simplex"]:
        """Return the policy space."""
        return "simplex"


class GameExperiment(Experiment, LanguageProblem):
    """An experiment in words: a language model plays."""

    @model_validator(mode="after")
    def _playable(self) -> Self:
        prefixed("process", check_processes, self.environment, self.process)
        prefixed("features", check_features, self.process, self.features)
        if self.process == ["adaptive"]:
            raise ValueError("process: adaptive rewards answer each trajectory's policy and cannot be trained on")
        return self

    @property
    def stages(self) -> tuple[str, ...]:
        """Return the stages that the experiment has jobs of."""
        selection = ("selection",) if self.selects else ()
        learning = ("gather" if self.sharded else "distillation", *selection, self.trained_by)
        return "rollouts", *learning, "evaluation", "reasoning"

    @property
    def cut(self) -> bool:
        """Return whether a scale leaves fewer games to learn from than the experiment's budget."""
        return False

    @property
    def played(self) -> int:
        """Return how many trajectories are played for training."""
        return self.loop.iterations * self.loop.scenarios * self.loop.trajectories

    def check(self, name: str, params: "Params") -> None:
        """Raise ValueError where what the experiment names is not there, or does not fit it. name: its own."""
        super().check(name, params)
        if self.sharded and (shards := params.shards(name)) > self.loop.scenarios:
            raise ValueError(f"rollouts.shards: {shards} is more than the {self.loop.scenarios} scenarios of {name}")
        key, model = f"experiments.{name}", params.models[self.model]
        check_trainable(key, self.model, model, self.weights)
        if self.protocol.scenarios:
            known(f"{key}.protocol.scenarios", self.protocol.scenarios, params.scenarios)

    def check_variant(self, key: str, name: str, params: "Params") -> None:
        """Raise ValueError where the games of the base model are not among those of the varied experiment."""
        super().check_variant(key, name, params)
        original = params.experiments[self.varies]
        for part in ("model", "environment", "d", "protocol"):
            if getattr(self, part) != getattr(original, part):
                raise ValueError(
                    f"{key}: {self.varies} has another {part}; a variant shares the base model's games, so leave out "
                    f"`varies` and write the experiment in full"
                )
        for evaluation, ours in self.evaluations.items():
            known(f"{key}: evaluations of {self.varies}", evaluation, original.evaluations)
            theirs = original.evaluations[evaluation]
            for part in ("rewards", "T", "scenarios"):
                if getattr(ours, part) != getattr(theirs, part):
                    raise ValueError(f"{key}: its evaluation {evaluation} has another {part}")
            if (ours.temperature or self.loop.temperature) != (theirs.temperature or original.loop.temperature):
                raise ValueError(f"{key}: its evaluation {evaluation} is sampled at another temperature")
            if ours.instances > theirs.instances:
                raise ValueError(f"{key}: its evaluation {evaluation} has only {theirs.instances} instances")

    def check_evaluation(self, key: str, evaluation: Evaluation, params: "Params") -> None:
        """Raise ValueError where an evaluation does not fit the experiment."""
        if evaluation.scenarios is not None:
            if self.protocol.scenarios is None:
                raise ValueError(f"{key}.scenarios: the experiment's games are not told in scenarios")
            known(f"{key}.scenarios", evaluation.scenarios, params.scenarios)
        if evaluation.rewards in params.rewards and params.rewards[evaluation.rewards].process == ["adaptive"]:
            raise ValueError(f"{key}.rewards: adaptive rewards answer policies, and games in words are drawn before")
        last, seeds = self.loop.iterations, self.loop.training_seeds
        if any(i >= last for i in evaluation.iterations):
            raise ValueError(f"{key}.iterations: are those before the last; the last, {last}, plays as `trained`")
        if evaluation.replicates not in (1, seeds):
            several = f"{evaluation.replicates} of the base model are not the {seeds} training seeds"
            raise ValueError(f"{key}.replicates: {several}")
        super().check_evaluation(key, evaluation, params)


class WordsExperiment(GameExperiment):
    """An experiment in words whose sizes are those of RMFT, and whose model is fine-tuned on conversations."""

    trained_by: ClassVar = "sft"
    iteration_files: ClassVar = ("rollouts.parquet", "selection.parquet", "demonstrations.jsonl")
    selects: ClassVar = True

    rmft: LanguageRMFT = Field(description="The loop, Algorithm `ssft-language-model`.")
    sft: LanguageSFT | FineTuningSettings

    @property
    def learnt(self) -> int:
        """Return how many trajectories the model learns from."""
        return self.rmft.iterations * self.rmft.scenarios * self.rmft.selected

    @property
    def method_name(self) -> str:
        """Return what tables call the way in which the model learns."""
        pooled = ", of all scenarios together" if self.rmft.pool == "iteration" else ""
        return f"RMFT by {self.rmft.score}{pooled}"

    @property
    def weights(self) -> str:
        """Return the name of the file that fine-tuning writes: weights, or the name of an endpoint's model."""
        return "model.json" if self.sft.method == "api" else self.sft.file


class LanguageExperiment(WordsExperiment):
    """An experiment of Section 5: the model is at hand."""

    model_kind: ClassVar = "language"
    defaults_of: ClassVar = ("language",)
    scale_of: ClassVar = "language"

    kind: Literal["language"] = Field(
        description="Kind of the experiment: a language model learns by RMFT (Section 5)."
    )
    sft: LanguageSFT = Field(description="How the model is fine-tuned on the selected trajectories.")


class EndpointExperiment(WordsExperiment):
    """An experiment of Section 6: the model is behind an endpoint."""

    model_kind: ClassVar = "endpoint"
    defaults_of: ClassVar = ("endpoint",)
    scale_of: ClassVar = "endpoint"

    kind: Literal["endpoint"] = Field(
        description="Kind of the experiment: a model behind an endpoint learns by RMFT (Section 6)."
    )
    sft: FineTuningSettings = Field(description="How the endpoint fine-tunes the model.")

    @model_validator(mode="after")
    def _enough(self) -> Self:
        lines = self.rmft.scenarios * self.rmft.selected
        if lines < LEAST_LINES:
            raise ValueError(
                f"rmft.scenarios: an endpoint learns from at least {LEAST_LINES} conversations, not {lines}"
            )
        return self

    def check(self, name: str, params: "Params") -> None:
        """Raise ValueError where what the experiment names is not there, or does not fit it. name: its own."""
        super().check(name, params)
        self._check_numbers(f"experiments.{name}.d", self.d)

    def check_evaluation(self, key: str, evaluation: Evaluation, params: "Params") -> None:
        """Raise ValueError where an evaluation does not fit the experiment."""
        super().check_evaluation(key, evaluation, params)
        self._check_numbers(f"{key}.rewards", params.rewards[evaluation.rewards].d)

    def _check_numbers(self, key: str, d: int) -> None:
        """Raise ValueError where policies would be read off the tokens of numbers of two digits.

        Of a token `1` that the model did not write, an endpoint does not say whether it would have gone on as `10`.
        """
        if d >= TWO_DIGITS and self.feedback == "full" and self.protocol.output == "action":
            reason = f"a policy over {d} actions cannot be read off the first token of a number"
            raise ValueError(f"{key}: {reason}, and an endpoint returns no others: use protocol.output: distribution")

    def shards(self, wanted: int) -> int:
        """Return one: the games wait for the endpoint together, and its journal has all answers."""
        return 1


def check_trainable(key: str, name: str, model: Section, file: str) -> None:
    """Raise ValueError for full fine-tuning of quantised weights. file: that fine-tuning writes."""
    if model.kind == "language" and model.quantised and file == WHOLE:
        reason = f"{name} has quantised weights, beside which adapters are learnt: lora"
        raise ValueError(f"{key}: method: full: {reason}")
    if model.kind == "language" and model.llama_cpp and file == WHOLE:
        reason = f"{name} is played by llama_cpp, which takes the GGUF file and an adapter beside it: lora"
        raise ValueError(f"{key}: method: full: {reason}")
