"""A GGUF file becomes a checkpoint that transformers loads, if llama.cpp agrees: a tiny file, made here."""

import hashlib
import json
import shutil
import struct
from pathlib import Path

import gguf
import pytest
import torch
from tiny_gguf import CHATML, END, END_OF_TEXT, vocabulary, write_tiny_gguf
from transformers import AutoTokenizer
from trees import ROOT, done, run, set_value

from rmft.agents.checkpoint import gguf_file, load_chat_tokenizer
from rmft.agents.weights import load_pretrained
from rmft.artifacts.csv_files import read_csv
from rmft.conversion import checkpoint, gate
from rmft.conversion.checkpoint import convert, stop_ids
from rmft.errors import InputError
from rmft.params import load
from rmft.params.files import CHECKPOINT
from rmft.params.language_model import Checkpoint, LanguageModelSettings
from rmft.stages import conversion
from rmft.workflow import paths
from rmft.workflow.paths import CONVERTED
from rmft.workflow.records import ConversionJob

PLAIN_CHAT = str(ROOT / checkpoint.PLAIN_CHAT)


def job(path: Path, **options) -> ConversionJob:
    """Return the job that converts a file, compared on few prompts."""
    settings = Checkpoint(weights=str(path), dtype="float32", **options)
    return ConversionJob(name="tiny", checkpoint=settings, prompts=str(ROOT / "data/prompts/plain"), scenario_sets=[])


@pytest.fixture(autouse=True, scope="module")
def few_prompts():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gate, "SIZES", {2: 0})
        yield


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="module")
def converted(tiny, tmp_path_factory) -> Path:
    """Return the folder of the converted file."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    conversion.run(job(tiny), folder)
    return folder


def test_a_conversion_reads_the_header_once(tiny, tmp_path, monkeypatch):
    read, begin = [], gguf.GGUFReader.__init__
    monkeypatch.setattr(gguf.GGUFReader, "__init__", lambda self, path: read.append(path) or begin(self, path))
    again = shutil.copy(tiny, tmp_path / "again.gguf")
    convert(job(again).checkpoint, again, tmp_path)
    assert read == [again]


def test_a_converted_file_is_an_ordinary_checkpoint_that_agrees_with_llama_cpp(converted, tiny):
    assert {file.name for file in converted.iterdir()} == set(CONVERTED)
    settings = LanguageModelSettings(
        kind="language", weights=str(tiny), converted=str(converted), dtype="float32", device="cpu", batch=1
    )
    model, tokenizer = load_pretrained(settings)
    assert model.dtype == torch.float32
    assert not hasattr(model.config, "quantization_config")
    assert tokenizer.chat_template == CHATML
    tokens, _ = vocabulary()
    assert load_chat_tokenizer(settings).ends == {tokens.index(END), tokens.index(END_OF_TEXT)}
    rows = read_csv(converted / "conversion.csv", ["tokens", "total_variation"])
    assert len(rows) == 16
    assert rows["total_variation"].max() < 0.001  # neither side rounds: weights and cache are float32
    assert 4 < rows["total_variation"].count() <= gate.PLAYED


def test_a_device_that_is_not_here_is_refused_in_one_line():
    settings = LanguageModelSettings(kind="language", weights="absent", dtype="float32", device="cuda:99", batch=1)
    with pytest.raises(InputError, match="device: cuda:99: torch finds no such device on this machine"):
        load_pretrained(settings)


def turned_less(folder: Path) -> None:
    """Damage a checkpoint: positions turn at another frequency."""
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"]["rope_theta"] = 100.0
    (folder / "config.json").write_text(json.dumps(config))


def forgot_a_merge(folder: Path) -> None:
    """Damage a checkpoint: one merge of the tokenizer is lost."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["merges"].pop(0)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (turned_less, r"its next tokens are not those of llama.cpp: total variation 0\.\d+ on average"),
        (forgot_a_merge, r"its tokenizer cuts '.*' otherwise than llama.cpp"),
    ],
)
def test_a_damaged_conversion_is_refused_and_nothing_is_written(damage, said, tiny, tmp_path, monkeypatch):
    def damaged(settings, path, folder):
        convert(settings, path, folder)
        damage(folder)

    monkeypatch.setattr(conversion, "convert", damaged)
    with pytest.raises(InputError, match=said) as refused:
        conversion.run(job(tiny), tmp_path / "made")
    assert "\n" not in str(refused.value)
    assert not list((tmp_path / "made").iterdir())


def test_another_file_than_the_one_named_is_refused(tiny):
    digest = hashlib.sha256(tiny.read_bytes()).hexdigest()
    assert gguf_file(Checkpoint(weights=str(tiny), dtype="float32", sha256=digest)) == tiny
    with pytest.raises(InputError, match=f"is another file than params.yaml names: its sha256 is {digest}"):
        gguf_file(Checkpoint(weights=str(tiny), dtype="float32", sha256="0" * 64))
    with pytest.raises(InputError, match=r"gone\.gguf: no such file; put the model's GGUF file there"):
        gguf_file(Checkpoint(weights="gone.gguf", dtype="float32"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"rope_scaling": gguf.RopeScalingType.YARN},
            r"scales its rotary positions \(qwen2\.rope\.scaling\.type = yarn\)",
        ),
        ({"chat_template": None}, "has no chat template, as base models have none; chat_template: data/prompts/"),
    ],
)
def test_a_file_that_cannot_be_converted_faithfully_is_refused(options, said, tmp_path):
    path = write_tiny_gguf(tmp_path / "tiny.gguf", **options)
    with pytest.raises(InputError, match=said):
        convert(job(path).checkpoint, path, tmp_path / "made")


