"""Every public name and the module that defines it: one table, read by whoever needs a name.

    gradwise.Mlp, gradwise.models.Mlp      the same class: a package finds its names here, on first use (PEP 562)
    {"class": "gradwise:Mlp", ...}         how files name it, so that moving a module breaks no file

Names are unique, whatever the module. The table is text, so that looking at it imports nothing.
"""

import importlib
from collections.abc import Callable
from typing import Any

_NAMES = {
    "specs.adapters": "BuiltModel FunctionCriterion OutputCriterion OptaxOptimiser",
    "specs.contracts": (
        "Batch Narrowed Scores AbstractSplit AbstractScaler AbstractBatches AbstractModel AbstractCriterion "
        "AbstractOptimiser AbstractStopping"
    ),
    "specs.dataset": "Dataset Column InputLayout Classes Labels Numbers Inputs Several",
    "specs.fitted_scaler": "FittedScaler",
    "specs.flax_models": "LinenNetwork LinenModel NnxNetwork NnxModel",
    "specs.knobs": "Spec knob switch",
    "specs.networks": "Network",
    "specs.paths": "Buffer replace",
    "specs.priors": "AbstractPrior Uniform LogUniform LogInteger Choice ZeroOr",
    "specs.recipe": "Recipe",
    "specs.schedules": "AbstractSchedule Constant Noise",
    "specs.sequences": "Sequences",
    "specs.trees.container": "Trees",
    "specs.serialisation": "to_json from_json",
    "specs.sparse.rows": "SparseRows",
    "specs.sparse.touched": "TouchedRows",
    "specs.search_space": "Space Dimension dimension read_space",
    "records.check": "Checked read_checked",
    "records.finding": "Finding",
    "records.fit": "Fit read_fit write_fit",
    "records.evidence.example_record": "ExampleRecord",
    "records.evidence.fit_evidence": "CrossValidationEstimate FitEvidence",
    "records.outcome": "Outcome",
    "records.study": "Study",
    "records.study_files": "read_study write_study",
    "records.trial": "Trial",
    "runtime.errors": "RequestError WorkError",
    "runtime.keys": "from_seed",
    "curvature.diagonals": "back_propagated_diagonal gauss_newton_diagonal",
    "curvature.eigenvalues": "lanczos hessian_range implied_rate largest_eigenvalue",
    "curvature.example_gradients": "example_terms",
    "curvature.objective": "Examples Objective gather",
    "curvature.proximal_gradient": "fista lasso_codes",
    "curvature.products": "jacobian_vector hessian_vector gauss_newton_vector hessian_map gauss_newton_map",
    "data.batches": "AbstractOrder Reshuffled ShuffledOnce Fixed Stream Streams",
    "data.category_scaling": "OneHot Categories",
    "data.count_scaling": "TfIdf Binary LogCounts",
    "data.curriculum": "Curriculum easiest_first",
    "data.fitted_scalers": (
        "Affine SmoothlyClipped Bounded Logarithmic Rooted Interpolated Projection OneOfSeveral FlagsAndCodes Chained "
        "SideBySide OverNodes OverSteps WeightedCounts"
    ),
    "data.reading.new_rows": "read_rows",
    "data.reading.read": "ReadRequest read",
    "data.reading.tables": "from_frame",
    "data.scaling": (
        "NoScaling Standardise Robust MaxAbs UnitRange Pixels Logarithm SquareRoot Uniformise NormalScores Pca Chain "
        "Columns Automatic"
    ),
    "data.input_kind": "kind_of_inputs",
    "data.sequence_scaling": "Steps",
    "data.text.vocabulary": "Words WordNumbers",
    "data.text.words": "split_words",
    "data.splits": "HoldOut GroupHoldOut TimeHoldOut GivenParts Fold join_parts",
    "models.activations": (
        "AbstractActivation Tanh Sigmoid Rectifier HardTanh Softsign Identity Selu Mish Gelu ParametricUnits Parametric"
    ),
    "models.auto_encoder": "AsHidden Decoder AutoEncoderNetwork MlpAutoEncoder",
    "models.centred_mlp": "CentredLayer CentredNetwork CentredMlp",
    "models.convolution.auto_encoder": "ConvolutionalAutoEncoder ConvolutionalAutoEncoderNetwork",
    "models.convolution.augmentation": "AbstractAugmentation NoAugmentation Shift Crop Flip Augmentations",
    "models.convolution.convolutional": "Convolutional",
    "models.convolution.network": "ConvolutionLayer ConvolutionalNetwork",
    "models.convolution.pooling": "AbstractPooling NoPool MaxPool MeanPool",
    "models.deep_boltzmann": "DeepBoltzmannNetwork DeepBoltzmann",
    "models.initial_weights": ("AbstractInitial Glorot FanIn GaussianWeights SparseWeights ZeroWeights normal uniform"),
    "models.input_stage": (
        "ColumnMaps PeriodicNumbers PiecewiseNumbers AbstractNumberEmbedding NoEmbedding Periodic PeriodicRectified "
        "PiecewiseLinear InputStage AbstractInputStage Direct Embedded LaidOut"
    ),
    "models.joint_network": "JointNetwork Joint",
    "models.language.feed_forward": "ContextLayer FeedForwardLanguageNetwork FeedForwardLanguageModel",
    "models.language.network": "AbstractLanguageNetwork",
    "models.language.recurrent_language": "ContinuedLayer RecurrentLanguageNetwork RecurrentLanguageModel",
    "models.language.word_output": "SoftmaxWords TwoLevelWords AbstractWordOutput FullSoftmax TwoLevelSoftmax",
    "models.mlp": (
        "AbstractNormalisation NoNorm LayerNorm BatchNorm LayerNormLayer BatchNormLayer Layer Linear MlpNetwork Mlp"
    ),
    "models.padded_mlp": "PaddedMlp",
    "models.recurrence.cells": "AbstractCell SimpleCell Gru Lstm",
    "models.recurrence.pooling": (
        "AbstractStatePooling LastState MeanState AttentionPooling LastOfStates MeanOfStates AttentionOverStates"
    ),
    "models.recurrence.recurrent": "Recurrent RecurrentNetwork RecurrentLayer OneDirection GateWeights",
    "models.restricted_boltzmann": "RbmNetwork LabelRbmNetwork Rbm LabelRbm",
    "models.shared_weights": "SharedLayer SharedOutput SharedNetwork SharedWeights",
    "models.sparse_coding": "SparseCodingNetwork PredictiveSparseNetwork SparseDictionary PredictiveSparse",
    "models.text.convolved": "WordFilters ConvolvedWords ConvolveWords",
    "models.text.recurrent_reader": "WordsInOrder ReadWords",
    "models.text.readers": "AbstractTextReader AverageWords WordTable BagOfWords MeanOfWords",
    "models.gaussian_visible": "GaussianVisible PreciseUnits",
    "models.visible_units": "AbstractVisible BinaryVisible LabelledVisible TruncatedExponentialVisible",
    "models.trees.cells": "AbstractTreeCell SimpleTreeCell TreeGru TreeLstm",
    "models.trees.recursive": "Recursive RecursiveNetwork NodeWeights",
    "models.width_scaled_weights": "OutputScaled",
    "criteria.code_sparsity": "AbstractSparsity L1Codes StudentT SquaredToTarget KlToTarget BiasPenalty",
    "criteria.contraction": "Contraction HigherContraction",
    "criteria.contrastive_divergence": (
        "AbstractDivergence ContrastiveDivergence PersistentDivergence FastPersistentDivergence JointDivergence"
    ),
    "criteria.corruption": "AbstractCorruption Clean Masking GaussianNoise SaltAndPepper",
    "criteria.embedding.embed_neighbours": "EmbedNeighbours",
    "criteria.hidden_units": "HiddenUnits",
    "criteria.language.next_word": "AbstractNextWord NextWord",
    "criteria.language.sampled_next_word": "SampledNextWord",
    "criteria.linear_probe": "AbstractProbe Ridge Logistic Probed",
    "criteria.losses": "AbstractLoss SoftmaxLoss SigmoidLoss GaussianLoss",
    "criteria.several_losses": "SeveralLosses",
    "criteria.mean_field": "MeanFieldDivergence",
    "criteria.penalties": "AbstractRegulariser AbstractPenalty L2 L1",
    "criteria.reconstruction": (
        "AbstractReconstructionLoss CrossEntropy SquaredError SquaredSigmoid AbstractCodePenalty Reconstruction"
    ),
    "criteria.sparse.sampled_zeros": "AbstractZeros EveryZero SampledZeros",
    "criteria.semi_supervised": "SemiSupervised",
    "criteria.sparse_code_energy": "SparseCode",
    "criteria.supervised": "Supervised",
    "optimisers.adaptive.adam": "Adagrad RmsProp Adam AdamW",
    "optimisers.adaptive.eigenvalue_rate": "EigenRate",
    "optimisers.adaptive.gain_adaptation": "GlobalRate LocalRates HeldRatio",
    "optimisers.adaptive.reestimated_rate": "Subset Reestimated fixed_subset try_continuing",
    "optimisers.adaptive.sgd_qn": "SgdQn",
    "optimisers.adaptive.vsgd": "Vsgd VsgdFd",
    "optimisers.averaging.dual_averaging": "DualAveraging",
    "optimisers.averaging.parameter_average": "PolyakAverage MovingAverage TailAverage AveragedSgd",
    "optimisers.first_order.frozen": "Frozen",
    "optimisers.first_order.sag": "Sag",
    "optimisers.first_order.schedules": (
        "InverseTime SelfTimed BottouDecay WarmUp Cosine WarmUpStableDecay OneCycle RepeatedCosine FlatCosine"
    ),
    "optimisers.first_order.sgd": "Sgd HeavyBall Nesterov",
    "optimisers.second_order.conjugate_gradient": "ConjugateGradient",
    "optimisers.second_order.diagonal_newton": "DiagonalNewton",
    "optimisers.second_order.hessian_free": "HessianFree",
    "optimisers.second_order.kronecker": "Kronecker",
    "optimisers.second_order.lbfgs": "Lbfgs",
    "optimisers.second_order.natural_gradient": "DiagonalNatural Tonga",
    "optimisers.wrappers.clipped": "Clipped",
    "optimisers.wrappers.effective_decay": "EffectiveDecay",
    "optimisers.wrappers.lazy_rows": "LazyRows",
    "optimisers.wrappers.parameter_groups": "ParameterGroup Grouped",
    "optimisers.wrappers.proximal": "Proximal",
    "optimisers.wrappers.rates_by_kind": "RatesByKind",
    "optimisers.wrappers.recentred": "Recentred",
    "optimisers.wrappers.slower_below": "SlowerBelow",
    "optimisers.wrappers.two_stages": "TwoStages",
    "optimisers.wrappers.width_transfer": "WidthTransfer",
    "tracing.flow_monitor": "Looks FlowMonitor flow_of",
    "training.committee": "Committee",
    "training.cross_validation": "cross_validate",
    "training.history": "Monitor",
    "training.interval": "interval advance",
    "training.loop": "RunOptions",
    "training.model_files": "load_predictor save_predictor",
    "training.predictor": "Predictor outputs_of",
    "training.state": "Problem State init",
    "training.train": "train",
    "training.stopping": "AbstractGrowth Times Plus Patience Off",
    "training.update": "step gather_batch",
    "pretraining.belief_nets": "DeepBeliefNet deep_belief_net deep_boltzmann_layers deep_boltzmann_from",
    "pretraining.layer_recipes": "learner",
    "pretraining.transfer": "Transferred ScalerOf",
    "pretraining.stack": "Encoder Pretrained pretrain fit_pretrained with_output",
    "searching.comparison.challenge": "challenge compare",
    "searching.comparison.cheap_recipes": "shorten random_lower_layers",
    "searching.comparison.race": "race",
    "searching.comparison.seeds": "seed_distribution",
    "searching.layerwise.algorithm": "Configuration layerwise draw_settings",
    "searching.layerwise.record": "record_of",
    "searching.running.jobs": "Job",
    "searching.running.evaluation_data": "SelectedInputs EvaluationData",
    "searching.running.executors": "AbstractExecutor LocalExecutor WorkerProcesses",
    "searching.running.run_jobs": "run_jobs",
    "searching.running.ray_cluster": "RayCluster",
    "searching.search": "StudyOptions",
    "searching.storage.merge": "merge_studies",
    "searching.storage.budget": "Budget",
    "searching.storage.study_identity": "StudyIdentity",
    "searching.storage.study_store": "Store",
    "searching.running.study_clock": "SearchPlan",
    "searching.strategies.coarse_to_fine": "CoarseToFine AroundBest",
    "searching.strategies.contract": "AbstractStrategy History",
    "searching.strategies.coordinate_descent": "CoordinateDescent",
    "searching.strategies.grid": "Grid GridSequence",
    "searching.strategies.model_based": "ModelBased",
    "searching.strategies.optuna_sampler": "OptunaSampler",
    "searching.strategies.population_based_training": "PopulationBasedTraining evolve",
    "searching.strategies.random_search": "Random Sobol",
    "searching.strategies.recommended": "Recommended",
    "searching.strategies.successive_halving": "SuccessiveHalving",
    "checking.check": "check_problem check_recipe check_record",
    "checking.flow.coordinate_check": "coordinate_check",
    "checking.learning.bias_variance": "find_variance recipe_variance bias_variance",
    "checking.learning.largest_rate": "largest_rate",
    "checking.subject": "Subject",
    "evaluation.break_even": "BreakEvenSize break_even_size overtaking time_to",
    "evaluation.generative.denoising_score": "denoising_score tangents small_noise reconstruction_gap",
    "evaluation.generative.likelihood": "log_partition log_likelihood pseudo_likelihood annealed_log_partition",
    "evaluation.generative.parzen": "parzen",
    "evaluation.generative.sampling": (
        "gibbs gibbs_of_class tangent_walk walk_back rates_of rates_fpcd deep_gibbs DrawGaussian"
    ),
    "evaluation.metrics": "measure wilson",
    "evaluation.trials.expected_best": "expected_best",
    "evaluation.trials.knob_relevance": "relevance_of",
    "evaluation.trials.selection_bias": "weighted_estimate",
    "tracking.callbacks": "call_back",
    "tracking.mlflow_runs": "MLflow",
    "tracking.tensorboard_files": "TensorBoard",
    "tracking.tracker": "AbstractTracker describe_recipe",
    "tracking.wandb_runs": "WandB",
    "exporting.export": "export_model",
    "reporting.report": "report write_report read_record",
    "journeys.check": "check CheckResult",
    "journeys.comparison": "break_even",
    "journeys.fit": "fit",
    "journeys.model": "Model load",
    "journeys.search": "search",
    "language.embeddings": "WordVectors SimilarityScore AnalogyScore",
    "language.fitting": "fit_language language_recipe",
    "language.language_model": "LanguageModel load_language",
    "language.tokens": "Vocabulary read_tokens",
    "language.text_windows": "windows",
    "estimators.auto": "AutoClassifier AutoRegressor",
    "estimators.base": "TrainingRows",
    "estimators.classifier": "Classifier",
    "estimators.features": "AutoEncoder DenoisingAutoEncoder ContractiveAutoEncoder RBM SparseCoding",
    "estimators.regressor": "Regressor",
    "estimators.stacked": "StackedAutoEncoder StackedClassifier StackedRegressor",
    "testing.contracts": "check_part check_optimiser public_specs",
    "testing.gradients": "assert_gradients",
}

HOMES = {name: f"gradwise.{module}" for module, names in _NAMES.items() for name in names.split()}


def load_public(name: str) -> Any:
    """The public thing of this name; a KeyError where there is none."""
    return getattr(importlib.import_module(HOMES[name]), name)


def lazy_names(
    package: str, modules: tuple[str, ...] = ()
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """`__all__`, `__getattr__` and `__dir__` of a package: its public names and these modules, loaded on first use.

    A function with a module of its own name in the package (`fit` in `gradwise.training`) is left to the root: there
    the name means the module.
    """
    homes = {name: f"{module}." for name, module in HOMES.items() if module.startswith(f"{package}.")}
    names = [name for name, home in homes.items() if not home.startswith(f"{package}.{name}.")]
    known = sorted([*names, *modules])

    def find(name: str) -> Any:
        if name in modules:
            return importlib.import_module(f"{package}.{name}")
        if name in known:
            return load_public(name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return known, find, lambda: known
