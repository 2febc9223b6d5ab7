"""The games of `rmft eval` in other people's tools: Inspect, verifiers, TRL. One module each, over `games`."""
