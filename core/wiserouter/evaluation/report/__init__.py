"""What a bench found: figures from its rows. Nothing here runs a method."""

from wiserouter.evaluation.report.end_to_end import EndToEnd, end_to_end
from wiserouter.evaluation.report.markdown import Report, markdown_of
from wiserouter.evaluation.report.standings import Standings, standings_of

__all__ = ["EndToEnd", "Report", "Standings", "end_to_end", "markdown_of", "standings_of"]
