"""Files that users bring: model configurations, clusters, network logs, launch arguments."""
