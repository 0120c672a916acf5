"""Every argument and option of the command line, each with one line of help.

Only typer is imported here, as in `main.py`, so that help is fast. `fit_options` and `search_options` parse the
values.
"""

from typing import Annotated, Any, TypeAlias

import typer

_DATA, _TRAIN, _RUN, _SAY, _SEARCH = "Data", "Training", "Run", "Output", "Search"


def option(*names: str, panel: str, help: str, metavar: str = "") -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar, show_default=False)


Texts: TypeAlias = list[str] | None
Text: TypeAlias = str | None

Target = Annotated[Texts, option("--target", panel=_DATA, metavar="COLUMN", help="The column to predict; repeatable.")]
Task = Annotated[
    Text, option("--task", panel=_DATA, metavar="KIND", help="classes, labels or numbers. Default: from the values.")
]
Drop = Annotated[Texts, option("--drop", panel=_DATA, metavar="COLUMN", help="Ignore a column; repeatable.")]
Kind = Annotated[
    Texts,
    option("--kind", panel=_DATA, metavar="COLUMN=KIND", help="Read a column as number, category or date; repeatable."),
]
Group = Annotated[Text, option("--group", panel=_DATA, metavar="COLUMN", help="Never split the rows of a group.")]
Time = Annotated[
    Text, option("--time", panel=_DATA, metavar="COLUMN", help="Split by time: train on the past, test on the newest.")
]
Weight = Annotated[Text, option("--weight", panel=_DATA, metavar="COLUMN", help="Weights of the rows.")]
ClassWeight = Annotated[
    Text, option("--class-weight", panel=_DATA, metavar="WEIGHTS", help="balanced, or class=weight,class=weight.")
]
Test = Annotated[
    Text, option("--test", panel=_DATA, metavar="FILE", help="A separate test set, in the same format as DATA.")
]
Metric = Annotated[
    Text,
    option(
        "--metric",
        panel=_TRAIN,
        metavar="NAME",
        help="error_rate, balanced_error_rate, log_loss or auc; rmse, mae or r2 for numbers.",
    ),
]
SearchMetric = Annotated[
    Text,
    option(
        "--metric",
        panel=_TRAIN,
        metavar="NAME",
        help="As for fit. For features: the learner's own score (default), probe_error_rate or probe_rmse.",
    ),
]
Seed = Annotated[Text, option("--seed", panel=_TRAIN, metavar="N", help="Random seed. Default: 0.")]
Sets = Annotated[
    Texts,
    option(
        "--set",
        panel=_TRAIN,
        metavar="PATH=VALUE",
        help="Set a knob, such as optimiser.learning_rate=0.03; repeatable. --dry-run lists all knobs.",
    ),
]
Out = Annotated[Text, option("--out", panel=_RUN, metavar="DIR", help="The output folder. Default: runs/NAME-TIME.")]
Resume = Annotated[bool, option("--resume", panel=_RUN, help="Continue the run in --out.")]
Overwrite = Annotated[bool, option("--overwrite", panel=_RUN, help="Replace the run in --out.")]
DryRun = Annotated[
    bool, option("--dry-run", panel=_SAY, help="Show the plan and how the data were read; train nothing.")
]
Json = Annotated[bool, option("--json", panel=_SAY, help="Print one JSON object to standard output.")]
Quiet = Annotated[bool, option("--quiet", "-q", panel=_SAY, help="Print one line and no progress.")]
NoReport = Annotated[bool, option("--no-report", panel=_SAY, help="Do not write report.html.")]

