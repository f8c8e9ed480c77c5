"""Optimisers: the local steps that `update` names, one file each, their settings, and schedules of the rate."""
