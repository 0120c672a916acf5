"""Reports: any record as one self-contained page. Reads records, runs nothing.

matplotlib is imported only when something is drawn.
"""

from .blocks import Figure, Page, Section, Table
from .html import render
from .report import read_record, report, verdict, write_report

__all__ = ["Figure", "Page", "Section", "Table", "read_record", "render", "report", "verdict", "write_report"]