_data = typer.Argument(
    metavar="DATA",
    help="A file (.csv .tsv .parquet .npz .npy .svm .idx, also .gz), a named set (digits, iris, ...), or - .",
)
FitData = Annotated[Text, _data]
NeededData = Annotated[str, _data]
Unsupervised = Annotated[
    bool, option("--unsupervised", panel=_TRAIN, help="Learn features of the inputs; ignore any target.")
]
Learner = Annotated[
    Text,
    option(
        "--learner",
        panel=_TRAIN,
        metavar="KIND:UNITS",
        help="The feature learner: denoising, plain, rbm, ... Default: denoising:256.",
    ),
]
Pretrain = Annotated[
    Text,
    option(
        "--pretrain",
        panel=_TRAIN,
        metavar="LAYERS",
        help="Pre-train layers, then fine-tune the network: denoising:1000x3, or rbm:500,denoising:250.",
    ),
]
FitFolds = Annotated[
    Text, option("--folds", panel=_TRAIN, metavar="K", help="Also estimate the error by K-fold cross-validation.")
]
Watch = Annotated[
    Text,
    option(
        "--watch",
        panel=_TRAIN,
        metavar="UPDATES",
        help="Record layer activations and gradients for the report, every so many updates, such as 100.",
    ),
]
Config = Annotated[
    Text,
    option("--config", panel=_TRAIN, metavar="FILE", help="A TOML file: options under [fit], knobs under each part."),
]
MaxTime = Annotated[
    Text, option("--max-time", panel=_RUN, metavar="TIME", help="Maximum training time: 90s, 10min, 2h.")
]
Checkpoint = Annotated[
    Text,
    option("--checkpoint", panel=_RUN, metavar="SECONDS", help="Seconds between checkpoints. Default: 10."),
]
FitOn = Annotated[Text, option("--on", panel=_RUN, metavar="DEVICE", help="cpu or gpu. Default: the best available.")]
Budget = Annotated[
    Text,
    option("--budget", panel=_SEARCH, metavar="B", help="A time (60s, 2h) or '32 trials'. Default: 10min."),
]
Trials = Annotated[Text, option("--trials", panel=_SEARCH, metavar="N", help="Number of trials; +N adds N to a study.")]
Strategy = Annotated[
    Text,
    option(
        "--strategy",
        panel=_SEARCH,
        metavar="NAME",
        help="recommended (default), random, sobol, grid, grids, coordinate, zoom, halving, pbt, forest, gp, tpe, "
        "cmaes or layerwise.",
    ),
]
Ranges = Annotated[
    list[str] | None,
    option(
        "--range",
        panel=_SEARCH,
        metavar="PATH=RANGE",
        help="Search a knob: log(1e-4, 1e-1), integers(16, 1024), choice(Tanh, Rectifier), ...; repeatable.",
    ),
]
SearchSets = Annotated[
    list[str] | None,
    option("--set", panel=_SEARCH, metavar="PATH=VALUE", help="Fix a knob, so that it is not searched; repeatable."),
]
Study = Annotated[
    Text,
    option(
        "--study",
        "--config",
        panel=_SEARCH,
        metavar="FILE",
        help="A study file (TOML), such as the study.toml of a run.",
    ),
]
SearchFolds = Annotated[
    Text, option("--folds", panel=_SEARCH, metavar="K", help="Folds per trial; 1 uses one validation set.")
]
Finalists = Annotated[
    Text,
    option("--finalists", panel=_SEARCH, metavar="N", help="Settings in the finals, if there are finals. Default: 3."),
]
Seeds = Annotated[Text, option("--seeds", panel=_SEARCH, metavar="N", help="Seeds per finalist. Default: 5.")]
Committee = Annotated[
    Text,
    option(
        "--committee",
        panel=_SEARCH,
        metavar="KIND",
        help="Model: ensemble (default), best, cheapest, none; with finals: seeds, bagging, inputs, contenders.",
    ),
]
Nested = Annotated[
    bool | None,
    typer.Option(
        "--nested/--no-nested",
        rich_help_panel=_SEARCH,
        show_default=False,
        help="Nested cross-validation. Default: after finals, for small data without a test set.",
    ),
]
BatchSize = Annotated[
    Text,
    option(
        "--batch-size",
        panel=_SEARCH,
        metavar="B",
        help="The mini-batch size; auto chooses it last, by training time, and retunes the learning rate.",
    ),
]
Store = Annotated[
    Text,
    option("--store", panel=_RUN, metavar="URL", help="Store trials in sqlite:///FILE or postgresql://HOST/NAME."),
]
Name = Annotated[Text, option("--name", panel=_RUN, metavar="NAME", help="The name of the study in --store.")]
SearchOn = Annotated[
    Text,
    option("--on", panel=_RUN, metavar="WHERE", help="here, cpu, gpu, workers:N, ray or ray://HOST:PORT."),
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
        panel=_TRAIN,
        metavar="PATH=VALUE",
        help="Set a knob, as in fit; repeatable. gradwise fit DATA --dry-run lists all knobs.",
    ),
]
Only = Annotated[
    list[str] | None,
    option("--only", panel=_RUN, metavar="CHECK", help="Run only these checks: gradient or data,gradient; repeatable."),
]
Code = Annotated[str, typer.Argument(metavar="CODE", help="The code of a finding, such as GW101.")]
PredictRun = Annotated[str, typer.Argument(metavar="RUN", help="The folder of a run, or a model.safetensors file.")]
PredictData = Annotated[
    str, typer.Argument(metavar="DATA", help="New rows: a file with the model's columns, or - for stdin.")
]
PredictOut = Annotated[Text, typer.Option("--out", metavar="FILE", help="The output file; - is standard output.")]
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
Knob = Annotated[str, typer.Argument(metavar="PATH=V,V", help="The knob and its values: model.widths.count=1,2,3.")]
Studies = Annotated[list[str], typer.Argument(metavar="STUDY", help="Folders or stores of two studies or more.")]
TimeLimit = Annotated[
    Text, option("--budget", panel=_RUN, metavar="TIME", help="Start no training after this time: 60s, 2h.")
]
QuestionSeeds = Annotated[
    Text,
    option(
        "--seeds",
        panel=_TRAIN,
        metavar="N",
        help="Seeds for each value. Default: 10 for challenge, 5 for compare, 30 for seeds.",
    ),
]

