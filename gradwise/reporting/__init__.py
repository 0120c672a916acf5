"""Reports: any record as one self-contained page. Reads records and runs nothing.

matplotlib is imported only when something is drawn.
"""

from ..runtime.public_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
