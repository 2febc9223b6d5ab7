"""Fine-tuning on demonstrations, against losses, gradients and AdamW steps worked out here.

The model is a random Qwen3 of two layers, one of them with a sliding window. A demonstration is rounds of a message
(not trained) and a reply (trained).
"""

import copy
import csv
import json
import os
import tempfile
from pathlib import Path

import pytest
import torch
from peft import PeftConfig, get_peft_model, set_peft_model_state_dict
from safetensors.torch import load, save, save_file
from tiny_model import VOCABULARY, write_tiny_model
from transformers import AutoModelForCausalLM
from trees import ROOT, run
from trl.kernels.chunked_logprob import ChunkedLogProbFunction
from trl.trainer import utils

from rmft.agents.weights import ADAPTER_CONFIG
from rmft.errors import InputError
from rmft.params import load as load_params
from rmft.params.language import LoRA
from rmft.params.language_model import LanguageModelSettings
from rmft.params.section import Section
from rmft.training.attention import IN_BLOCKS, within_window
from rmft.training.learner import on_one_gpu
from rmft.training.sft import fine_tune
from rmft.training.trainable import trainable
from rmft.workflow.records import SFTJob

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # peft calls transformers by an old name

CONTEXT, ROUNDS = 1500, 3


def replace(settings: Section, **changes: object) -> Section:
    return settings.model_copy(update=changes)


PAPER = load_params(Path(__file__).parents[1] / "params.yaml").experiments["open_mab_qwen"].sft
ONE_STEP = replace(
    PAPER,
    method="full",
    gradient_checkpointing=False,
    epochs=1,
    learning_rate=1e-3,
    epsilon=1e-3,
    weight_decay=0.1,
    max_grad_norm=0.5,
)
LORA = replace(ONE_STEP, method="lora", epsilon=1e-8, lora=LoRA(rank=4, alpha=8, dropout=0.1, target="all-linear"))


def dialogue(seed: int, rounds: int = ROUNDS) -> dict:
    """Return a demonstration whose messages have 5 tokens and whose replies have 4 or more."""
    numbers = torch.Generator().manual_seed(seed)
    ids, labels = [], []
    for _ in range(rounds):
        length = int(torch.randint(4, 8, (), generator=numbers))
        message, reply = (torch.randint(2, VOCABULARY, (n,), generator=numbers).tolist() for n in (5, length))
        ids += message + reply
        labels += [-100] * len(message) + reply
    return {"scenario": seed, "trajectory": 0, "ids": ids, "labels": labels, "messages": []}


BATCH = [dialogue(seed) for seed in range(4)]
MANY = [dialogue(seed) for seed in range(10)]


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> LanguageModelSettings:
    """Return a base model with its tokenizer, in a folder."""
    return write_tiny_model(tmp_path_factory.mktemp("base"), CONTEXT)


@pytest.fixture(scope="module")
def tuned(base):
    """Return the base model fine-tuned in one step on four dialogues."""
    return fine_tune(BATCH, base, None, ONE_STEP, seed=0)


@pytest.fixture(scope="module")
def adapter(base):
    """Return an adapter after three steps."""
    return fine_tune(MANY, base, None, LORA, seed=0)


@pytest.fixture
def model(base):
    return AutoModelForCausalLM.from_pretrained(base.weights, dtype=torch.float32)


def cross_entropy(model, demonstrations) -> torch.Tensor:
    """Return the mean of -log p(token | all before it) over replied tokens, a dialogue and a token at a time."""
    terms = []
    for line in demonstrations:
        log_p = model(torch.tensor([line["ids"]])).logits[0].log_softmax(-1)
        terms += [-log_p[t - 1, token] for t, token in enumerate(line["ids"]) if line["labels"][t] != -100]
    return torch.stack(terms).mean()


def as_bytes(result) -> bytes:
    return save(result.tensors, metadata=result.metadata)


def written(result, path):
    path.write_bytes(as_bytes(result))
    return path


def logits(model) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(torch.tensor([MANY[9]["ids"]])).logits


def test_the_first_loss_is_the_cross_entropy_of_the_replies_and_of_nothing_else(tuned, model):
    assert tuned.log[0]["loss"] == pytest.approx(cross_entropy(model, BATCH).item(), rel=1e-5)
    of_everything = cross_entropy(model, [line | {"labels": [-100, *line["ids"][1:]]} for line in BATCH]).item()
    assert tuned.log[0]["loss"] != pytest.approx(of_everything, rel=1e-3)


