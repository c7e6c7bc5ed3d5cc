// What becomes of a packet: multicast, clones, resubmission, recirculation, drops; egress writes down what it sees.
#include <core.p4>
#include <v1model.p4>

header command_t {
    bit<8> command;
    bit<8> passes;
}

header seen_t {
    bit<8> kind; // instance type
    bit<16> rid;
    bit<16> port;
    bit<8> kept;
    bit<8> lost;
    bit<16> size;
}

struct headers_t {
    seen_t seen;
    command_t command;
}

struct metadata_t {
    @field_list(1, 2, 3, 4)
    bit<8> kept;
    bit<8> lost;
}

parser TestParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        transition select(standard_metadata.instance_type) {
            4: again;
            default: command;
        }
    }

    state again { // recirculated with what egress put in front
        packet.extract(hdr.seen);
        transition command;
    }

    state command {
        packet.extract(hdr.command);
        transition accept;
    }
}

control NoVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control TestIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 2;
        hdr.seen.setInvalid();
        if (hdr.command.command == 1) {
            standard_metadata.mcast_grp = 7;
        } else if (hdr.command.command == 2) {
            mark_to_drop(standard_metadata);
        } else if (hdr.command.command == 3) {
            meta.kept = 33;
            meta.lost = 44;
            hdr.command.passes = 9;
            clone_preserving_field_list(CloneType.I2E, 5, 1);
        } else if (hdr.command.command == 4 && meta.kept < 3) {
            meta.kept = meta.kept + 1;
            meta.lost = 44;
            resubmit_preserving_field_list(2);
        } else if (hdr.command.command == 5) {
            hdr.command.passes = hdr.command.passes + 1;
        } else if (hdr.command.command == 6) {
            meta.kept = 11;
            meta.lost = 44;
        } else if (hdr.command.command == 8) {
            resubmit_preserving_field_list(2); // for ever
        }
    }
}

control TestEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        hdr.seen.setValid();
        hdr.seen.kind = (bit<8>)standard_metadata.instance_type;
        hdr.seen.rid = standard_metadata.egress_rid;
        hdr.seen.port = (bit<16>)standard_metadata.egress_port;
        hdr.seen.kept = meta.kept;
        hdr.seen.lost = meta.lost;
        hdr.seen.size = (bit<16>)standard_metadata.packet_length;
        if (hdr.command.command == 5 && hdr.command.passes < 3) {
            meta.kept = 55;
            recirculate_preserving_field_list(3);
        } else if (hdr.command.command == 6 && standard_metadata.instance_type == 0) {
            meta.kept = 66;
            clone_preserving_field_list(CloneType.E2E, 6, 4);
        } else if (hdr.command.command == 7) {
            mark_to_drop(standard_metadata);
        }
    }
}

control TestDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.seen);
        packet.emit(hdr.command);
    }
}

V1Switch(TestParser(), NoVerify(), TestIngress(), TestEgress(), NoVerify(), TestDeparser()) main;
