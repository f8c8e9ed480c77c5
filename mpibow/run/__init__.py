"""One run on one rank, from its opening to its last checkpoint; train.py calls it, a line for each step.

opening     opening (the parts), start, stored, timelines, alike, describe (train --check)
iteration   session (what train.py calls), duties (what is due after an iteration), steering, resets, signals
changing    changing (learners, rule, trained weights), coordinator, tuning
telling     reporter, results, output, callbacks, loggers, chrome, series
judging     judge, evaluate, average, stored_net
keeping     saving, checkpoint, state, header, directory, lock
"""
