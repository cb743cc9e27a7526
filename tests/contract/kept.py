"""What odd networks keep in a module of its own."""

CALLS: list[int] = []


def count() -> int:
    """Return how often it was called."""
    CALLS.append(1)
    return len(CALLS)
