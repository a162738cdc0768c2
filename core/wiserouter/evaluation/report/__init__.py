"""What a bench found: tables and pictures from its rows. Nothing here runs a method."""

from wiserouter.evaluation.report.catalogue import EXHIBITS, exhibit_of, exhibits_of
from wiserouter.evaluation.report.exhibit import Exhibit
from wiserouter.evaluation.report.findings import Findings, findings_of
from wiserouter.evaluation.report.markdown import markdown_of
from wiserouter.evaluation.report.page import page_of
from wiserouter.evaluation.report.results import About, Results, read_results
from wiserouter.evaluation.report.standings import Standings, standings_of

__all__ = [
    "EXHIBITS",
    "About",
    "Exhibit",
    "Findings",
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
