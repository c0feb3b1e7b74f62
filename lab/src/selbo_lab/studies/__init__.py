"""Definitions of studies: methods, tracks and cases, read from the TOML files in `lab/studies`."""
