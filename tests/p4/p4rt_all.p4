// Every kind of object that P4Runtime can name, around a small header behind Ethernet.
#include <core.p4>
#include <v1model.p4>

#define CPU_PORT 255

@controller_header("packet_in")
header packet_in_t {
    bit<9> ingress_port;
    bit<3> reason;
    bit<4> rest;
}

@controller_header("packet_out")
header packet_out_t {
    bit<9> egress_port;
    bit<7> rest;
}

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

header probe_t {
    bit<8> op;
    bit<8> key;
    bit<16> value;
}

header empty_probe_t {
    bit<8> seen;
}

struct headers_t {
    packet_in_t packet_in;
    packet_out_t packet_out;
    ethernet_t ethernet;
    probe_t probe;
    empty_probe_t special;
}

struct learned_t {
    bit<48> src;
    bit<9> port;
}

@p4runtime_translation("wiresum/label", 16)
type bit<8> label_t;

@p4runtime_translation("wiresum/name", string)
type bit<8> name_t;

struct meta_t {
    bit<2> colour;
    label_t label;
    name_t name;
}

parser MyParser(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    value_set<bit<16>>(4) special_types;

    state start {
        transition select(std.ingress_port) {
            CPU_PORT : parse_packet_out;
            default : parse_ethernet;
        }
    }
    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_ethernet;
    }
    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            0x88b5 : parse_probe;
            special_types : parse_special;
            default : accept;
        }
    }
    state parse_probe {
        packet.extract(hdr.probe);
        transition accept;
    }
    state parse_special {
        packet.extract(hdr.special);
        transition accept;
    }
}

control MyVerify(inout headers_t hdr, inout meta_t meta) {
    apply { }
}

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    register<bit<16>>(8) last;
    register<int<12>>(4) signs;
    counter(8, CounterType.packets_and_bytes) by_port;
    meter(4, MeterType.packets) by_op;
    direct_counter(CounterType.packets_and_bytes) hits;
    direct_meter<bit<2>>(MeterType.packets) pace;
    action_profile(8) plain;
    action_selector(HashAlgorithm.crc16, 16, 16) choice;

    action drop() {
        mark_to_drop(std);
    }
    action forward(bit<9> port) {
        std.egress_spec = port;
    }
    action mark(bit<16> value, bit<9> port) {
        hdr.probe.value = value;
        std.egress_spec = port;
    }
    action paced(bit<9> port) {
        pace.read(meta.colour);
        hdr.probe.value = (bit<16>) meta.colour;
        std.egress_spec = port;
    }
    action multicast(bit<16> group) {
        std.mcast_grp = group;
    }
    action mirror(bit<9> port) {
        clone(CloneType.I2E, 7);
        std.egress_spec = port;
    }
    action to_controller() {
        hdr.packet_in.setValid();
        hdr.packet_in.ingress_port = std.ingress_port;
        hdr.packet_in.reason = 5;
        hdr.packet_in.rest = 0;
        std.egress_spec = CPU_PORT;
    }
    action learn(bit<9> port) {
        digest<learned_t>(1, { hdr.ethernet.src, std.ingress_port });
        std.egress_spec = port;
    }
    action use_label(label_t label) {
        meta.label = label;
        hdr.probe.value = (bit<16>) (bit<8>) label;
        std.egress_spec = 1;
    }

    action nothing() { }

    table exact_t {
        key = { hdr.probe.key : exact; hdr.ethernet.src : exact @name("src"); }
        actions = { forward; mark; multicast; mirror; to_controller; learn; use_label; @defaultonly drop; @tableonly nothing; }
        default_action = drop();
        counters = hits;
        size = 4;
    }
    table lpm_t {
        key = { hdr.ethernet.dst : lpm; }
        actions = { forward; drop; }
        default_action = drop();
        size = 64;
        support_timeout = true;
    }
    table ternary_t {
        key = { hdr.probe.value : ternary; hdr.probe.key : optional @name("key"); hdr.ethernet.dst : lpm @name("dst"); }
        actions = { forward; mark; drop; }
        const default_action = drop();
    }
    table range_t {
        key = { hdr.probe.value : range; hdr.probe.key : exact; }
        actions = { paced; drop; }
        default_action = drop();
        meters = pace;
    }
    table const_t {
        key = { hdr.probe.value : ternary; }
        actions = { forward; drop; }
        const entries = {
            0x10 &&& 0xf0 : forward(1);
            _ : forward(2);
        }
    }
    table plain_t {
        key = { hdr.probe.key : exact; }
        actions = { forward; mark; NoAction; }
        implementation = plain;
    }
    table choice_t {
        key = { hdr.probe.key : exact; hdr.probe.value : selector; }
        actions = { forward; mark; NoAction; }
        implementation = choice;
    }
    table label_t_ {
        key = { meta.label : exact; meta.name : exact; }
        actions = { forward; NoAction; }
    }
    table flood {
        actions = { multicast; drop; }
        default_action = drop();
    }

    apply {
        if (hdr.packet_out.isValid()) {
            std.egress_spec = hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
        } else if (hdr.special.isValid()) {
            hdr.special.seen = 0xaa;
            std.egress_spec = 1;
        } else if (!hdr.probe.isValid()) {
            flood.apply();
        } else {
            by_port.count((bit<32>) std.ingress_port & 7);
            by_op.execute_meter((bit<32>) hdr.probe.op & 3, meta.colour);
            bit<16> before;
            last.read(before, (bit<32>) hdr.probe.key & 7);
            last.write((bit<32>) hdr.probe.key & 7, hdr.probe.value);
            int<12> sign;
            signs.read(sign, (bit<32>) hdr.probe.key & 3);
            signs.write((bit<32>) hdr.probe.key & 3, sign - 1);
            if (hdr.probe.op == 0) {
                exact_t.apply();
            } else if (hdr.probe.op == 1) {
                lpm_t.apply();
            } else if (hdr.probe.op == 2) {
                ternary_t.apply();
            } else if (hdr.probe.op == 3) {
                range_t.apply();
            } else if (hdr.probe.op == 4) {
                const_t.apply();
            } else if (hdr.probe.op == 5) {
                plain_t.apply();
            } else if (hdr.probe.op == 6) {
                choice_t.apply();
            } else if (hdr.probe.op == 7) {
                label_t_.apply();
            } else {
                hdr.probe.value = before;
                std.egress_spec = std.ingress_port;
            }
        }
    }
}

control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        if (std.egress_rid != 0 && hdr.probe.isValid()) {
            hdr.probe.value = std.egress_rid;
        }
    }
}

control MyCompute(inout headers_t hdr, inout meta_t meta) {
    apply { }
}

control MyDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(MyParser(), MyVerify(), MyIngress(), MyEgress(), MyCompute(), MyDeparser()) main;
