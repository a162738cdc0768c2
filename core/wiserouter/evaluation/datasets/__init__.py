"""Routing tables for the evaluation: public data sets as one wide parquet file each, and tables as dense arrays."""

from wiserouter.evaluation.datasets.open_table import LoadedTable, open_table
from wiserouter.evaluation.datasets.summary import TableSummary, summary

__all__ = ["LoadedTable", "TableSummary", "open_table", "summary"]
