"""Tasks on their way to clients, and results on their way back.

Here: nodes and which client each hosts, messages, partial sums, the checks on replies.
Not here: what a task means (`strategies`), or how a client does it (`client`).
"""
