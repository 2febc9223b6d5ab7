"""Put files of the repository into the wheel that `rmft` needs outside of a clone; see src/rmft/package_data.py."""

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PackageData(BuildHookInterface):
    """Add the `files` of pyproject.toml to a wheel. An editable installation reads them from the clone instead."""

    def initialize(self, version: str, build_data: dict) -> None:
        """Add the files before the wheel is built."""
        if version == "standard":
            build_data["force_include"] |= {path: f"rmft/files/{path}" for path in self.config["files"]}
