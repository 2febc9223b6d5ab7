"""params.yaml as frozen, checked records: the only reader of that file, and the only place where `scale` acts.

Unknown keys, wrong types and impossible values are refused with the dotted key.
"""

from rmft.params.reading import load, load_extensions
from rmft.params.whole import Params

__all__ = ["Params", "load", "load_extensions"]
