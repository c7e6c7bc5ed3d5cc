"""A programmable switch: runs P4 programs that p4c compiled for BMv2. It knows neither sockets nor P4Runtime."""