def test_one_step_is_one_step_of_adamw_on_the_clipped_gradient(tuned, model):
    cross_entropy(model, BATCH).backward()
    norm = torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm()
    assert tuned.log[0]["grad_norm"] == pytest.approx(norm.item(), rel=1e-4)
    assert norm > ONE_STEP.max_grad_norm
    for name, parameter in model.named_parameters():
        gradient = parameter.grad * ONE_STEP.max_grad_norm / norm
        decay = 0 if "norm" in name else ONE_STEP.weight_decay
        # The first step's bias-corrected moments are the gradient and its square.
        direction = gradient / (gradient.abs() + ONE_STEP.epsilon) + decay * parameter
        expected = parameter - ONE_STEP.learning_rate * direction
        torch.testing.assert_close(tuned.tensors[name], expected.detach(), atol=1e-6, rtol=0)


def test_what_the_user_says_after_the_last_reply_changes_nothing(base):
    def followed_by(token: int):
        return [line | {"ids": [*line["ids"], token], "labels": [*line["labels"], -100]} for line in BATCH]

    assert as_bytes(fine_tune(followed_by(7), base, None, ONE_STEP, seed=0)) == as_bytes(
        fine_tune(followed_by(8), base, None, ONE_STEP, seed=0)
    )


@pytest.mark.parametrize("silenced", range(ROUNDS))
def test_every_round_is_trained_on(silenced, base, tuned, model):
    line = BATCH[0]
    starts = [t for t, label in enumerate(line["labels"]) if label != -100 and line["labels"][t - 1] == -100]
    ends = [*starts[1:], len(line["ids"])]
    inside = range(starts[silenced], ends[silenced])
    masked = line | {"labels": [-100 if t in inside else label for t, label in enumerate(line["labels"])]}
    without = fine_tune([masked, *BATCH[1:]], base, None, ONE_STEP, seed=0)
    assert without.log[0]["loss"] == pytest.approx(cross_entropy(model, [masked, *BATCH[1:]]).item(), rel=1e-5)
    assert as_bytes(without) != as_bytes(tuned)


def test_a_dialogue_of_more_than_a_thousand_tokens_is_read_to_its_end(base):
    long = dialogue(0, rounds=120)
    assert 1024 < len(long["ids"]) <= CONTEXT
    assert fine_tune([long], base, None, ONE_STEP, seed=0).log[0]["tokens"] == len(long["ids"])


def test_attention_in_blocks_is_attention(model, monkeypatch):
    monkeypatch.setattr("rmft.training.attention.BLOCK", 4)  # fewer queries than the window has keys
    ids = torch.randint(2, VOCABULARY, (2, 300), generator=torch.Generator().manual_seed(0))
    seen = torch.ones_like(ids)
    seen[1, 200:] = 0  # a shorter dialogue, padded

    def forward() -> torch.Tensor:
        logits = model(ids, attention_mask=seen).logits
        return torch.cat([logits[0], logits[1, :200]])

    def gradient() -> torch.Tensor:
        model.zero_grad()
        forward().square().mean().backward()
        return torch.cat([weights.grad.flatten() for weights in model.parameters()])

    def sampled() -> torch.Tensor:  # a method may sample while it trains: keys are in a cache then
        options = {"do_sample": False, "output_logits": True, "return_dict_in_generate": True}
        return torch.cat(model.generate(ids[:1], max_new_tokens=8, **options).logits)

    plain, plain_gradient, plain_sampled = forward(), gradient(), sampled()
    assert within_window(model, "cpu").config._attn_implementation == IN_BLOCKS != "sdpa"
    assert torch.allclose(forward(), plain, atol=1e-5)
    assert torch.allclose(gradient(), plain_gradient, atol=1e-5)
    assert torch.allclose(sampled(), plain_sampled, atol=1e-5)


def test_a_model_that_a_gpu_will_train_keeps_fused_attention_though_it_is_loaded_on_the_cpu(model):
    assert trainable(model.bfloat16(), LORA, None, "cuda").config._attn_implementation == "sdpa"
    assert within_window(model, "cpu").config._attn_implementation == "eager"


def test_the_output_layer_is_computed_where_a_token_is_learnt_and_nowhere_else(base, monkeypatch):
    class Spy:
        positions = 0

        @classmethod
        def apply(cls, hidden: torch.Tensor, *rest: object) -> tuple[torch.Tensor, ...]:
            cls.positions += len(hidden)
            return ChunkedLogProbFunction.apply(hidden, *rest)

    monkeypatch.setattr(utils, "_ChunkedLogProbFunction", Spy)
    fine_tune(BATCH, base, None, ONE_STEP, seed=0)
    assert Spy.positions == sum(label != -100 for line in BATCH for label in line["labels"])


