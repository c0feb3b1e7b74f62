"""The demo, `selbo demo`: four stories about what stating a belief changes."""
