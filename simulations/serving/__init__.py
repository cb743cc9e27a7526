"""Which cluster's model an unseen client is served."""
