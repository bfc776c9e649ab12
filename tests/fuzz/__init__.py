"""Every door of the program, tried with inputs of its own grammar that are damaged, hostile or out of range."""
