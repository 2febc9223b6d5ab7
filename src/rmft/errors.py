"""The one exception for a user's mistake; `cli.py` turns it into a line and exit code 2."""


class InputError(ValueError):
    """A value or file of the user is wrong; the message names file and key, and what would be right."""
