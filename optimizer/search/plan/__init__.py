"""From a job to its answer: the best plan with its knobs, proof and runners-up."""
