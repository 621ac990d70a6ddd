@rem Completion behind `kubectl quorum` on Windows: kubectl runs this program with the words so far.
@kubectl-quorum __complete -- %*
