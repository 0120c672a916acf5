"""From records to figures: each function picks the data, draws it and says what is seen."""
