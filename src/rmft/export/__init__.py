"""`rmft export` and `rmft push`: trained language models and their trajectories, for other people's tools."""

DATA = "data/train.parquet"  # the conversations of an exported data set
ADAPTER_GGUF = "adapter.gguf"  # an adapter that is exported for llama.cpp
