"""Neural language models: networks that read words and predict the next one."""
