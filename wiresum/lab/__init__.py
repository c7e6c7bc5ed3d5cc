"""Networks of hosts and wiresum switches in Linux namespaces, by way of Mininet.

`topology` says what a network is, as data; `nodes` has the switches, hosts and links as subclasses of Mininet's, for
anybody's own scripts; `network` builds the one out of the other. Only `nodes` and what builds on it need Mininet.
"""
