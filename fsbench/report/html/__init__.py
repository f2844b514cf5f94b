"""The report: one self-contained HTML page, a leaderboard first."""

from fsbench.report.html.page import render_html

__all__ = ["render_html"]
