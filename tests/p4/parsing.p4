// All that a parser does: stacks, unions, varbit, lookahead, advance, verify, value sets, masks, errors, and a cycle.
#include <core.p4>
#include <v1model.p4>

error { NotForUs }

header kind_t {
    bit<8> kind;
}

header label_t {
    bit<20> label;
    bit<3> exp;
    bit<1> bos;
    bit<8> ttl;
}

header short_t {
    bit<8> tag;
    bit<8> data;
}

header long_t {
    bit<8> tag;
    bit<24> data;
}

header_union choice_t {
    short_t short;
    long_t long;
}

header options_t {
    bit<4> count;
    bit<4> flags;
    varbit<96> data; // count words of 16 bits
    bit<8> after;
}

header report_t {
    bit<8> parser_error;
    bit<8> labels;
    bit<8> last_label;
    bit<8> flags; // short, long, options, a value of the set
    bit<16> peeked;
}

struct headers_t {
    report_t report;
    kind_t kind;
    label_t[3] labels;
    choice_t choice;
    options_t options;
}

struct metadata_t {
    bit<16> peeked;
    bit<8> last_label;
    bit<1> in_set;
}

parser TestParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    value_set<bit<8>>(4) known;

    state start {
        packet.extract(hdr.kind);
        transition select(hdr.kind.kind) {
            1: labels;
            2: choose;
            3: options;
            4: peek;
            5: skip;
            6: check;
            known: in_set;
            0x80 &&& 0xc0: labels;
            default: accept;
        }
    }

    state labels {
        packet.extract(hdr.labels.next);
        meta.last_label = (bit<8>)hdr.labels.last.label;
        transition select(hdr.labels.last.bos) {
            0: labels;
            1: accept;
        }
    }

    state choose {
        transition select(packet.lookahead<bit<8>>()) {
            7: short_one;
            8: long_one;
        }
    }

    state short_one {
        packet.extract(hdr.choice.short);
        transition accept;
    }

    state long_one {
        packet.extract(hdr.choice.long);
        transition accept;
    }

    state options {
        bit<4> words = packet.lookahead<bit<4>>();
        packet.extract(hdr.options, ((bit<32>)words) << 4);
        transition accept;
    }

    state peek {
        meta.peeked = packet.lookahead<bit<16>>();
        transition accept;
    }

    state skip {
        bit<8> bytes = packet.lookahead<bit<8>>();
        packet.advance((bit<32>)bytes << 3);
        transition peek;
    }

    state check {
        bit<8> value = packet.lookahead<bit<8>>();
        verify(value < 10, error.NotForUs);
        transition accept;
    }

    state in_set {
        meta.in_set = 1;
        transition accept;
    }
}

control NoVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control TestIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    bit<8> number;

    apply {
        hdr.report.setValid();
        hdr.report.labels = (hdr.labels[0].isValid() ? 8w1 : 0) + (hdr.labels[1].isValid() ? 8w1 : 0)
            + (hdr.labels[2].isValid() ? 8w1 : 0);
        hdr.report.last_label = meta.last_label;
        hdr.report.peeked = meta.peeked;
        hdr.report.flags = (hdr.choice.short.isValid() ? 8w1 : 0) | (hdr.choice.long.isValid() ? 8w2 : 0)
            | (hdr.options.isValid() ? 8w4 : 0) | (meta.in_set == 1 ? 8w8 : 0);
        if (standard_metadata.parser_error == error.NoError) {
            number = 0;
        } else if (standard_metadata.parser_error == error.PacketTooShort) {
            number = 1;
        } else if (standard_metadata.parser_error == error.NoMatch) {
            number = 2;
        } else if (standard_metadata.parser_error == error.StackOutOfBounds) {
            number = 3;
        } else if (standard_metadata.parser_error == error.HeaderTooShort) {
            number = 4;
        } else if (standard_metadata.parser_error == error.NotForUs) {
            number = 5;
        } else {
            number = 6;
        }
        hdr.report.parser_error = number;
        standard_metadata.egress_spec = 2;
    }
}

control TestEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {}
}

control TestDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(TestParser(), NoVerify(), TestIngress(), TestEgress(), NoVerify(), TestDeparser()) main;
