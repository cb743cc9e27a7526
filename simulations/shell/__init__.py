"""What all commands share: their output, files of overrides, completion."""
