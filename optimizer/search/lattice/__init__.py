"""Every plan of a job, priced, and the lattice as a CP-SAT program."""
