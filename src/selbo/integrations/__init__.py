"""Integrations of the summary term with other training loops and loggers; each module is imported on use."""
