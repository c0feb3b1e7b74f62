"""Schedules the missing runs of a study over processes."""