def test_several_passes_a_step_give_the_step_of_one_pass(base):
    unequal = [dialogue(20, rounds=1), *BATCH[1:]]
    whole, parts = (fine_tune(unequal, base, None, replace(ONE_STEP, accumulation=passes), seed=0) for passes in (1, 4))
    assert [row["tokens"] for row in parts.log] == [row["tokens"] for row in whole.log]
    for name, tensor in whole.tensors.items():
        torch.testing.assert_close(parts.tensors[name], tensor, atol=1e-6, rtol=0)


def test_checkpointing_costs_time_and_changes_nothing(base, tuned, adapter):
    full = fine_tune(BATCH, base, None, replace(ONE_STEP, gradient_checkpointing=True), seed=0)
    torch.testing.assert_close(full.tensors, tuned.tensors, atol=1e-6, rtol=0)
    low_rank = fine_tune(MANY, base, None, replace(LORA, gradient_checkpointing=True), seed=0)
    torch.testing.assert_close(low_rank.tensors, adapter.tensors, atol=1e-6, rtol=0)


@pytest.mark.parametrize("settings", [ONE_STEP, LORA], ids=lambda settings: settings.method)
def test_the_seed_decides_every_byte(settings, base):
    def trained(seed: int, *words) -> bytes:
        torch.rand(3)  # whatever happened to the global generator before
        return as_bytes(fine_tune(MANY, base, None, settings, seed, words))

    assert (once := trained(0)) == trained(0)
    assert len({once, trained(1), trained(0, "mab", 1)}) == 3


def test_every_epoch_reads_every_demonstration_once_in_another_order(base, model):
    settings = replace(ONE_STEP, batch_size=1, epochs=3, learning_rate=1e-12)
    log = fine_tune(MANY, base, None, settings, seed=0).log
    epochs = [[row["loss"] for row in log[start : start + 10]] for start in (0, 10, 20)]
    expected = sorted(cross_entropy(model, [line]).item() for line in MANY)
    assert all(sorted(epoch) == pytest.approx(expected, rel=1e-5) for epoch in epochs)
    assert len({tuple(round(loss, 4) for loss in epoch) for epoch in epochs}) == 3
    assert sum(row["tokens"] for row in log) == 3 * sum(len(line["ids"]) for line in MANY)


def test_the_log_has_a_row_a_step_and_progress_is_told(base):
    steps = []
    log = fine_tune(MANY, base, None, replace(ONE_STEP, epochs=2), seed=0, on_step=lambda *step: steps.append(step)).log
    assert steps == [(row["step"], 6, row["loss"]) for row in log]
    assert [row["epoch"] for row in log] == pytest.approx([1 / 3, 2 / 3, 1, 4 / 3, 5 / 3, 2])
    assert all(set(row) == {"step", "epoch", "loss", "learning_rate", "tokens", "grad_norm"} for row in log)


@pytest.mark.parametrize(
    ("schedule", "warmup", "expected"),
    [
        ("linear", 0, [1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]),
        ("linear", 2, [0, 1 / 2, 1, 3 / 4, 2 / 4, 1 / 4]),
        ("constant", 0, [1, 1, 1, 1, 1, 1]),
        ("constant", 2, [0, 1 / 2, 1, 1, 1, 1]),
    ],
)
def test_the_learning_rate_warms_up_and_falls_as_asked(schedule, warmup, expected, base):
    settings = replace(ONE_STEP, epochs=2, schedule=schedule, warmup_steps=warmup)
    log = fine_tune(MANY, base, None, settings, seed=0).log
    assert [row["learning_rate"] / ONE_STEP.learning_rate for row in log] == pytest.approx(expected)


