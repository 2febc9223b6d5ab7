"""Results that travel: what experiments gave on one machine, small enough for git, with what it came from."""
