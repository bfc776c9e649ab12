"""How far predictions may be off: errors of runs that are alike in software, hardware, model, plan and size are too."""
