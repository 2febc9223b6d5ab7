"""`rmft export` and `rmft push`: other people's tools read what they write, and a hub gets it."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import PropertyMock

import gguf
import numpy as np
import peft
import pytest
import torch
from helpers import games
from hub import PushedTo
from tiny_gguf import WIDTH, write_tiny_gguf
from transformers import AutoModelForCausalLM, AutoTokenizer
from trees import edit, environment

from rmft.agents.weights import ADAPTER_CONFIG, load_pretrained, with_weights
from rmft.artifacts.evaluations import write_evaluation
from rmft.artifacts.tensors import write_tensors
from rmft.artifacts.trajectories import read_trajectories, write_selection, write_trajectories
from rmft.export.iteration import BuiltIteration
from rmft.params.language import LoRA
from rmft.training.trainable import to_write, with_adapter

ROOT = Path(__file__).parents[1]
SEED = Path("results/experiments/open_mab_qwen/seed-0")
TRAINED = SEED / "iteration-1"
LORA = LoRA(rank=2, alpha=4, dropout=0.0, target="all-linear")
TOKEN = "hf_a-secret"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a folder as two iterations leave it: an adapter that matters, and four games of which two are selected."""
    home = tmp_path_factory.mktemp("home") / "somebody-in-particular"
    (home / TRAINED).mkdir(parents=True)
    (home / SEED / "iteration-0").mkdir()
    for name in ("data", "extensions", "outputs.yaml"):
        (home / name).symlink_to(ROOT / name)
    (home / "params.yaml").write_text((ROOT / "params.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    edit(home / "params.yaml", "scale: demo", "scale: smoke")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(home)
        adapted = with_adapter(load_pretrained(settings())[0], LORA, None)
        random = torch.Generator().manual_seed(0)
        for weight in adapted.parameters():
            if weight.requires_grad:
                weight.data = 0.1 * torch.randn(weight.shape, generator=random)
        write_tensors(TRAINED / "adapter.safetensors", *to_write(adapted, adapted.state_dict(), torch.float32, 0, ()))
        played = games(n=4, horizon=3)
        write_trajectories(SEED / "iteration-0/rollouts.parquet", played)
        zeros = {name: [0] * 4 for name in ("regret", "rerolled", "rank", "invalid")}
        chosen = {"duplicate": [False] * 4, "selected": [False, True, True, False]}
        own = {"scenario": played["scenario"], "trajectory": played["trajectory"]}
        write_selection(SEED / "iteration-0/selection.parquet", own | zeros | chosen)
    return home


@pytest.fixture(autouse=True)
def folder(trained, tmp_path, monkeypatch):
    """Work in a copy of that folder."""
    shutil.copytree(trained, tmp_path / trained.name, symlinks=True)
    monkeypatch.chdir(tmp_path / trained.name)


def settings():
    source = BuiltIteration.at(TRAINED)
    return source.params.models[source.settings.model]


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(torch.arange(1, 40)[None]).logits


def exported(rmft, form: str, *arguments: str, iteration: Path = TRAINED) -> Path:
    code, _, error = rmft("export", iteration, "--format", form, "--to", f"out/{form}", *arguments)
    assert code == 0, error
    return Path("out", form)


def test_what_is_exported_computes_what_our_model_does(rmft):
    base = load_pretrained(settings())[0]
    untrained, ours = logits(base), logits(with_weights(base, TRAINED / "adapter.safetensors"))
    assert (ours - untrained).abs().max() > 0.1
    named = json.loads((exported(rmft, "peft") / "adapter_config.json").read_text(encoding="utf-8"))
    adapted = peft.PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(named["base_model_name_or_path"]), "out/peft"
    )
    torch.testing.assert_close(logits(adapted), ours, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(logits(AutoModelForCausalLM.from_pretrained(exported(rmft, "merged"))), ours)
    readme = Path("out/peft/README.md").stat().st_mode
    assert {file.stat().st_mode for file in Path("out").rglob("*") if file.is_file()} == {readme}
    chat = [{"role": "user", "content": "Round 1."}]
    for name in ("peft", "merged"):
        read = AutoTokenizer.from_pretrained(Path("out", name))
        assert (
            read.apply_chat_template(chat)["input_ids"]
            == load_pretrained(settings())[1].apply_chat_template(chat)["input_ids"]
        )
    for file in Path("out").rglob("*"):
        assert not file.is_file() or b"somebody-in-particular" not in file.read_bytes()


def test_the_card_has_the_regrets_of_the_evaluations_and_says_which_are_missing(rmft):
    random, n, horizon = np.random.default_rng(0), 8, 3
    players = {name: random.uniform(0, 9, (n, horizon)) for name in ("base", "trained", "ucb")}
    rows = len(players) * n
    columns = {
        "player": np.repeat([*players], n),
        "training_seed": [0] * rows,
        "instance": [*range(n)] * len(players),
        "d": [3] * rows,
        "regret": list(np.concatenate([*players.values()])),
        **{name: [[0] * horizon] * rows for name in ("action", "best_action")},
        "policy": [None] * rows,
        "invalid": [0] * n + [3] * n + [0] * n,
    }
    write_evaluation(SEED.parent / "evaluation/gaussian-50.parquet", columns)
    card = (exported(rmft, "peft") / "README.md").read_text(encoding="utf-8")
    (row,) = (line for line in card.splitlines() if line.startswith("| gaussian-50"))
    _, _, games, rounds, before, after, difference, invalid, _ = (cell.strip() for cell in row.split("|"))
    means = {name: of[:, -1].mean() for name, of in players.items()}
    assert (games, rounds) == ("8", "3")
    assert before.startswith(f"{means['base']:.2f} [")
    assert after.startswith(f"{means['trained']:.2f} [")
    assert difference.startswith(f"{means['trained'] - means['base']:+.2f} [")
    assert invalid == "0.00 → 1.00"
    assert "from its own trajectories of lowest regret" in card
    assert "Not evaluated on `gaussian-25`" in card
    assert "Not verified" in card  # no job wrote these weights


@pytest.mark.parametrize("everything", [False, True])
def test_a_data_set_is_one_of_conversations_for_trl(rmft, everything):
    from datasets import load_dataset
    from trl.data_utils import is_conversational

    played = read_trajectories(SEED / "iteration-0/rollouts.parquet")
    exported(rmft, "dataset", *(["--all"] if everything else []), iteration=SEED / "iteration-0")
    data = load_dataset("out/dataset", split="train", cache_dir="cache")
    kept = [0, 1, 2, 3] if everything else [1, 2]
    assert is_conversational(data[0])
    assert data["selected"] == [row in (1, 2) for row in kept]
    for row, messages in zip(kept, data["messages"], strict=True):
        assert [message["content"] for message in messages if message["role"] == "user"] == played["prompt"][row]
        assert [message["content"] for message in messages if message["role"] == "assistant"] == played["reply"][row]


def test_an_adapter_for_llama_cpp_goes_with_a_gguf_file(rmft, monkeypatch, tmp_path):
    code, _, error = rmft("export", TRAINED, "--format", "gguf", "--to", "out")
    assert (code, error.count("\n")) == (2, 1)
    assert "convert_hf_to_gguf.py" in error
    assert not Path("out").exists()
    file = write_tiny_gguf(tmp_path / "tiny.gguf")
    of_gguf = settings().model_copy(update={"weights": str(file)})
    monkeypatch.setattr(BuiltIteration, "base", PropertyMock(return_value=of_gguf))
    layer = "base_model.model.model.layers.0.self_attn.o_proj.lora_{}.weight"
    tensors = {layer.format("A"): torch.rand(2, WIDTH), layer.format("B"): torch.rand(WIDTH, 2)}
    write_tensors(TRAINED / "adapter.safetensors", tensors, {ADAPTER_CONFIG: '{"lora_alpha": 4}'})
    written = gguf.GGUFReader(exported(rmft, "gguf") / "adapter.gguf").tensors
    assert [tensor.name for tensor in written] == [f"blk.0.attn_output.weight.lora_{part}" for part in "ab"]
    card = Path("out/gguf/README.md").read_text(encoding="utf-8")
    assert "--lora FOLDER/adapter.gguf" in card
    assert str(tmp_path) not in card


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((TRAINED, "--format", "peft", "--to", "params.yaml"), "exists already"),
        ((TRAINED, "--format", "peft", "--to", "x", "--all"), "--all: goes with --format dataset"),
        ((SEED / "iteration-0", "--format", "peft", "--to", "x"), "is the base model"),
        ((SEED / "iteration-7", "--format", "peft", "--to", "x"), "no such folder"),
        ((SEED, "--format", "peft", "--to", "x"), "must be the folder of an iteration"),
        (("results/experiments/mab/seed-0/iteration-1", "--format", "peft", "--to", "x"), "unknown 'mab'"),
        ((TRAINED, "--format", "dataset", "--to", "x"), "rollouts.parquet: no such file"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(rmft, arguments, words):
    Path("Snakefile").touch()  # as in a clone
    before = sorted(Path().iterdir())
    code, _, error = rmft("export", *arguments)
    assert (code, error.count("\n")) == (2, 1), error
    assert words in error
    assert sorted(Path().iterdir()) == before


def test_a_killed_export_leaves_no_folder_and_the_next_one_clears_up(rmft):
    slow = (
        "import sys, os, signal; import rmft.export.dataset as module; from rmft.cli import main\n"
        "module.demonstrations = lambda *_: os.kill(os.getpid(), signal.SIGKILL); main()"
    )
    words = ["export", str(SEED / "iteration-0"), "--format", "dataset", "--to", "out/dataset"]
    killed = subprocess.run(
        [sys.executable, "-c", slow, *words], env=environment(ROOT), capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert [file.name.startswith(".dataset.") for file in Path("out").iterdir()] == [True]
    exported(rmft, "dataset", iteration=SEED / "iteration-0")
    assert [file.name for file in Path("out").iterdir()] == ["dataset"]


@pytest.fixture
def push(rmft, monkeypatch):
    """Return a function that pushes a folder to a hub with a token."""

    def run(url: str, folder: Path | str, repository: str = "me/bandits") -> tuple[int, str, str]:
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)  # which is HF_ENDPOINT at the start of a process
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
        return rmft("push", folder, repository)

    return run


@pytest.mark.parametrize(("form", "kind"), [("peft", "models"), ("dataset", "datasets")])
def test_a_hub_gets_every_file_and_nobody_sees_the_token(rmft, push, form, kind):
    made = exported(rmft, form, iteration=SEED / "iteration-0" if form == "dataset" else TRAINED)
    with PushedTo(TOKEN) as hub:
        code, out, error = push(hub.url, made)
    assert code == 0, error
    files = {file.relative_to(made).as_posix(): file.read_bytes() for file in made.rglob("*") if file.is_file()}
    assert hub.files == {f"{kind}/me/bandits": files}
    assert hub.created[0]["visibility"] == "private"
    assert TOKEN not in out + error


@pytest.mark.parametrize(
    ("token", "sent", "repository", "words"),
    [
        ("another", "export", "me/bandits", "refuses the token, or there is none (401)"),
        (TOKEN, "export", "no name", "cannot be sent"),
        (None, "export", "me/bandits", "cannot be sent"),
        (TOKEN, "data", "me/bandits", "is no folder that `rmft export` made"),
    ],
)
def test_a_hub_that_refuses_or_is_not_there_is_one_line(push, token, sent, repository, words):
    Path("export").mkdir()
    for name in ("README.md", "adapter_config.json"):
        Path("export", name).write_text("{}", encoding="utf-8")
    with PushedTo(token) as hub:
        if token is not None:
            code, out, error = push(hub.url, sent, repository)
    if token is None:  # the hub is gone
        code, out, error = push(hub.url, sent, repository)
    assert (code, out, error.count("\n")) == (2, "", 1), error
    assert words in error
    assert TOKEN not in error
