"""A language model's weights in process: as published, quantised, fine-tuned, or with a LoRA adapter."""

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from rmft.agents.checkpoint import checkpoint, load_tokenizer
from rmft.agents.context import short_context
from rmft.agents.extras import check_extra
from rmft.artifacts.tensors import read_tensors
from rmft.errors import InputError
from rmft.params.language_model import LanguageModelSettings
from rmft.streams import Word, stream

if TYPE_CHECKING:
    from peft import PeftModel

ADAPTER_CONFIG = "adapter_config"  # the metadata key under which an adapter's file holds its configuration


def load_pretrained(settings: LanguageModelSettings) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a model as published, on the CPU (a quantised one on its device), and its tokenizer.

    Raise InputError if that fails.
    """
    check_device(settings.device)
    logging.disable_progress_bar()  # jobs share a terminal
    quantisation = quantised(settings) if settings.quantised else {}
    with checkpoint(settings) as origin, _no_report():
        model, loaded = AutoModelForCausalLM.from_pretrained(
            settings.folder,
            dtype=settings.dtype,
            use_safetensors=True,
            output_loading_info=True,
            **quantisation,
            **origin,
        )
    # transformers draws tensors at random that the files lack.
    if missing := set(loaded["missing_keys"]).difference(model.all_tied_weights_keys):
        raise InputError(f"{settings.folder}: its weights lack {min(missing)}; restore the files")
    fix_rotary_factors(model, settings.context)
    return model, load_tokenizer(settings)


@contextmanager
def _no_report() -> Iterator[None]:
    """Keep transformers from printing a table of the tensors that a checkpoint lacks or that no layer takes."""
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def check_device(name: str) -> None:
    """Raise InputError where torch has no such device on this machine."""
    kind, _, index = name.partition(":")
    there = {"cuda": torch.cuda.device_count, "mps": torch.mps.device_count}
    if kind in there and int(index or 0) >= there[kind]():
        raise InputError(f"device: {name}: torch finds no such device on this machine")


def quantised(settings: LanguageModelSettings) -> dict[str, Any]:
    """Return the arguments of `from_pretrained` that quantise to NF4 with double quantisation, as QLoRA does.

    Source: arXiv:2305.14314. Raise InputError where bitsandbytes is missing or not at the version that lineage records.
    """
    check_extra("bitsandbytes", f"quantised: {settings.quantised}", "quantised")
    nf4 = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=getattr(torch, settings.dtype),
    )  # fmt: skip
    return {"quantization_config": nf4, "device_map": settings.device}


def fix_rotary_factors(model: PreTrainedModel, context: int | None) -> None:
    """Have LongRoPE (Phi-3.5) rotate all positions by one set of factors, whatever the length of a text.

    LongRoPE has one set of factors for texts up to the model's first training length and another for longer texts. A
    conversation that grew past that length would change sets on the way: its cached past would be rotated by other
    factors than its continuation, and training would rotate by other factors than the rollout did. So `context` decides
    once: a context beyond that length selects the factors of long texts; otherwise that length is the context limit.
    """
    if (short := short_context(model.config)) is not None:
        rotary = model.base_model.rotary_emb
        rotary(torch.zeros(1, device=model.device), torch.tensor([[(context or short) - 1]], device=model.device))
        rotary.rope_type = "default"  # from now on the factors stay as they are


def with_weights(model: PreTrainedModel, path: Path) -> PreTrainedModel:
    """Return a model with the weights, or the adapter, of a .safetensors file. Raise InputError if they do not fit.

    An adapter's file holds the adapter's configuration in its metadata. Adapters are merged into the weights, because
    two more products in each projection would slow down decoding. Weights in 4 bits are too coarse to add an adapter
    to, so there the adapter stays separate.
    """
    tensors, metadata = read_tensors(path)
    if ADAPTER_CONFIG in metadata:
        from peft import LoraConfig, get_peft_model

        warnings.filterwarnings("ignore", category=FutureWarning)  # peft uses an old name of transformers
        adapted = get_peft_model(model, LoraConfig(**json.loads(metadata[ADAPTER_CONFIG])))
        load_adapter(adapted, tensors, path)
        return adapted.get_base_model() if getattr(model, "is_loaded_in_4bit", False) else merged(adapted)

    def load() -> list[str]:
        result = model.load_state_dict(tensors, strict=False)
        return [*result.unexpected_keys, *set(result.missing_keys).difference(model.all_tied_weights_keys)]

    _load_all(load, path, model.config.model_type)
    return model


def load_adapter(adapted: "PeftModel", tensors: dict[str, torch.Tensor], path: Path) -> None:
    """Give a model's adapter the tensors of a file. Raise InputError if they do not fit."""
    from peft import set_peft_model_state_dict

    def load() -> list[str]:
        result = set_peft_model_state_dict(adapted, tensors)
        return [*result.unexpected_keys, *(name for name in result.missing_keys if "lora_" in name)]

    _load_all(load, path, adapted.config.model_type)


def _load_all(load: Callable[[], list[str]], path: Path, kind: str) -> None:
    """Load tensors. Raise InputError for the first name that `load` returns, and where a tensor has another shape."""
    try:
        misfits = load()
    except RuntimeError as error:
        misfits = [str(error).splitlines()[-1].strip()]
    if misfits:
        raise InputError(f"{path}: not weights of a {kind} of this shape: see {misfits[0]}")


def merged(adapted: "PeftModel") -> PreTrainedModel:
    """Return the base model with the adapter added to its weights, rounded as `round_stochastically` does."""
    from peft.tuners.lora import LoraLayer
    from peft.tuners.lora.layer import ParamWrapper

    with torch.no_grad():
        for name, layer in adapted.named_modules():
            if isinstance(layer, LoraLayer):
                weight = layer.get_param() if isinstance(layer, ParamWrapper) else layer.get_base_layer().weight
                added = layer.get_delta_weight(layer.active_adapters[0])
                weight.copy_(round_stochastically(weight.float() + added, weight.dtype, 0, name))
    return adapted.unload()


def round_stochastically(exact: torch.Tensor, dtype: torch.dtype, seed: int, *words: Word) -> torch.Tensor:
    """Return float32 numbers in another type, rounded up or down at random so that the expectation is exact.

    In bfloat16, neighbours of a weight of .02 are 1.2e-4 apart, and fine-tuning moves weights by less; rounding to the
    nearest would undo most of it. seed, words: name the random stream; the weight's name is one of the words. Weights
    that are rounded once in each iteration need other words each time: equal random numbers would round a weight to the
    same side always.
    """
    nearest = exact.to(dtype)
    if dtype == torch.float32:
        return nearest
    side = torch.where(exact > nearest, torch.inf, -torch.inf).to(dtype)
    neighbour = torch.nextafter(nearest, side)
    probability = (exact - nearest.float()) / (neighbour.float() - nearest.float())
    seed = int(stream(seed, "perturbation", "rounding", *words).integers(2**32))
    generator = torch.Generator(exact.device).manual_seed(seed)
    uniforms = torch.rand(exact.shape, generator=generator, device=exact.device)
    return torch.where(uniforms < probability, neighbour, nearest)
