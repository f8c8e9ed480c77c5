"""Conversion of common file formats to data sets of records, and back: for datasets/*.py and `records export`."""
