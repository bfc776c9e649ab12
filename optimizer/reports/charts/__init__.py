"""Charts drawn as HTML and SVG, without a program."""
