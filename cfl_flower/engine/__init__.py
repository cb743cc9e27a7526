"""What carries out a method: rounds, uploads, privacy and secure sums."""
