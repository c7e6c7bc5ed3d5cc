"""A P4Runtime server in front of the programmable switch. Only `stubs` imports gRPC; everything else is logic."""
