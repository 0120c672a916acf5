"""The words of gradwise: knobs, recipes, data sets, contracts, records. Imports nothing else of ours."""
