"""What a bench found: tables and pictures from its rows. Nothing here runs a method."""

from wiserouter.evaluation.report.aggregates import Aggregates, findings_of
from wiserouter.evaluation.report.comparison import Standings, standings_of
from wiserouter.evaluation.report.html_page import page_of
from wiserouter.evaluation.report.markdown import markdown_of
from wiserouter.evaluation.report.results_file import About, Results, read_results
from wiserouter.evaluation.report.section import ReportSection
from wiserouter.evaluation.report.sections import EXHIBITS, exhibit_of, exhibits_of

__all__ = [
    "EXHIBITS",
    "About",
    "Aggregates",
    "ReportSection",
    "Results",
    "Standings",
    "exhibit_of",
    "exhibits_of",
    "findings_of",
    "markdown_of",
    "page_of",
    "read_results",
    "standings_of",
]
