"""Pipeline schedules, the layers of each stage, closed forms of a step, and a simulator that checks them."""
