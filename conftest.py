"""For every test: properties are judged by what they find, not by how fast a busy machine draws examples."""

from hypothesis import HealthCheck, settings

settings.register_profile("pdd", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pdd")
