"""Every argument and option of the command line, each with one line of help.

Only typer is imported here, as in `main.py`, so that help is fast. `fit_options` and `search_options` parse the
values.
"""

from typing import Annotated, Any, TypeAlias

import typer

DATA, TRAIN, RUN, SAY = "Data", "Training", "Run", "Output"
SEARCH, QUESTION = "Search", "Instead of a search"


def option(*names: str, panel: str, help: str, metavar: str = "") -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar, show_default=False)


Texts: TypeAlias = list[str] | None
Text: TypeAlias = str | None

Target = Annotated[Texts, option("--target", panel=DATA, metavar="COLUMN", help="The column to predict; repeatable.")]
Task = Annotated[
    Text, option("--task", panel=DATA, metavar="KIND", help="classes, labels or numbers. Default: from the values.")
]
Drop = Annotated[Texts, option("--drop", panel=DATA, metavar="COLUMN", help="Ignore a column; repeatable.")]
Kind = Annotated[
    Texts,
    option("--kind", panel=DATA, metavar="COLUMN=KIND", help="Read a column as number, category or date; repeatable."),
]
Group = Annotated[Text, option("--group", panel=DATA, metavar="COLUMN", help="Never split the rows of a group.")]
Time = Annotated[
    Text, option("--time", panel=DATA, metavar="COLUMN", help="Split by time: train on the past, test on the newest.")
]
Weight = Annotated[Text, option("--weight", panel=DATA, metavar="COLUMN", help="Weights of the rows.")]
ClassWeight = Annotated[
    Text, option("--class-weight", panel=DATA, metavar="WEIGHTS", help="balanced, or class=weight,class=weight.")
]
Test = Annotated[
    Text, option("--test", panel=DATA, metavar="FILE", help="A separate test set, in the same format as DATA.")
]
Metric = Annotated[
    Text,
    option(
        "--metric",
        panel=TRAIN,
        metavar="NAME",
        help="error_rate, balanced_error_rate, log_loss or auc; rmse, mae or r2 for numbers.",
    ),
]
SearchMetric = Annotated[
    Text,
    option(
        "--metric",
        panel=TRAIN,
        metavar="NAME",
        help="As for fit. For features: the learner's own score (default), probe_error_rate or probe_rmse.",
    ),
]
Seed = Annotated[Text, option("--seed", panel=TRAIN, metavar="N", help="Random seed. Default: 0.")]
Sets = Annotated[
    Texts,
    option(
        "--set",
        panel=TRAIN,
        metavar="PATH=VALUE",
        help="Set a knob, such as optimiser.learning_rate=0.03; repeatable. --dry-run lists all knobs.",
    ),
]
Out = Annotated[Text, option("--out", panel=RUN, metavar="DIR", help="The output folder. Default: runs/NAME-TIME.")]
Resume = Annotated[bool, option("--resume", panel=RUN, help="Continue the run in --out.")]
Overwrite = Annotated[bool, option("--overwrite", panel=RUN, help="Replace the run in --out.")]
DryRun = Annotated[
    bool, option("--dry-run", panel=SAY, help="Show the plan and how the data were read; train nothing.")
]
Json = Annotated[bool, option("--json", panel=SAY, help="Print one JSON object to standard output.")]
Quiet = Annotated[bool, option("--quiet", "-q", panel=SAY, help="Print one line and no progress.")]
NoReport = Annotated[bool, option("--no-report", panel=SAY, help="Do not write report.html.")]

