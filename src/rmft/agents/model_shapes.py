"""The size of a language model, read from its files but not its weights: a folder, a GGUF file, the hub's cache."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from rmft.agents.gguf_header import read_gguf
from rmft.artifacts.files import reading
from rmft.artifacts.json_files import read_json
from rmft.params.language_model import LanguageModelSettings

BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}  # of a number, by `dtype`
QUANTISED = 0.55  # bytes of a weight in nf4, with its scales


@dataclass(frozen=True)
class ModelShape:
    """parameters: their number. linear: how many of them nf4 quantises. heads: of keys and values. head: size of one.

    sliding: how many of the layers attend to the last `window` tokens only.
    """

    parameters: float
    linear: float
    layers: int
    heads: int
    head: int
    sliding: int = 0
    window: int = 0

    def state_bytes(self, context: float, number: float = 2.0) -> float:
        """Return the bytes of the keys and values of so many tokens. number: bytes of a number."""
        tokens = (self.layers - self.sliding) * context + self.sliding * min(context, self.window)
        return 2 * number * tokens * self.heads * self.head


# The paper's models, as their model cards and configurations have them, for estimates before they are downloaded.
PUBLISHED = {
    "microsoft/Phi-3.5-mini-instruct": ModelShape(3.82e9, 3.62e9, 32, 32, 96),
    "google/gemma-2-9b-it": ModelShape(9.24e9, 8.32e9, 42, 8, 256),
    "Qwen/Qwen3-8B": ModelShape(8.19e9, 6.95e9, 36, 8, 128),
}


def shape_of(settings: LanguageModelSettings) -> ModelShape | None:
    """Return the size of a model; None where its files are not here, so that nothing is known of it."""
    folder = local_folder(settings)
    if folder is not None:
        return _of_folder(folder)
    if settings.is_gguf and Path(settings.weights).is_file():
        return shape_of_gguf(Path(settings.weights))
    return PUBLISHED.get(settings.weights) if settings.file is None else None


def local_folder(settings: LanguageModelSettings) -> Path | None:
    """Return the folder that holds a model's configuration and weights, in the hub's cache too; None without one."""
    if (Path(settings.folder) / "config.json").is_file():
        return Path(settings.folder)
    if settings.is_gguf or settings.revision is None:
        return None
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(settings.weights, "config.json", revision=settings.revision)
    folder = Path(config).parent if isinstance(config, str) else None
    return folder if folder and any(folder.glob("*.safetensors")) else None


def weights_bytes(settings: LanguageModelSettings, shape: ModelShape) -> float:
    """Return the bytes of a model's weights in memory while it plays."""
    if settings.llama_cpp and Path(settings.weights).is_file():
        return Path(settings.weights).stat().st_size
    return bytes_of_weights(settings, shape.parameters, shape.linear)


def bytes_of_weights(settings: LanguageModelSettings, parameters: float, linear: float) -> float:
    """Return the bytes of weights in memory, of which bitsandbytes quantises those of linear layers."""
    quantised = linear if settings.quantised else 0
    return QUANTISED * quantised + BYTES[settings.dtype] * (parameters - quantised)


def _of_folder(folder: Path) -> ModelShape | None:
    from safetensors import SafetensorError, safe_open

    parameters = linear = 0
    for file in folder.glob("*.safetensors"):
        with reading(file, SafetensorError), safe_open(file, framework="numpy") as tensors:
            shapes = {name: tensors.get_slice(name).get_shape() for name in tensors.keys()}  # noqa: SIM118
            parameters += sum(map(prod, shapes.values()))
            linear += _linear(shapes)
    config = read_json(folder / "config.json")
    config = config.get("text_config", config)
    if not parameters or not {"num_attention_heads", "num_hidden_layers", "hidden_size"} <= config.keys():
        return None  # no weights here, or a configuration with other names, such as GPT-2's
    queries = config["num_attention_heads"]
    head = config.get("head_dim") or config["hidden_size"] // queries
    window = config.get("sliding_window") or 0
    sliding = (config.get("layer_types") or []).count("sliding_attention") if window else 0
    heads = config.get("num_key_value_heads") or queries
    return ModelShape(parameters, linear, config["num_hidden_layers"], heads, head, sliding, window)


def shape_of_gguf(file: Path) -> ModelShape:
    """Return the size of the model in a GGUF file."""
    header = read_gguf(file)
    queries = header.count(".attention.head_count")
    has = header.value
    head = header.count(".attention.key_length") if has(".attention.key_length") else 0
    heads = header.count(".attention.head_count_kv") if has(".attention.head_count_kv") else queries
    parameters = sum(map(prod, header.shapes.values()))
    size = head or header.count(".embedding_length") // queries
    return ModelShape(parameters, _linear(header.shapes), header.count(".block_count"), heads, size)


def _linear(shapes: Mapping[str, Sequence[int]]) -> int:
    """Return how many weights linear layers have, without the output layer and experts. shapes: by tensor name."""
    others = (".embed", ".wte.", ".lm_head.", ".experts.", ".token_embd.", ".output.")  # the last two are GGUF's
    matrices = {f".{name}": shape for name, shape in shapes.items() if len(shape) == 2}
    return sum(prod(shape) for name, shape in matrices.items() if not any(of in name for of in others))