def test_full_weights_reload_exactly_and_are_what_training_continues_from(base, tuned, model, tmp_path):
    path = written(tuned, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(Path(base.weights, "config.json").read_text())
    loaded, report = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert "lm_head.weight" not in tuned.tensors
    assert all(torch.equal(loaded.state_dict()[name], tensor) for name, tensor in tuned.tensors.items())

    second = fine_tune(MANY[4:8], base, path, ONE_STEP, seed=0)
    assert second.log[0]["loss"] == pytest.approx(cross_entropy(loaded, MANY[4:8]).item(), rel=1e-5)
    assert second.log[0]["loss"] != pytest.approx(cross_entropy(model, MANY[4:8]).item(), rel=1e-5)


def test_a_bfloat16_model_is_trained_in_float32_and_written_in_bfloat16(base, model):
    # A step of 1e-4 is lost on a weight of .2 in bfloat16 (spacing 1e-3), but ten of them are not.
    settings = replace(ONE_STEP, learning_rate=1e-4, epochs=20, batch_size=10, schedule="constant", epsilon=1e-8)
    result = fine_tune(MANY, replace(base, dtype="bfloat16"), None, settings, seed=0)
    assert {tensor.dtype for tensor in result.tensors.values()} == {torch.bfloat16}
    before = model.to(torch.bfloat16).state_dict()
    large = {name: tensor for name, tensor in result.tensors.items() if "proj" in name}
    moved = [(before[name].abs() > 0.15) & (before[name] != tensor) for name, tensor in large.items()]
    there = [before[name].abs() > 0.15 for name in large]
    assert sum(m.sum() for m in moved) > 0.5 * sum(t.sum() for t in there)


def test_lora_trains_the_adapter_alone_which_adds_its_product_to_the_weights(adapter, model):
    tensors, metadata = load(as_bytes(adapter)), adapter.metadata
    config = PeftConfig.from_peft_type(**json.loads(metadata[ADAPTER_CONFIG]))
    assert all(".lora_A." in name or ".lora_B." in name for name in tensors)
    assert len(tensors) == 2 * 2 * 7  # A and B of seven projections in two layers

    expected = copy.deepcopy(model)
    for name in [name for name in tensors if ".lora_A." in name]:
        layer = expected.get_submodule(name.removeprefix("base_model.model.").removesuffix(".lora_A.weight"))
        with torch.no_grad():
            layer.weight += LORA.lora.alpha / LORA.lora.rank * tensors[name.replace("_A", "_B")] @ tensors[name]
    before = logits(model)
    adapted = get_peft_model(model, config)
    assert not set_peft_model_state_dict(adapted, tensors).unexpected_keys
    merged = adapted.merge_and_unload()
    torch.testing.assert_close(logits(merged), logits(expected), atol=1e-5, rtol=0)
    assert not torch.allclose(logits(merged), before, atol=1e-3)


def test_an_adapter_starts_as_the_base_model_and_is_continued_from_where_it_was(base, model, tmp_path):
    without_dropout = replace(LORA, lora=replace(LORA.lora, dropout=0.0))
    first = fine_tune(BATCH, base, None, replace(without_dropout, epochs=5), seed=0)
    assert first.log[0]["loss"] == pytest.approx(cross_entropy(model, BATCH).item(), rel=1e-5)

    path = written(first, tmp_path / "adapter.safetensors")
    second = fine_tune(MANY[4:8], base, path, without_dropout, seed=1)
    assert second.metadata == first.metadata
    adapted = get_peft_model(model, PeftConfig.from_peft_type(**json.loads(first.metadata[ADAPTER_CONFIG])))
    set_peft_model_state_dict(adapted, first.tensors)
    assert second.log[0]["loss"] == pytest.approx(cross_entropy(adapted.eval(), MANY[4:8]).item(), rel=1e-5)
    moved = [(second.tensors[name] - tensor).abs().max() for name, tensor in first.tensors.items()]
    assert all(0 < distance <= 1.3 * LORA.learning_rate for distance in moved)  # by one step


def test_weights_that_are_not_the_models_are_refused(base, adapter, tuned, tmp_path):
    some = tmp_path / "some.safetensors"
    save_file(dict(list(tuned.tensors.items())[1:]), some)
    with pytest.raises(InputError, match="not weights of a qwen3"):
        fine_tune(BATCH, base, some, ONE_STEP, seed=0)
    path = written(adapter, tmp_path / "adapter.safetensors")
    save_file(dict(list(adapter.tensors.items())[1:]), some, metadata=adapter.metadata)
    with pytest.raises(InputError, match="not weights of a qwen3"):
        fine_tune(BATCH, base, some, ONE_STEP, seed=0)
    for other in (
        LoRA(rank=8, alpha=8, dropout=0.1, target="all-linear"),
        replace(LORA.lora, target=("q_proj",)),
        replace(LORA.lora, alpha=4),
    ):
        with pytest.raises(InputError, match="not an adapter that the section lora describes"):
            fine_tune(BATCH, base, path, replace(LORA, lora=other), seed=0)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (("foo",), "Target modules .*foo.* not found"),
        (("embed_tokens",), "between the embedding and the output layer"),
        (("q_proj", "lm_head"), "between the embedding and the output layer"),
    ],
)
def test_an_adapter_goes_between_the_embedding_and_the_output_layer(target, reason, base):
    with pytest.raises(InputError, match=rf"^lora\.target: .*{reason}"):
        fine_tune(BATCH, base, None, replace(LORA, lora=replace(LORA.lora, target=target)), seed=0)


