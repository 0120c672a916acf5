"""The options of the command line that several commands share, each with its one line of help.

Only typer is imported here, as in `main.py`: help must come at once.
"""

from typing import Annotated, Any, TypeAlias

import typer

DATA, TRAIN, RUN, SAY = "The data", "Training", "The run", "What is said"
SEARCH, QUESTION = "The search", "Instead of a search"


def shared(*names: str, panel: str, help: str, metavar: str = "") -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar, show_default=False)


Texts: TypeAlias = list[str] | None
Text: TypeAlias = str | None

Target = Annotated[Texts, shared("--target", panel=DATA, metavar="COLUMN", help="What to predict; repeatable.")]
Task = Annotated[
    Text, shared("--task", panel=DATA, metavar="KIND", help="classes, labels or numbers; else by the values.")
]
Drop = Annotated[Texts, shared("--drop", panel=DATA, metavar="COLUMN", help="Leave a column out; repeatable.")]
Kind = Annotated[
    Texts,
    shared("--kind", panel=DATA, metavar="COLUMN=KIND", help="Read it as number, category or date; repeatable."),
]
Group = Annotated[Text, shared("--group", panel=DATA, metavar="COLUMN", help="Keep rows of one group in one part.")]
Time = Annotated[Text, shared("--time", panel=DATA, metavar="COLUMN", help="Learn from the past, judge by the newest.")]
Weight = Annotated[Text, shared("--weight", panel=DATA, metavar="COLUMN", help="How much each row counts.")]
ClassWeight = Annotated[
    Text, shared("--class-weight", panel=DATA, metavar="WEIGHTS", help="balanced, or class=weight,class=weight.")
]
Test = Annotated[Text, shared("--test", panel=DATA, metavar="FILE", help="A fixed test set, in DATA's form.")]
Metric = Annotated[
    Text,
    shared(
        "--metric",
        panel=TRAIN,
        metavar="NAME",
        help="error_rate, balanced_error_rate, log_loss or auc; rmse, mae or r2 for numbers.",
    ),
]
Seed = Annotated[Text, shared("--seed", panel=TRAIN, metavar="N", help="All randomness comes from it. Default: 0.")]
Sets = Annotated[
    Texts,
    shared(
        "--set",
        panel=TRAIN,
        metavar="PATH=VALUE",
        help="Turn a knob, such as optimiser.learning_rate=0.03; --dry-run lists them; repeatable.",
    ),
]
Out = Annotated[Text, shared("--out", panel=RUN, metavar="DIR", help="The run's folder. Default: runs/NAME-TIME.")]
Resume = Annotated[bool, shared("--resume", panel=RUN, help="Go on with the run in --out.")]
Overwrite = Annotated[bool, shared("--overwrite", panel=RUN, help="Replace the run in --out.")]
DryRun = Annotated[bool, shared("--dry-run", panel=SAY, help="Say what would be done, and the data as understood.")]
Json = Annotated[bool, shared("--json", panel=SAY, help="One JSON object on standard output.")]
Quiet = Annotated[bool, shared("--quiet", "-q", panel=SAY, help="One line, no progress.")]
NoReport = Annotated[bool, shared("--no-report", panel=SAY, help="Write no report.html.")]