# The options of each command, in the order of its help.
DATASET: dict[str, Any] = {"data": FitData}
KNOB: dict[str, Any] = {"data": NeededData, "knob": Knob}
_COLUMNS = {
    "target": Target,
    "task": Task,
    "drop": Drop,
    "kind": Kind,
    "group": Group,
    "time": Time,
    "weight": Weight,
    "test": Test,
}
_WEIGHTED = _COLUMNS | {"class_weight": ClassWeight}
_FOLDER = {"out": Out, "resume": Resume, "overwrite": Overwrite}
_TOLD = {"json": Json, "quiet": Quiet, "no_report": NoReport}
FIT = (
    DATASET
    | _WEIGHTED
    | {"unsupervised": Unsupervised, "learner": Learner, "pretrain": Pretrain, "metric": Metric, "folds": FitFolds}
    | {"watch": Watch, "seed": Seed, "sets": Sets, "config": Config, "max_time": MaxTime}
    | _FOLDER
    | {"checkpoint": Checkpoint, "on": FitOn, "dry_run": DryRun}
    | _TOLD
)
SEARCH = (
    DATASET
    | _WEIGHTED
    | {"unsupervised": Unsupervised, "learner": Learner, "budget": Budget, "trials": Trials, "strategy": Strategy}
    | {"ranges": Ranges, "sets": SearchSets, "study": Study, "metric": SearchMetric, "seed": Seed}
    | {"folds": SearchFolds, "finalists": Finalists, "seeds": Seeds, "committee": Committee, "nested": Nested}
    | {"batch_size": BatchSize}
    | _FOLDER
    | {"store": Store, "name": Name, "checkpoint": Checkpoint, "on": SearchOn, "dry_run": DryRun}
    | _TOLD
)
QUESTION = (
    _WEIGHTED
    | {"metric": Metric, "folds": SearchFolds, "seeds": QuestionSeeds, "seed": Seed, "sets": Sets, "budget": TimeLimit}
    | {"out": Out, "overwrite": Overwrite, "on": SearchOn}
    | _TOLD
)
SEARCHED = {"trials": Trials, "strategy": Strategy, "ranges": Ranges}
MERGE = {"studies": Studies, "out": Out, "finalists": Finalists, "on": SearchOn} | _TOLD
CHECK = (
    {"data": CheckData} | _COLUMNS | {"seed": Seed, "sets": CheckSets, "only": Only} | _FOLDER | {"on": FitOn} | _TOLD
)
EXPLAIN = {"code": Code}
PREDICT = {"run": PredictRun, "data": PredictData, "out": PredictOut, "form": Form} | {
    "probabilities": Probabilities,
    "keep": Keep,
    "quiet": PredictQuiet,
}
REPORT = {"run": ReportRun, "out": ReportOut, "json": ReportJson}
