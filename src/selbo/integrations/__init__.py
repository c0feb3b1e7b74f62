"""The summary term inside other people's training loops and logs; one module for each, imported where it is used."""
