"""The report: one self-contained HTML page, a leaderboard first."""

from fsbench.report.html.page import STUDY, render_html

__all__ = ["STUDY", "render_html"]