@pytest.mark.parametrize(
    ("demonstrations", "complaint"),
    [
        ([], "there are none"),
        ([*BATCH, dialogue(0, rounds=200)], f"line 5 has [0-9]+ tokens, the context {CONTEXT}"),
        ([BATCH[0] | {"labels": [-100] * len(BATCH[0]["ids"])}], "line 1: labels"),
        ([BATCH[0] | {"labels": BATCH[0]["labels"][1:]}], "line 1: labels"),
        ([{"ids": [], "labels": []}], "line 1: labels"),
        ([BATCH[0], BATCH[1] | {"labels": [*BATCH[1]["labels"][1:], -100]}], "line 2: labels"),
    ],
)
def test_demonstrations_that_cannot_be_trained_on_whole_are_refused(demonstrations, complaint, base):
    with pytest.raises(InputError, match=complaint):
        fine_tune(demonstrations, base, None, ONE_STEP, seed=0)


@pytest.mark.parametrize(
    ("device", "visible", "left"),
    [("cuda", None, "0"), ("cuda:1", None, "1"), ("cuda", "2,5", "2"), ("cuda:1", "2,5", "5"), ("cpu", "2,5", "2,5")],
)
def test_a_process_that_trains_alone_sees_one_gpu(monkeypatch, base, device, visible, left):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible or "")
    assert on_one_gpu(replace(base, device=device)).device == device.partition(":")[0]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == left
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with pytest.raises(InputError, match="device: cuda:3: no such GPU; CUDA_VISIBLE_DEVICES lists 1 GPU"):
        on_one_gpu(replace(base, device="cuda:3"))
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert on_one_gpu(replace(base, device="cuda")).device == "cuda"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "7"


def test_a_context_given_in_the_settings_holds_too(base):
    with pytest.raises(InputError, match="the context 20"):
        fine_tune(BATCH, replace(base, context=20), None, ONE_STEP, seed=0)


def test_a_loss_that_diverges_stops_the_training(base):
    with pytest.raises(InputError, match=r"sft\.learning_rate: at 1e\+30 the loss diverges in step 2"):
        fine_tune(MANY, base, None, replace(ONE_STEP, learning_rate=1e30), seed=0)


def test_nothing_is_left_behind_printed_or_sent(base, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sent = []
    monkeypatch.setattr("huggingface_hub.utils._telemetry._start_telemetry_thread", lambda: sent.append(1))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.delenv("CI", raising=False)
    for settings in (ONE_STEP, LORA):
        fine_tune(BATCH, base, None, settings, seed=0)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")
    assert sent == []


@pytest.mark.long
@pytest.mark.parametrize("settings", [ONE_STEP, LORA], ids=lambda settings: settings.method)
def test_two_processes_take_the_steps_of_one(settings, base, tmp_path):
    settings = replace(settings, epochs=2, lora=settings.lora.model_copy(update={"dropout": 0.0}))
    lines = [dialogue(seed) for seed in range(12)]
    alone = fine_tune(lines, base, None, settings, 0, ("together",))
    demonstrations, tuned, log = (tmp_path / name for name in ("demonstrations.jsonl", settings.file, "log.csv"))
    demonstrations.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    job = SFTJob(seed=0, stream="together", model=base, model_name="tiny", sft=replace(settings, processes=2))
    command = ["rmft", "sft", "--settings", job.canonical(), "--demonstrations", demonstrations]
    finished = run(ROOT, *map(str, [*command, "--output", tuned, "--log", log]))
    assert finished.returncode == 0, finished.stderr
    both = load(tuned.read_bytes())
    assert both.keys() == alone.tensors.keys()
    losses = [float(row["loss"]) for row in csv.DictReader(log.open())]
    assert losses == pytest.approx([row["loss"] for row in alone.log], rel=1e-4)
    for name, tensor in alone.tensors.items():
        assert torch.allclose(both[name], tensor, atol=1e-4), name


def test_a_tracker_that_is_not_installed_is_named_and_none_leaves_the_jobs_as_they_were(base, monkeypatch):
    monkeypatch.setattr("rmft.training.learner.find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"^report_to: trackio is not installed: pip install trackio"):
        fine_tune(BATCH, base, None, ONE_STEP.model_copy(update={"report_to": "trackio"}), seed=0)
    assert "report_to" not in ONE_STEP.canonical()
