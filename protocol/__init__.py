"""What workers and the switch agree on: layout of packets, constants, compiled kernels, seeded faults."""
