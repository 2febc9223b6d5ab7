"""Experiments in which a language model plays: Sections 5 and 6, Algorithm `ssft-language-model`."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rmft.environments import ENVIRONMENTS, check_features, check_processes
from rmft.language.protocol import Format, Interaction, Output
from rmft.params.endpoint import FineTuningSettings
from rmft.params.evaluation import Evaluation
from rmft.params.rmft import RMFT
from rmft.params.section import Actions, Betas, Count, Name, NotNegative, Positive, Section, Several, prefixed

VARIANTS = ("language", "grpo", "distillation")  # kinds of experiments that may be variants of another
DistillationBudget = Literal["IMk", "IML", "2IML"]  # how many games of a teacher, in I, M, L and k of RMFT
WHOLE = "model.safetensors"  # what fine-tuning in full writes
LEAST_LINES = 10  # in a fine-tuning job, by the protocol


class VLLM(Section):
    """vLLM, which plays in place of our own process. command: what serves, as `vllm serve` of some environment.

    servers: how many there are, each on its share of `gpus`. arguments: what else they are told. concurrency: requests
    under way at each. start_seconds: that they may take.
    """

    command: Annotated[list[str], Field(min_length=1)]
    servers: Count
    gpus: Annotated[int, Field(ge=0)]
    arguments: list[str] = []
    concurrency: Count
    start_seconds: Positive

    @model_validator(mode="after")
    def _shared_out(self) -> Self:
        if self.gpus % self.servers:
            raise ValueError(f"gpus: {self.gpus} cannot be shared out evenly to servers: {self.servers}")
        return self


class LanguageModelSettings(Section):
    """A causal language model with its tokenizer, as transformers loads it.

    weights: a folder, or the id of a hub repository, then at the commit `revision`. context: tokens that it can see,
    where that is less than its configuration says. batch: games played at a time, fewer where a GPU has no
    memory for them. quantised: how base weights are in memory, None: as published; nf4 takes 4 bits (bitsandbytes),
    beside which adapters are learnt and stay. vllm: who plays, None for this process; fine-tuning is always here.
    """

    kind: Literal["language"]
    weights: str
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None
    dtype: Literal["float32", "bfloat16", "float16"]
    device: Annotated[str, Field(pattern=r"^(cpu|cuda|mps)(:\d+)?$")]
    batch: Count
    context: Count | None = None
    quantised: Literal["nf4"] | None = None
    vllm: VLLM | None = None


class Pretraining(Section):
    """How the embedded model is made: steps of `rows` rows of `tokens` tokens, then its gate.

    settle: the share of steps, at the end, that see the styles of the base model; before them, skilled ones prevail.
    sharpen: what the final logits are multiplied by. threads: another number of them rounds differently.
    gate_games: played for every protocol before the model is let out.
    """

    prompts: str
    steps: Count
    rows: Count
    tokens: Annotated[int, Field(ge=256)]
    learning_rate: Positive
    warmup_steps: Count
    settle: Annotated[float, Field(ge=0, le=1)]
    sharpen: Positive
    threads: Count
    gate_games: Count


class ProtocolSettings(Section):
    """How games are told and answered: App. `prompt-open-weight`.

    prompts: the folder of templates. scenarios: the set of texts that say what actions stand for; none: they are mere
    numbers. max_tokens: of one reply. retries: how often a reply without a valid decision is
    asked for again; after that the decision is uniform. tolerance: how far a policy's sum may be from 1.
    """

    interaction: Interaction
    output: Output
    format: Format
    prompts: str
    scenarios: Name | None = None
    max_tokens: Count
    retries: Annotated[int, Field(ge=0, le=100)]
    tolerance: NotNegative


class LanguageRMFT(RMFT):
    """Algorithm `ssft-language-model`: trajectories differ by sampling at this temperature.

    score: what ranks trajectories, the lowest first: the paper's `regret`; what was earned, `reward`; or the regret of
    the same decisions on rewards drawn again, `rerolled`, in which there is no luck left. pool: among which they are
    ranked: the k best of each `scenario`, as in the paper, or the kM best of an `iteration`.
    """

    temperature: Positive
    score: Literal["regret", "reward", "rerolled"] = "regret"
    pool: Literal["scenario", "iteration"] = "scenario"


class LoRA(Section):
    """Low-rank adapters. target: names of modules, or all linear layers but the last."""

    rank: Count
    alpha: Count
    dropout: Annotated[float, Field(ge=0, lt=1)]
    target: Literal["all-linear"] | Several


class LanguageSFT(Section):
    """The step that maximises the likelihood of demonstrations, by AdamW.

    batch_size: conversations a step, read in `accumulation` passes, more of which need less memory, as does
    gradient_checkpointing. schedule: of the learning rate after the warm-up. max_grad_norm: 0 for no clipping.
    processes: that share a step's conversations, each on a GPU of its own; with method full also the weights (FSDP).
    """

    method: Literal["full", "lora"]
    lora: LoRA
    learning_rate: Positive
    batch_size: Count
    accumulation: Count
    epochs: Count
    schedule: Literal["constant", "linear", "cosine"]
    warmup_steps: Annotated[int, Field(ge=0)]
    weight_decay: NotNegative
    betas: Betas
    epsilon: Positive
    max_grad_norm: NotNegative
    gradient_checkpointing: bool
    processes: Count = 1

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
    """What is played and how it is told. features: of the context that is shown before each round, in cb."""

    kind: Literal["language", "endpoint", "distillation", "grpo"]
    environment: Literal["fol", "mab", "ns-mab", "cb"]
    d: Actions
    features: Count | None = None
    protocol: ProtocolSettings

    @property
    def feedback(self) -> Literal["full", "bandit"]:
        """Return what an agent sees of a round."""
        return "full" if ENVIRONMENTS[self.environment].full_feedback else "bandit"

    @property
    def training_regret(self) -> Literal["realized", "expected"]:
        """Return the regret that selects: over policies, where they are stated or every reward is shown.

        Of actions in bandits it is realized (App. `regret-instantitaion`, which is about those). Where all rewards are
        shown policies are read off the tokens of actions (Sec. `ssec:exp-results-openweight`), and regret is over them.
        """
        return "expected" if self.protocol.output == "distribution" or self.feedback == "full" else "realized"

    @property
    def credited_regret(self) -> Literal["realized", "expected"]:
        """Return the regret that credits tokens: of what they chose, which is an action or a policy.

        The regret of a policy that is read off an action's tokens says nothing of which action was drawn.
        """
        return "expected" if self.protocol.output == "distribution" else "realized"


class WordsExperiment(LanguageProblem):
    """Iterations of rollouts, selection and fine-tuning from a model, and what is evaluated after them."""

    model: Name
    T: Count
    process: Several
    rmft: LanguageRMFT
    sft: LanguageSFT | FineTuningSettings
    evaluations: dict[Name, Evaluation]

    @model_validator(mode="after")
    def _playable(self) -> Self:
        prefixed("process", check_processes, self.environment, self.process)
        prefixed("features", check_features, self.process, self.features)
        if self.process == ["adaptive"]:
            raise ValueError("process: adaptive rewards answer each trajectory's policy and cannot be trained on")
        return self

    @property
    def loop(self) -> LanguageRMFT:
        """Return how often, and how many games, the model plays to learn."""
        return self.rmft

    @property
    def learnt(self) -> int:
        """Return how many trajectories are learnt from."""
        return self.rmft.iterations * self.rmft.scenarios * self.rmft.selected

    @property
    def method(self) -> str:
        """Return what tables call the way in which the model learns."""
        pooled = ", of all scenarios together" if self.rmft.pool == "iteration" else ""
        return f"RMFT by {self.rmft.score}{pooled}"

    @property
    def weights(self) -> str:
        """Return the name of the file that fine-tuning writes: weights, or what an endpoint calls its model."""
        return "model.json" if self.sft.method == "api" else self.sft.file


class LanguageExperiment(WordsExperiment):
    """An experiment of Section 5: the model is at hand.

    varies: another experiment, of which this one is a variant. It names the random streams here too, so that both meet
    the same rewards and sample by the same random numbers; and the games of its base model are those of this one's.
    """

    kind: Literal["language"]
    sft: LanguageSFT
    varies: Name | None = None


class EndpointExperiment(WordsExperiment):
    """An experiment of Section 6: the model is behind an endpoint."""

    kind: Literal["endpoint"]
    sft: FineTuningSettings

    @model_validator(mode="after")
    def _enough(self) -> Self:
        lines = self.rmft.scenarios * self.rmft.selected
        if lines < LEAST_LINES:
            raise ValueError(
                f"rmft.scenarios: an endpoint learns from at least {LEAST_LINES} conversations, not {lines}"
            )
        return self


class SomeScale(Section):
    """What a scale changes in one experiment, in place of what it changes in all of its kind."""

    iterations: Count | None = None
    scenarios: Count | None = None
    trajectories: Count | None = None
    training_seeds: Count | None = None
    instances: Count | None = None


class PlayedScale(Section):
    """What a scale changes in the games of language models, in training and in evaluation.

    model: plays in place of every model. rounds: at most so many. instances: of each evaluation, more or fewer than the
    paper's; powered: of some, by their names, instead: as many as it takes to see a difference.
    """

    model: Name | None = None
    rounds: Count | None = None
    instances: Count | None = None
    powered: dict[Name, Count] = {}

    def played(self, experiment: LanguageProblem, loop: Section) -> dict[str, object]:
        """Return the fields of an experiment that are other ones at this scale: model, T and evaluations.

        loop: how it is trained at this scale.
        """
        horizon = self.rounds or max([experiment.T, *(asked.T for asked in experiment.evaluations.values())])

        def shortened(key: str, asked: Evaluation) -> Evaluation:
            changes = {
                "T": min(asked.T, horizon),
                "instances": self.powered.get(key, self.instances) or asked.instances,
                "iterations": [i for i in asked.iterations if i < loop.iterations],
                "replicates": min(asked.replicates, loop.training_seeds),
            }
            return asked.model_copy(update=changes)

        return {
            "model": self.model or experiment.model,
            "T": min(experiment.T, horizon),
            "evaluations": {key: shortened(key, asked) for key, asked in experiment.evaluations.items()},
        }


class LanguageScale(PlayedScale):
    """What a scale changes in language experiments; what is absent stays the paper's. experiments: in some, instead.

    taught: at most so many games of a teacher that is distilled, by budget.
    """

    iterations: Count | None = None
    scenarios: Count | None = None
    trajectories: Count | None = None
    training_seeds: Count | None = None
    taught: dict[DistillationBudget, Count] = {}
    sft: dict[str, str | int | float | bool] = {}
    experiments: dict[Name, SomeScale] = {}

    def of(self, name: str) -> Self:
        """Return what the scale changes in one experiment."""
        own = self.experiments.get(name, SomeScale()).model_dump(exclude_none=True)
        return self.model_copy(update={**own, "powered": {} if "instances" in own else self.powered})

    def scaled(self, experiment: WordsExperiment) -> WordsExperiment:
        """Return an experiment at this scale."""
        loop = self.model_dump(include={"iterations", "scenarios", "trajectories", "training_seeds"}, exclude_none=True)
        rmft, taught = experiment.rmft.model_copy(update=loop), {}
        kind = "endpoint" if experiment.kind == "endpoint" else "language"
        if experiment.kind == "distillation" and experiment.distillation.budget in self.taught:
            most = self.taught[experiment.distillation.budget]
            taught["distillation"] = experiment.distillation.model_copy(update={"most": most})
        return experiment.model_copy(
            update={
                **self.played(experiment, rmft),
                **taught,
                "rmft": rmft,
                "sft": experiment.sft.changed(f"{kind}.sft", self.sft),
            }
        )
