"""Settings that all tests share."""

from hypothesis import settings

# The first call of a kernel compiles it, so the time of one example says nothing.
settings.register_profile("wiresum", settings(), deadline=None)
settings.load_profile("wiresum")
