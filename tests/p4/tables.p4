// Every kind of table, profile and array that the control plane can write, around one byte of header.
#include <core.p4>
#include <v1model.p4>

header byte_h {
    bit<8> kind;
    bit<8> value;
    bit<16> note;
}

struct headers_t {
    byte_h h;
}

struct meta_t {
    bit<2> colour;
}

parser MyParser(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.h);
        transition accept;
    }
}

control MyVerify(inout headers_t hdr, inout meta_t meta) {
    apply { }
}

control MyIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    register<bit<16>>(4) last;
    counter(4, CounterType.packets_and_bytes) by_port;
    meter(2, MeterType.bytes) by_kind;
    direct_counter(CounterType.packets) hits;
    direct_meter<bit<2>>(MeterType.packets) pace;
    action_profile(4) plain;
    action_selector(HashAlgorithm.identity, 8, 16) choice;

    action forward(bit<9> port) {
        std.egress_spec = port;
    }
    action note(bit<16> text, bit<9> port) {
        hdr.h.note = text;
        std.egress_spec = port;
    }
    action drop() {
        mark_to_drop(std);
    }
    action paced(bit<9> port) {
        pace.read(meta.colour);
        std.egress_spec = port;
    }
    action multicast(bit<16> group) {
        std.mcast_grp = group;
    }
    action mirror() {
        clone(CloneType.I2E, 5);
        mark_to_drop(std);
    }

    table exact_t {
        key = { hdr.h.value : exact; }
        actions = { forward; note; drop; multicast; mirror; }
        default_action = drop();
        counters = hits;
        size = 4;
    }
    table lpm_t {
        key = { hdr.h.value : lpm; }
        actions = { forward; note; }
        default_action = forward(7);
    }
    table ternary_t {
        key = { hdr.h.value : ternary; hdr.h.note : optional @name("note"); }
        actions = { forward; note; drop; }
        const default_action = drop();
    }
    table range_t {
        key = { hdr.h.value : range; }
        actions = { paced; drop; }
        const default_action = drop();
        meters = pace;
    }
    table const_t {
        key = { hdr.h.value : ternary; }
        actions = { forward; drop; }
        default_action = drop();
        const entries = {
            0x10 &&& 0xf0 : forward(1);
            0x01 &&& 0x0f : forward(2);
            _ : forward(3);
        }
    }
    table member_t {
        key = { hdr.h.value : exact; }
        actions = { forward; note; NoAction; }
        implementation = plain;
    }
    table group_t {
        key = { hdr.h.value : exact; hdr.h.note : selector; }
        actions = { forward; drop; NoAction; }
        implementation = choice;
    }

    apply {
        last.write((bit<32>) std.ingress_port & 3, hdr.h.note);
        by_port.count((bit<32>) std.ingress_port & 3);
        by_kind.execute_meter((bit<32>) hdr.h.kind & 1, meta.colour);
        if (hdr.h.kind == 0) {
            exact_t.apply();
        } else if (hdr.h.kind == 1) {
            lpm_t.apply();
        } else if (hdr.h.kind == 2) {
            ternary_t.apply();
        } else if (hdr.h.kind == 3) {
            range_t.apply();
        } else if (hdr.h.kind == 4) {
            const_t.apply();
        } else if (hdr.h.kind == 5) {
            member_t.apply();
        } else {
            group_t.apply();
        }
        if (hdr.h.kind == 0xff) {
            hdr.h.note = (bit<16>) meta.colour;
            std.egress_spec = 1;
        }
    }
}

control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        if (std.egress_rid != 0) {
            hdr.h.note = std.egress_rid;
        }
    }
}

control MyCompute(inout headers_t hdr, inout meta_t meta) {
    apply { }
}

control MyDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.h);
    }
}

V1Switch(MyParser(), MyVerify(), MyIngress(), MyEgress(), MyCompute(), MyDeparser()) main;
