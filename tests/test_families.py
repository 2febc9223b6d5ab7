"""An iteration of RMFT with every family of models that there is an entry for or that users will bring.

The checkpoints are tiny and random, but of the real architectures and with the real chat templates. They are inclined
to reply with a digit and the end of their turn, so that most replies are valid. The oracle is Transformers' own model
of each family, with eager attention and no memory, on the whole history.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model, set_peft_model_state_dict
from test_chat_template import byte_tokenizer
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    DeepseekV3Config,
    Gemma2Config,
    GptOssConfig,
    LlamaConfig,
    Phi3Config,
    PretrainedConfig,
    PreTrainedModel,
    Qwen3Config,
    Qwen3MoeConfig,
)

from rmft.agents.chat_template import ChatTemplate
from rmft.agents.checkpoint import load_tokenizer
from rmft.agents.local import load
from rmft.agents.memory import size_of_model
from rmft.agents.model_shapes import bytes_of_weights
from rmft.agents.weights import ADAPTER_CONFIG, quantised
from rmft.artifacts.tensors import read_tensors, write_tensors
from rmft.errors import InputError
from rmft.language.prompts import Prompts
from rmft.language.protocol import NOT_LEARNT
from rmft.params import load as load_params
from rmft.params.language import LanguageProblem, LoRA, ProtocolSettings
from rmft.params.language_model import LanguageModelSettings
from rmft.rollouts import roll_out
from rmft.selection import Scoring, demonstrations, select
from rmft.stages.rollouts import open_chat_models
from rmft.training.learner import FineTuned
from rmft.training.sft import fine_tune
from rmft.workflow.games import games_of
from rmft.workflow.records import RolloutsJob

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # peft calls transformers by an old name

ROOT = Path(__file__).parents[1]
PROMPTS = ROOT / "data/prompts/plain"
SFT = load_params(ROOT / "params.yaml").experiments["open_mab_qwen"].sft.model_copy(
    update={
        "lora": LoRA(rank=4, alpha=8, dropout=0.0, target="all-linear"),
        "gradient_checkpointing": False,
        "batch_size": 2,
        "learning_rate": 1e-2,
    }
)  # fmt: skip
M, L, T = 2, 2, 3
PROBLEM = LanguageProblem(
    kind="language", environment="mab", d=3,
    protocol=ProtocolSettings(
        interaction="dialogue", output="action", format="policy-only", prompts=str(PROMPTS), max_tokens=3, retries=2,
        tolerance=0.0,
    ),
)  # fmt: skip
SMALL = {
    "vocab_size": 288, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "head_dim": 8, "num_key_value_heads": 2, "pad_token_id": 0, "eos_token_id": None, "bos_token_id": None,
    "initializer_range": 0.1, "tie_word_embeddings": False, "max_position_embeddings": 131072,
}  # fmt: skip
ATTENTION, FEED_FORWARD = ("q_proj", "k_proj", "v_proj", "o_proj"), ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class Family:
    """config: of a tiny model. template: its real chat template, by TRL's name. adapted: which of its weights are."""

    config: PretrainedConfig
    template: str
    adapted: tuple[str, ...] = ATTENTION + FEED_FORWARD
    quantised: str | None = None

    @property
    def rounding(self) -> float:
        """Return how far two computations of a loss may be apart: 4 bits have other kernels to play than to learn."""
        return 2e-3 if self.quantised else 1e-4


