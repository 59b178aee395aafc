"""Services that all nodes share: host, topics, frames, and monitors of publishers and network."""
