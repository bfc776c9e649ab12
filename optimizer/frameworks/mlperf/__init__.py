"""MLPerf: its log lines."""
