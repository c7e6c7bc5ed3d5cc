"""The host agent: quantizer, worker state machine, UDP endpoint, communicator."""
