"""Vector instructions: libraries compute with AVX2 alone, so that machines with and without AVX-512 round alike."""

import functools
import os
from pathlib import Path

# Libraries read these when they are loaded. MKL's STRICT: a row of a product rounds alike alone and among other rows.
AVX2_ONLY = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "AVX2,STRICT",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    "OPENBLAS_CORETYPE": "Haswell",  # of the products of NumPy and SciPy
}


def use_avx2_only() -> None:
    """Have NumPy and torch, which must not be imported yet, compute without AVX-512 here and in child processes.

    Variables that are set already stay. A processor without AVX2 is left alone, as is one that is not known.
    """
    os.environ.update({name: value for name, value in _ours().items() if name not in os.environ})


def unusual_instructions() -> dict[str, str]:
    """Return the variables that were set otherwise before rmft began, so that libraries round in another way."""
    return {name: os.environ[name] for name in AVX2_ONLY if os.environ.get(name) not in (None, _ours().get(name))}


def _ours() -> dict[str, str]:
    """Return the variables that rmft sets on this processor."""
    _, instructions = processor()
    if instructions not in ("avx2", "avx512f"):
        return {}
    newer = set() if instructions == "avx512f" else {"NPY_DISABLE_CPU_FEATURES"}  # NumPy warns of what is not there
    return {name: value for name, value in AVX2_ONLY.items() if name not in newer}


@functools.cache
def processor() -> tuple[str, str]:
    """Return the processor's maker and its widest vector instructions; empty texts where the system does not say so."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n", 1)[0].splitlines()
    except OSError:
        return "", ""
    values = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = values.get("flags", "").split()
    return values.get("vendor_id", ""), next((name for name in ("avx512f", "avx2", "avx") if name in flags), "")
