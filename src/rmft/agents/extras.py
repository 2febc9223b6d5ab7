"""Libraries that only some models need: extras of this package, which jobs of other models do without."""

import functools
from collections.abc import Iterable
from importlib.metadata import distributions, requires

from rmft.errors import InputError


def pinned(libraries: Iterable[str]) -> dict[str, str]:
    """Return the version that this package pins of each library.

    Jobs record these: the libraries are loaded by name, or by transformers, so that no code of ours imports them.
    """
    return {library: _pins()[library] for library in libraries}


@functools.cache  # each job of the workflow asks
def _pins() -> dict[str, str]:
    """Return the versions that this package pins, by library."""
    requirements = (line.partition(";")[0].strip() for line in requires("rmft"))
    return {name: version for name, pin, version in (line.partition("==") for line in requirements) if pin}


def check_extra(library: str, key: str, extra: str) -> None:
    """Raise InputError where a library is missing, or not at the version that this package pins.

    key: the parameter that needs the library. extra: where the package names it.
    """
    pin = _pins().get(library)
    installed = [one.version.partition("+")[0] for one in distributions(name=library)]
    if not installed or pin not in (None, *installed):
        needed = f"{library}=={pin}" if pin else library
        raise InputError(f"models: {key} needs {needed}: pip install -e '.[{extra}]'")
