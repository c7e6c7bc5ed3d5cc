"""Trees of switches: how a leaf stands in for its rack at its parent.

To the workers below it a leaf is a switch as any other, and to its parent it is a rank as any other. Its control
service, `relay`, decides about no job: for each rank that joins below, it joins the parent, says where the leaf will
send from (`parent`), and answers when the parent has answered and all ranks below are there (`relay_jobs`, on the state
in `relay_state`). What the parent's watch tells is handed down, and a rank that goes below is given up above.

A parent knows its leaves by the streams that they keep open (`children`), and asks over these why a job does not move
on; `stalls` puts the answers together. All else about jobs, `switch.jobs` decides at the root.

Packets need none of this: that a leaf sends its sums up, and takes what comes down, is in the slot rules of the data
plane, `switch.slot_kernels` or p4/.
"""
