"""What every other package uses: errors, settings, files that survive crashes, what the machine can do."""
