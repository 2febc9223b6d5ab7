"""The claims that replies make about past rewards, checked against the history. `claims` lists the kinds of claims."""

KINDS = ("reward", "grade", "score", "times", "average", "highest", "reason", "choice")
ALL = "all"  # kinds together
DIFFERENCE = "difference"  # trained - base, in the place of a player
SHARE, SHARE_ERROR = "share over all rounds", "its standard error, over instances"  # of replies, as figures print them
