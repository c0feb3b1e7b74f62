"""Commands of the laboratory, which `selbo` finds by the entry-point group `selbo.commands`."""
