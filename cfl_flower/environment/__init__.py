"""What a process finds around it: its code, its files, its machine, parts of users."""
