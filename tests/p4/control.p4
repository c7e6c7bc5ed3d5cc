// Ways through a control: hit and miss, action_run, return, exit, tables without keys, a loop in an action.
#include <core.p4>
#include <v1model.p4>

header step_t {
    bit<8> command;
    bit<8> key;
    bit<8> count;
    bit<32> way; // a digit for each place that was passed
}

struct headers_t {
    step_t step;
}

struct metadata_t {}

parser TestParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.step);
        transition accept;
    }
}

control NoChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control TestIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action pass(bit<4> digit) {
        hdr.step.way = hdr.step.way << 4 | (bit<32>)digit;
    }

    action leave() {
        exit;
    }

    action add_up() {
        bit<8> sum = 0;
        for (bit<8> i = 0; i < hdr.step.count; i = i + 1) {
            if (i == 3) {
                continue;
            }
            if (i == 10) {
                break;
            }
            sum = sum + i;
        }
        hdr.step.way = (bit<32>)sum;
    }

    table first {
        key = {
            hdr.step.key: exact;
        }
        actions = {
            pass;
            leave;
            NoAction;
        }
        const entries = {
            1: pass(1);
            2: leave();
        }
        default_action = NoAction();
    }

    table second {
        key = {
            hdr.step.key: exact;
        }
        actions = {
            pass;
            leave;
            NoAction;
        }
        const entries = {
            1: pass(2);
            3: pass(3);
        }
        const default_action = NoAction();
    }

    table chosen {
        key = {
            hdr.step.key: exact;
        }
        actions = {
            pass;
            leave;
            NoAction;
        }
        const entries = {
            1: pass(1);
            2: leave();
        }
        const default_action = NoAction();
    }

    table last {
        key = {
            hdr.step.key: exact;
        }
        actions = {
            pass;
            NoAction;
        }
        const entries = {
            3: pass(3);
        }
        const default_action = NoAction();
    }

    table keyless {
        actions = {
            pass;
            NoAction;
        }
        default_action = pass(5);
    }

    apply {
        standard_metadata.egress_spec = 2;
        if (hdr.step.command == 1) {
            if (first.apply().hit) {
                pass(7);
            } else {
                pass(8);
                if (!second.apply().hit) {
                    pass(9);
                    return;
                }
            }
            pass(10);
        } else if (hdr.step.command == 2) {
            switch (chosen.apply().action_run) {
                pass: { pass(7); }
                leave: { pass(8); }
                default: { pass(9); last.apply(); }
            }
        } else if (hdr.step.command == 3) {
            keyless.apply();
        } else if (hdr.step.command == 4) {
            add_up();
        }
        pass(15);
    }
}

control TestEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        if (standard_metadata.egress_port == 3) {
            mark_to_drop(standard_metadata);
            exit;
        }
    }
}

control TestDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.step);
    }
}

V1Switch(TestParser(), NoChecksum(), TestIngress(), TestEgress(), NoChecksum(), TestDeparser()) main;
