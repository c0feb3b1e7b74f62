"""The command `selbo`: one file a command."""
