"""From the files that people have to data sets of records, and back: what datasets/*.py and `records export` use."""