HEADER = b"GGUF\x03\0\0\0"
NO_GGUF = {
    "a pointer to a large file": b"version https://git-lfs.github.com/spec/v1\n" * 9,
    "no architecture": HEADER + bytes(16),
    "more tensors than bytes": HEADER + struct.pack("<QQ", 2**60, 0),
    "a name that is no text": HEADER + struct.pack("<QQQ2sI", 0, 1, 2, b"\xff\xff", 8) + bytes(64),
    "empty": b"",
}


@pytest.mark.parametrize("content", NO_GGUF.values(), ids=NO_GGUF)
def test_a_file_that_is_no_gguf_file_is_refused_in_one_line(tmp_path, content):
    (tmp_path / "tiny.gguf").write_bytes(content)
    with pytest.raises(InputError, match="is no GGUF file, or a truncated one"):
        convert(job(tmp_path / "tiny.gguf").checkpoint, tmp_path / "tiny.gguf", tmp_path / "made")


def test_a_base_model_gets_a_plain_chat_and_tokens_that_end_its_turns(tmp_path):
    path, made = write_tiny_gguf(tmp_path / "tiny.gguf", chat_template=None), tmp_path / "made"
    convert(job(path, chat_template=PLAIN_CHAT, stop_tokens=["user"]).checkpoint, path, made)
    settings = LanguageModelSettings(kind="language", weights=str(made), dtype="float32", device="cpu", batch=1)
    chat_tokenizer, tokens = load_chat_tokenizer(settings), vocabulary()[0]
    assert chat_tokenizer.ends == {tokens.index(word) for word in (END, END_OF_TEXT, "user")}
    template = chat_tokenizer.template
    assert (template.opening, template.head) == ("User:\n", "\n\nAssistant:\n")
    assert template.closing == f"{END}\n\nUser:\n"
    with pytest.raises(InputError, match="stop_tokens: 'stop here' is 9 tokens of this model, and must be one"):
        stop_ids(AutoTokenizer.from_pretrained(made), ["stop here"])


def test_files_of_a_conversion_are_known_before_they_are_made(monkeypatch):
    monkeypatch.chdir(ROOT)
    params = load()
    folder = "results/models/gemma-3-270m"
    assert params.models["gemma-3-270m"].folder == folder
    assert paths.base_model_of(params, "gemma-3-270m") == [f"{folder}/{name}" for name in CHECKPOINT]
    embedded = json.loads(params.models["embedded"].canonical())
    assert not {"file", "sha256", "chat_template", "stop_tokens", "converted", "llama_cpp"} & embedded.keys()
    with pytest.raises(ValueError, match="converted: rmft names this folder"):
        type(params).model_validate(
            params.model_dump() | {"models": {"a": {**params.models["gemma-3-270m"].model_dump(), "converted": "b"}}}
        )


def test_a_gguf_file_that_is_missing_stops_a_build_and_no_audit(tmp_path, monkeypatch):
    params = load(ROOT / "params.yaml")
    monkeypatch.chdir(tmp_path)
    assert paths.gguf_of(params, "gemma-3-270m", needed=False) == []
    with pytest.raises(InputError, match=r"models\.gemma-3-270m\.weights: .*put the model's GGUF file there"):
        paths.gguf_of(params, "gemma-3-270m", needed=True)
    for file in map(Path, paths.made_model_of(params, "gemma-3-270m")):  # what was converted before changes nothing
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    with pytest.raises(InputError, match="put the model's GGUF file there"):
        paths.gguf_of(params, "gemma-3-270m", needed=True)


@pytest.mark.long
def test_jobs_depend_on_the_converted_file_whose_hash_is_in_their_lineage(tmp_path):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    for name in ("Snakefile", "src", "workflow", "profiles", "extensions", "requirements.lock", "outputs.yaml", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "data", tmp_path / "data", ignore=shutil.ignore_patterns("rewards", "recorded"))
    set_value(tmp_path, "scale", "smoke")
    tiny = {"kind": "language", "weights": "models/tiny.gguf", "dtype": "float32", "device": "cpu", "batch": 8}
    set_value(tmp_path, "models.tiny", tiny)
    for kind in ("language", "grpo"):
        set_value(tmp_path, f"scales.smoke.{kind}.model", "tiny")
    games = "results/experiments/open_mab_qwen/seed-0/iteration-0/shards/1-of-2.parquet"
    stopped = run(tmp_path, "snakemake", "-n", games)
    assert "models.tiny.weights: models/tiny.gguf: no such file; put the model's GGUF file there" in stopped.stderr
    done(tmp_path, "snakemake", "-n", "numeric")  # asks for no language model
    (tmp_path / "models").mkdir()
    path = write_tiny_gguf(tmp_path / "models/tiny.gguf")
    done(tmp_path, "snakemake", "--cores", "2", games)
    ancestors = json.loads(done(tmp_path, "rmft", "lineage", games, "--format", "json"))["ancestors"]
    assert ancestors["models/tiny.gguf"]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert "results/models/tiny/model.safetensors" in ancestors[games]["inputs"]
