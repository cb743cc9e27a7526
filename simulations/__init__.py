"""The commands: to run, compare, reproduce, look at, serve and deploy."""
