"""The elicitation page: a local web page that turns what an expert knows into a belief, and shows what it means."""
