"""What holds for every test."""

from hypothesis import settings

# A slow or busy machine must not fail a test: nothing here asserts a time.
settings.register_profile("mpibow", deadline=None, print_blob=True)
settings.load_profile("mpibow")
