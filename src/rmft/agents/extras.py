"""Libraries that only some models need: extras of this package, which jobs of other models do without."""

from importlib.metadata import distributions, requires

from rmft.errors import InputError


def check_extra(library: str, key: str, extra: str) -> None:
    """Raise InputError where a library is missing, or not at the version that this package pins.

    Lineage records the pinned version. key: the parameter that needs the library. extra: where the package names it.
    """
    requirements = (line.partition(";")[0].strip() for line in requires("rmft"))
    needed = next((line for line in requirements if line.startswith(f"{library}==")), library)
    if not any(f"{library}=={one.version}".startswith(needed) for one in distributions(name=library)):
        raise InputError(f"models: {key} needs {needed}: pip install -e '.[{extra}]'")
