// wiresum's data plane: a switch that sums the integers in packets as they pass, and forwards everything else.
//
// The rules of the slots are in slots.p4 and values.p4; the rest is what makes a switch of it. Compile with
// -DVALUES=32, 64 or 256 for the number of values per packet (see the Makefile). docs/p4.md walks through it.

#include <core.p4>
#include <v1model.p4>

#include "constants.p4"
#include "repeat.p4"
#include "headers.p4"
#include "parser.p4"
#include "checksums.p4"
#include "control_plane.p4"
#include "forwarding.p4"
#include "services.p4"
#include "checks.p4"
#include "values.p4"
#include "slots.p4"
#include "ingress.p4"
#include "egress.p4"
#include "deparser.p4"

V1Switch(WiresumParser(), VerifyChecksums(), WiresumIngress(), WiresumEgress(), ComputeChecksums(), WiresumDeparser()) main;
