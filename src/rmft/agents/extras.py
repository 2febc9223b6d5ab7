"""Libraries that only some models need: extras of this package, which jobs of other models do without."""

from collections.abc import Iterable
from importlib.metadata import distributions, requires

from rmft.errors import InputError


def pinned(libraries: Iterable[str]) -> dict[str, str]:
    """Return the version that this package pins of each library.

    Jobs record these: the libraries are loaded by name, or by transformers, so that no code of ours imports them.
    """
    pins = dict(line.partition(";")[0].strip().partition("==")[::2] for line in requires("rmft"))
    return {library: pins[library] for library in libraries}


def check_extra(library: str, key: str, extra: str) -> None:
    """Raise InputError where a library is missing, or not at the version that this package pins.

    key: the parameter that needs the library. extra: where the package names it.
    """
    requirements = (line.partition(";")[0].strip() for line in requires("rmft"))
    needed = next((line for line in requirements if line.startswith(f"{library}==")), library)
    if not any(f"{library}=={one.version}".startswith(needed) for one in distributions(name=library)):
        raise InputError(f"models: {key} needs {needed}: pip install -e '.[{extra}]'")
