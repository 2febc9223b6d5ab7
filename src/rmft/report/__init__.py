"""The report: one page with every figure and table beside what the paper says, and one with the games themselves.

What the pages say is data (data/report); what they conclude is computed here, from results alone.
"""

from rmft.report.page import page
from rmft.report.viewer import viewer

__all__ = ["page", "viewer"]
