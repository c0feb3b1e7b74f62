"""The demo, `selbo demo`: compares six ways to train a classifier of noisy digits."""
