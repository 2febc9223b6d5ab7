"""llama.cpp's server from the package xllamacpp, with llama-server's names of arguments: `python -m` this module."""

import argparse
import os
import signal
from importlib import import_module


def main() -> None:
    """Serve a model until the process is ended."""
    xllamacpp = import_module("xllamacpp")  # llama_cpp_servers checks its version
    arguments = _parser().parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = arguments.model
    params.hostnames, params.port, params.api_keys = [arguments.host], arguments.port, [os.environ["LLAMA_API_KEY"]]
    params.n_parallel, params.n_ctx = arguments.parallel, arguments.ctx_size
    params.cpuparams.n_threads, params.cpuparams_batch.n_threads = arguments.threads, arguments.threads_batch
    params.n_batch, params.n_ubatch = arguments.batch_size, arguments.ubatch_size
    params.n_gpu_layers = arguments.n_gpu_layers
    for name in ("cache_type_k", "cache_type_v"):
        setattr(params, name, getattr(xllamacpp.ggml_type, f"GGML_TYPE_{getattr(arguments, name).upper()}"))
    flash = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}[arguments.flash_attn]
    params.flash_attn_type = getattr(xllamacpp.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{flash}")
    params.kv_unified, params.swa_full, params.cache_ram_mib = False, arguments.swa_full, arguments.cache_ram
    params.cache_prompt = not arguments.no_cache_prompt
    params.fit_params, params.ui = False, False
    # By default it would sample from the 40 likeliest tokens alone, and let a model think that can.
    params.sampling.top_k, params.sampling.top_p, params.sampling.min_p = 0, 1.0, 0.0
    params.default_template_kwargs = {"enable_thinking": "false"}
    if arguments.lora:
        params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(arguments.lora)]
    server = xllamacpp.Server(params)
    print(f"listening at {server.listening_address}", flush=True)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the server's own handler would leave this process waiting
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pause()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="llama_cpp", allow_abbrev=False)
    parser.add_argument("--model", required=True)
    parser.add_argument("--lora")
    parser.add_argument("--host", required=True)
    for name in ("port", "parallel", "ctx-size", "threads", "threads-batch", "cache-ram"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--no-kv-unified", action="store_true", required=True)
    for name in ("swa-full", "no-cache-prompt"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--ubatch-size", type=int, default=512)
    parser.add_argument("--n-gpu-layers", type=int, default=-1)
    for name in ("cache-type-k", "cache-type-v"):
        parser.add_argument(f"--{name}", choices=["f32", "f16", "q8_0"], default="f16")
    parser.add_argument("--flash-attn", choices=["on", "off", "auto"], default="auto")
    return parser


if __name__ == "__main__":
    main()
