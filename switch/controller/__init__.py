"""Drives a P4Runtime target that runs the wiresum P4 program, so that the control service can use it as a data plane.

`p4switch.P4Switch` is the data plane; `server.ControlledSwitch` adds the control service. They need the extra "p4".
"""
