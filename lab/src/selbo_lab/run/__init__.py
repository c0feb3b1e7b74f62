"""One run of a study: the data, the network, its training and its evaluation, as one JSON file."""
