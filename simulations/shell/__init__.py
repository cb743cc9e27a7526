"""What all commands share: their output, and files of overrides."""
