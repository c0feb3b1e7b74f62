"""What a study compares: its methods, tracks and cases, read from the TOML files in `lab/studies`."""
