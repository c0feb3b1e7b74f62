"""Tables, figures and pages of a study, from its results alone."""
