"""The demonstration, `selbo demo`: six ways to train a classifier of noisy digits, compared."""
