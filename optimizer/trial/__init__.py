"""A few short runs that settle what no model can: which plans to try, how to run them, what their logs decide."""
