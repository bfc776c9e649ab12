"""One answer as a page for people: tiles, charts with the words and the table under each, offline."""