FAMILIES = {
    "phi-3.5": Family(  # LongRoPE: factors of their own for short and for long texts
        Phi3Config(
            sliding_window=262144, original_max_position_embeddings=4096, **SMALL,
            rope_parameters={
                "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0, 1.1, 1.2, 1.3],
                "long_factor": [1.0, 4.0, 16.0, 64.0],
            },
        ),
        "phi3_5", ("qkv_proj", "o_proj", "gate_up_proj", "down_proj"),
    ),
    "gemma-2": Family(  # every other layer slides, scores and logits are capped
        Gemma2Config(sliding_window=100, query_pre_attn_scalar=8, **SMALL), "gemma",
    ),
    "qwen3": Family(Qwen3Config(**SMALL), "qwen3"),
    "llama-3": Family(
        LlamaConfig(
            **SMALL,
            rope_parameters={
                "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
            },
        ),
        "llama3_1",
    ),
    "qwen3-moe": Family(  # all experts are one weight, of which PEFT adapts each
        Qwen3MoeConfig(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24, norm_topk_prob=True, **SMALL),
        "qwen3", (*ATTENTION, "experts", "gate"),
    ),
    "qwen3-nf4": Family(  # as wide as a block of weights that share a scale
        Qwen3Config(**SMALL | {"hidden_size": 64, "intermediate_size": 128, "head_dim": 16}), "qwen3", quantised="nf4"
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Checkpoint:
    """A family's model in a folder, as a hub has them."""

    family: Family
    settings: LanguageModelSettings

    def plain(self) -> PreTrainedModel:
        """Return the model as Transformers has it."""
        how = quantised(self.settings) if self.family.quantised else {}
        return AutoModelForCausalLM.from_pretrained(self.settings.weights, attn_implementation="eager", **how).eval()


@pytest.fixture(scope="module", params=FAMILIES)
def checkpoint(request, tmp_path_factory) -> Checkpoint:
    family = FAMILIES[request.param]
    if family.quantised:
        pytest.importorskip("bitsandbytes", reason="pip install -e '.[quantised]'")
    return checkpoint_of(family, tmp_path_factory.mktemp(request.param))


def checkpoint_of(family: Family, folder: Path) -> Checkpoint:
    """Make a checkpoint of a family."""
    torch.manual_seed(0)
    tokenizer = byte_tokenizer(family.template)
    digits, end = tokenizer("123", add_special_tokens=False).input_ids, ChatTemplate.probe(tokenizer).end
    inclined(AutoModelForCausalLM.from_config(family.config), digits, end).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    settings = LanguageModelSettings(
        kind="language", weights=str(folder), dtype="float32", device="cpu", batch=8, quantised=family.quantised
    )
    return Checkpoint(family, settings)


def inclined(model: PreTrainedModel, digits: list[int], end: int) -> PreTrainedModel:
    """Have a model mostly write a digit, and then the end token: two numbers of its state say where it is."""
    with torch.no_grad():
        state, logits = model.get_input_embeddings().weight, model.get_output_embeddings().weight
        state[:, :2], logits[:, :2] = torch.tensor([4.0, 0.0]), 0.0
        state[digits, :2] = torch.tensor([0.0, 4.0])
        logits[digits, 0] = logits[end, 1] = 1.5
    return model


def play(checkpoint: Checkpoint, weights: Path | None = None) -> dict[str, list]:
    """Play M L games of T rounds."""
    job = RolloutsJob(
        seed=1, stream="test", model=checkpoint.settings, model_name="tiny", process=["gaussian"], T=T, scenarios=M,
        trajectories=L, temperature=1.0, shard=(1, 1),
        problem=PROBLEM,
    )  # fmt: skip
    games = games_of(job, Prompts.load(PROMPTS))
    with open_chat_models(job, games, weights, Path("rollouts.parquet")) as chat_models:
        return roll_out(games, chat_models.open, chat_models.batch)


@pytest.fixture(scope="module")
def demonstrated(checkpoint) -> list[dict]:
    return demonstrations_of(checkpoint)


def demonstrations_of(checkpoint: Checkpoint) -> list[dict]:
    """Return the games of the least regret that a base model has played."""
    played = play(checkpoint)
    scoring = Scoring(PROBLEM.environment, PROBLEM.training_regret)
    ranked = select([played], scoring, selected=1, seed=1, words="test")
    return demonstrations(played, ranked["selected"])


@pytest.fixture(scope="module")
def tuned(checkpoint, demonstrated) -> FineTuned:
    """Return the adapter that is fine-tuned on them."""
    return fine_tune(demonstrated, checkpoint.settings, None, SFT, seed=0)


@pytest.fixture(scope="module")
def adapter(tuned, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("tuned") / "adapter.safetensors"
    write_tensors(path, tuned.tensors, tuned.metadata)
    return path


def cross_entropy(model: PreTrainedModel, demonstrated: list[dict]) -> float:
    """Return the mean loss of what the model replied, dialogue by dialogue, anew."""
    losses = []
    for line in demonstrated:
        ids, labels = torch.tensor([line["ids"]]), torch.tensor(line["labels"])
        with torch.no_grad():
            logits = model(ids).logits[0, :-1]
        learnt = labels[1:] != NOT_LEARNT
        losses.append(torch.nn.functional.cross_entropy(logits[learnt], labels[1:][learnt], reduction="none"))
    return float(torch.cat(losses).mean())


def test_what_is_played_is_learnt_token_for_token(checkpoint, demonstrated, tuned):
    tokenizer, rounding = load_tokenizer(checkpoint.settings), checkpoint.family.rounding
    for line in demonstrated:
        replies = [turn for turn in line["messages"] if turn["role"] == "assistant"]
        learnt = [label for label in line["labels"] if label != NOT_LEARNT]
        assert len(replies) == T
        assert "".join(turn["content"] for turn in replies if turn.get("weight") != 0) == tokenizer.decode(
            [token for token in learnt if token != ChatTemplate.probe(tokenizer).end]
        )
    assert tuned.log[0]["loss"] == pytest.approx(cross_entropy(checkpoint.plain(), demonstrated), rel=rounding)
    assert tuned.log[-1]["loss"] < tuned.log[0]["loss"]


def test_adapters_are_on_every_weight_of_a_layer(checkpoint, tuned):
    layers = checkpoint.family.config.num_hidden_layers
    assert all(f".layers.{layer}." in " ".join(tuned.tensors) for layer in range(layers))
    on = {re.sub(r"(\.base_layer)?\.lora_[AB]\.weight$", "", name).rpartition(".")[2] for name in tuned.tensors}
    assert on == set(checkpoint.family.adapted)


def test_a_tuned_model_plays_as_its_base_with_the_adapter_beside_it(checkpoint, demonstrated, adapter):
    tensors, metadata = read_tensors(adapter)
    beside = get_peft_model(checkpoint.plain(), LoraConfig(**json.loads(metadata[ADAPTER_CONFIG])))
    set_peft_model_state_dict(beside, tensors)
    merged = load(checkpoint.settings, adapter).model
    merged.set_attn_implementation("eager")
    assert cross_entropy(merged, demonstrated) == pytest.approx(cross_entropy(beside.eval(), demonstrated), rel=1e-4)
    assert cross_entropy(merged, demonstrated) < cross_entropy(checkpoint.plain(), demonstrated) - 0.01
    assert len(play(checkpoint, adapter)["reply"]) == M * L


def test_what_training_does_not_move_stays_what_has_played(checkpoint, demonstrated, adapter):
    still = SFT.model_copy(update={"learning_rate": 1e-30})
    again = fine_tune(demonstrated, checkpoint.settings, adapter, still, seed=0)
    tensors, _ = read_tensors(adapter)
    assert all(torch.equal(tensors[name], again.tensors[name]) for name in tensors)


def test_without_its_library_quantised_weights_are_refused_in_one_line(monkeypatch):
    monkeypatch.setattr("rmft.agents.extras.distributions", lambda **_: [])
    settings = LanguageModelSettings(
        kind="language", weights="data/models/embedded", dtype="float32", device="cpu", batch=1, quantised="nf4"
    )
    with pytest.raises(
        InputError, match=r"^models: quantised: nf4 needs bitsandbytes.*: pip install -e '\.\[quantised\]'$"
    ):
        load(settings)


def test_adapters_of_experts_have_no_dropout(checkpoint, demonstrated):
    dropping = SFT.model_copy(update={"lora": SFT.lora.model_copy(update={"dropout": 0.05})})
    if "experts" in checkpoint.family.adapted:
        with pytest.raises(InputError, match=r"lora\.dropout: .* experts .* set it to 0"):
            fine_tune(demonstrated, checkpoint.settings, None, dropping, seed=0)
    else:
        fine_tune(demonstrated, checkpoint.settings, None, dropping, seed=0)


@pytest.mark.parametrize(
    "config",
    [
        GptOssConfig(num_local_experts=2, num_experts_per_tok=1, **SMALL),  # a learnt number beside the scores: a sink
        DeepseekV3Config(
            **SMALL | {"head_dim": 4}, kv_lora_rank=8, q_lora_rank=None, qk_rope_head_dim=4, qk_nope_head_dim=4,
            v_head_dim=8, n_routed_experts=2, num_experts_per_tok=1, n_group=1, topk_group=1, moe_intermediate_size=24,
        ),  # keys are made from a shorter vector
        BloomConfig(vocab_size=288, hidden_size=32, n_layer=2, n_head=4),  # distances in place of positions
    ],
    ids=lambda config: config.model_type,
)  # fmt: skip
def test_a_kind_of_attention_that_is_not_computed_in_process_is_refused_in_one_line(config, tmp_path):
    with pytest.raises(InputError, match=f"^{config.model_type}: its kind of attention is not computed in process"):
        play(checkpoint_of(Family(config, "qwen3"), tmp_path))


def test_nf4_counts_only_linear_layers_but_not_the_last_as_quantised(tmp_path):
    config = Qwen3MoeConfig(**SMALL, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24)
    settings = LanguageModelSettings(kind="language", weights=str(tmp_path), dtype="bfloat16", device="cpu", batch=1)
    config.save_pretrained(tmp_path)  # its output layer, its experts and their routers are no linear layers
    size = size_of_model(settings)
    heads = SMALL["head_dim"] * (2 * SMALL["num_attention_heads"] + 2 * SMALL["num_key_value_heads"])
    assert size.linear == SMALL["num_hidden_layers"] * SMALL["hidden_size"] * heads
    assert bytes_of_weights(settings, size.parameters, size.linear) == 2 * size.parameters
    nf4 = settings.model_copy(update={"quantised": "nf4"})
    assert bytes_of_weights(nf4, size.parameters, size.linear) == pytest.approx(
        2 * size.parameters - (2 - 0.55) * size.linear
    )
