"""Pictures and reports; reads results and summaries, never trains."""
