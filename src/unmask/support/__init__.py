"""What every other package uses: errors, settings, files that survive crashes, what the machine can do."""

__version__ = "0.1.0"
"""The version of the package; the build reads it from here."""
