"""Commands of selbo-lab, registered in the entry-point group `selbo.commands`."""
