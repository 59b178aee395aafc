"""Reports: one self-contained HTML file of text, tables, scores, figures and videos."""

from gantry_deploy.report.html import Report, Score
from gantry_deploy.report.video import encode_mp4

__all__ = ["Report", "Score", "encode_mp4"]
