"""How the result of a journey shows itself: figures by name, a report, a short text, and a card in a notebook."""

from functools import cached_property
from pathlib import Path
from typing import Any

from ..runtime.errors import RequestError, WorkError, nearest
from ..runtime.files import write_whole


class Shown:
    """A result around its record, whose pictures are those of its report."""

    record: Any
    kind = "result"

    @cached_property
    def _figures(self) -> dict[str, Any]:
        from ..reporting.blocks import Figure
        from ..reporting.report import page_of

        blocks = (block for section in page_of(self.record).sections for block in section.blocks)
        return {block.name: block for block in blocks if isinstance(block, Figure)}

    @property
    def plots(self) -> tuple[str, ...]:
        """The names that `plot` knows."""
        return tuple(self._figures)

    def plot(self, name: str, ax: Any = None) -> Any:
        """A picture of the report, drawn into a new matplotlib figure or into `ax`; returns the figure."""
        if name not in self._figures:
            raise RequestError(f"this {self.kind} has no plot `{name}`.{nearest(name, self.plots)}")
        figure = self._figures[name]
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots(figsize=(figure.width / 72, figure.height / 72), layout="constrained")[1]
        figure.draw(ax)
        ax.set_title(figure.title)
        return ax.figure

    def report(self, path: str | Path) -> Path:
        """Writes the report, one self-contained page."""
        from ..reporting.report import report

        try:
            write_whole(Path(path), report(self.record).encode())
        except OSError as problem:
            raise WorkError(f"could not write {path}: {problem.strerror or problem}.") from None
        return Path(path)

    def _lines(self) -> list[str]:
        from ..reporting.report import verdict

        said = verdict(self.record)
        return [f"gradwise {self.kind}, {self._name}: {said.headline}", *filter(None, (said.interval, said.story))]

    @property
    def _name(self) -> str:
        return self.record.data.name or "data"

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        from ..reporting.html import render_card

        return render_card(self._lines(), next(iter(self._figures.values()), None))
