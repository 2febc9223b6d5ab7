"""What replies say of the rewards so far, held against what happened. Kinds of claims: see `claims`."""

KINDS = ("reward", "grade", "score", "times", "average", "highest", "reason", "choice")
ALL = "all"  # kinds together
DIFFERENCE = "difference"  # trained - base, beside the players
SHARE, SHARE_ERROR = "share over all rounds", "its standard error, over instances"  # of replies, as figures print them