FitData = Annotated[
    Text,
    typer.Argument(
        metavar="DATA",
        help="A file (.csv .tsv .parquet .npz .npy .svm .idx, also .gz), a named set (digits, iris, ...), or - .",
    ),
]
Unsupervised = Annotated[
    bool, option("--unsupervised", panel=TRAIN, help="Learn features of the inputs; ignore any target.")
]
Learner = Annotated[
    Text,
    option(
        "--learner",
        panel=TRAIN,
        metavar="KIND:UNITS",
        help="The feature learner: denoising, plain, rbm, ... Default: denoising:256.",
    ),
]
Pretrain = Annotated[
    Text,
    option(
        "--pretrain",
        panel=TRAIN,
        metavar="LAYERS",
        help="Pre-train layers, then fine-tune the network: denoising:1000x3, or rbm:500,denoising:250.",
    ),
]
FitFolds = Annotated[
    Text, option("--folds", panel=TRAIN, metavar="K", help="Also estimate the error by K-fold cross-validation.")
]
Watch = Annotated[
    Text,
    option(
        "--watch",
        panel=TRAIN,
        metavar="UPDATES",
        help="Record layer activations and gradients for the report, every so many updates, such as 100.",
    ),
]
Config = Annotated[
    Text,
    option("--config", panel=TRAIN, metavar="FILE", help="A TOML file: options under [fit], knobs under each part."),
]
MaxTime = Annotated[
    Text, option("--max-time", panel=RUN, metavar="TIME", help="Maximum training time: 90s, 10min, 2h.")
]
Checkpoint = Annotated[
    Text,
    option("--checkpoint", panel=RUN, metavar="SECONDS", help="Seconds between checkpoints. Default: 10."),
]
FitOn = Annotated[Text, option("--on", panel=RUN, metavar="DEVICE", help="cpu or gpu. Default: the best available.")]
SearchData = Annotated[
    list[str] | None,
    typer.Argument(metavar="DATA", help="As for fit; with --merge, folders or stores of studies."),
]
Budget = Annotated[
    Text,
    option("--budget", panel=SEARCH, metavar="B", help="A time (60s, 2h) or '32 trials'. Default: 10min."),
]
Trials = Annotated[Text, option("--trials", panel=SEARCH, metavar="N", help="Number of trials; +N adds N to a study.")]
Strategy = Annotated[
    Text,
    option(
        "--strategy",
        panel=SEARCH,
        metavar="NAME",
        help="recommended (default), random, sobol, grid, grids, coordinate, zoom, halving, pbt, forest, gp, tpe, "
        "cmaes or layerwise.",
    ),
]
Ranges = Annotated[
    list[str] | None,
    option(
        "--range",
        panel=SEARCH,
        metavar="PATH=RANGE",
        help="Search a knob: log(1e-4, 1e-1), integers(16, 1024), choice(Tanh, Rectifier), ...; repeatable.",
    ),
]
SearchSets = Annotated[
    list[str] | None,
    option("--set", panel=SEARCH, metavar="PATH=VALUE", help="Fix a knob, so that it is not searched; repeatable."),
]
Study = Annotated[
    Text,
    option(
        "--study",
        "--config",
        panel=SEARCH,
        metavar="FILE",
        help="A study file (TOML), such as the study.toml of a run.",
    ),
]
SearchFolds = Annotated[
    Text, option("--folds", panel=SEARCH, metavar="K", help="Folds per trial; 1 uses one validation set.")
]
Finalists = Annotated[
    Text,
    option("--finalists", panel=SEARCH, metavar="N", help="Settings in the finals, if there are finals. Default: 3."),
]
Seeds = Annotated[Text, option("--seeds", panel=SEARCH, metavar="N", help="Seeds per finalist. Default: 5.")]
Committee = Annotated[
    Text,
    option(
        "--committee",
        panel=SEARCH,
        metavar="KIND",
        help="Model: ensemble (default), best, cheapest, none; with finals: seeds, bagging, inputs, contenders.",
    ),
]
Nested = Annotated[
    bool | None,
    typer.Option(
        "--nested/--no-nested",
        rich_help_panel=SEARCH,
        show_default=False,
        help="Nested cross-validation. Default: after finals, for small data without a test set.",
    ),
]
BatchSize = Annotated[
    Text,
    option(
        "--batch-size",
        panel=SEARCH,
        metavar="B",
        help="The mini-batch size; auto chooses it last, by training time, and retunes the learning rate.",
    ),
]
Merge = Annotated[bool, option("--merge", panel=QUESTION, help="Merge studies of the same data into --out.")]
Challenge = Annotated[
    Text,
    option("--challenge", panel=QUESTION, metavar="PATH=V,V", help="Compare values of one knob over the same seeds."),
]
Compare = Annotated[
    Text,
    option(
        "--compare", panel=QUESTION, metavar="PATH=V,V", help="The same, with all other knobs searched for each value."
    ),
]
Distribution = Annotated[
    Text,
    option(
        "--distribution",
        panel=QUESTION,
        metavar="N",
        help="Train one recipe with N seeds, to see the effect of chance.",
    ),
]
Store = Annotated[
    Text,
    option("--store", panel=RUN, metavar="URL", help="Store trials in sqlite:///FILE or postgresql://HOST/NAME."),
]
Name = Annotated[Text, option("--name", panel=RUN, metavar="NAME", help="The name of the study in --store.")]
SearchOn = Annotated[
    Text,
    option("--on", panel=RUN, metavar="WHERE", help="here, cpu, gpu, workers:N, ray or ray://HOST:PORT."),
]
CheckData = Annotated[
    Text,
    typer.Argument(
        metavar="DATA|MODULE:FUNCTION|RUN",
        help="Data as for fit; your own problem (file.py:make_problem or package.module:make_problem); or a run.",
    ),
]
CheckSets = Annotated[
    list[str] | None,
    option(
        "--set",
        panel=TRAIN,
        metavar="PATH=VALUE",
        help="Set a knob, as in fit; repeatable. gradwise fit DATA --dry-run lists all knobs.",
    ),
]
Only = Annotated[
    list[str] | None,
    option("--only", panel=RUN, metavar="CHECK", help="Run only these checks: gradient, or data,gradient; repeatable."),
]
Code = Annotated[str, typer.Argument(metavar="CODE", help="The code of a finding, such as GW101.")]
PredictRun = Annotated[str, typer.Argument(metavar="RUN", help="The folder of a run, or a model.safetensors file.")]
PredictData = Annotated[
    str, typer.Argument(metavar="DATA", help="New rows: a file with the model's columns, or - for stdin.")
]
PredictOut = Annotated[str, typer.Option("--out", metavar="FILE", help="The output file; - is standard output.")]
Form = Annotated[
    Text,
    typer.Option(
        "--format", metavar="FORM", help="csv, parquet or json. Default: from the extension of --out, else csv."
    ),
]
Probabilities = Annotated[
    bool, typer.Option("--probabilities", help="Add a column with the probability of each class.")
]
Keep = Annotated[
    list[str] | None, typer.Option("--keep", metavar="COLUMN", help="Copy a column of DATA to the output; repeatable.")
]
PredictQuiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but the predictions.")]
ReportRun = Annotated[str, typer.Argument(metavar="RUN", help="The folder of a run.")]
ReportOut = Annotated[
    Text, typer.Option("--out", metavar="FILE", help="The output file. Default: report.html in the folder.")
]
ReportJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object to standard output.")]
