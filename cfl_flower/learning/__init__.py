"""Training, testing, aggregating models, and selecting who trains.

Here: functions on models, tensors and arrays.
Not here: clients, clusters of them, or messages.
"""
