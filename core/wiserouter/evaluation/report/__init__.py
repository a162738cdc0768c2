"""The report of a bench: tables and pictures made from its rows. Nothing here runs a method."""

from wiserouter.evaluation.report.aggregates import Aggregates, aggregate
from wiserouter.evaluation.report.comparison import MethodComparison, compare_methods
from wiserouter.evaluation.report.html_page import page_of
from wiserouter.evaluation.report.markdown import markdown_of
from wiserouter.evaluation.report.results_file import About, Results, read_results
from wiserouter.evaluation.report.section import ReportSection
from wiserouter.evaluation.report.sections import SECTIONS, make_section, make_sections
from wiserouter.evaluation.report.suite_figures import SuiteFigures, SuiteGroup, suite_figures
from wiserouter.evaluation.report.suite_sections import suite_sections

__all__ = [
    "SECTIONS",
    "About",
    "Aggregates",
    "MethodComparison",
    "ReportSection",
    "Results",
    "SuiteFigures",
    "SuiteGroup",
    "aggregate",
    "compare_methods",
    "make_section",
    "make_sections",
    "markdown_of",
    "page_of",
    "read_results",
    "suite_figures",
    "suite_sections",
]
