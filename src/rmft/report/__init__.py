"""The report: one page with every figure and table beside the paper's claims, and one with the games themselves.

The texts of the pages are in data/report; the verdicts are computed here from results alone.
"""

from rmft.report.page import page
from rmft.report.viewer import viewer

__all__ = ["page", "viewer"]
