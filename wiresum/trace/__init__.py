"""What captures of a run tell: rounds, losses, round trips, stragglers, stalls, wrong sums. Nothing here prints."""
