// What controls do with headers: stacks that move, indexes known only at run time, unions, copies, comparisons.
#include <core.p4>
#include <v1model.p4>

header command_t {
    bit<8> command;
    bit<8> index;
    bit<8> value;
}

header item_t {
    bit<8> data;
}

header small_t {
    bit<8> data;
}

header_union either_t {
    item_t item;
    small_t small;
}

header answer_t {
    bit<8> value;
    bit<8> more;
}

header text_t {
    varbit<64> text;
}

struct headers_t {
    command_t command;
    answer_t answer;
    item_t[4] items;
    item_t[4] others;
    either_t either;
    item_t first;
    item_t second;
    text_t text;
    text_t copy;
}

struct metadata_t {}

parser TestParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.command);
        packet.extract(hdr.items.next);
        packet.extract(hdr.items.next);
        packet.extract(hdr.items.next);
        transition select(hdr.command.command) {
            9: text;
            default: accept;
        }
    }

    state text {
        packet.extract(hdr.text, (bit<32>)hdr.command.value << 3);
        transition accept;
    }
}

control NoVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control TestIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        bit<8> command = hdr.command.command;
        bit<8> index = hdr.command.index;
        standard_metadata.egress_spec = 2;
        if (command == 1) {
            hdr.items.push_front(1);
            hdr.items[0].setValid();
            hdr.items[0].data = hdr.command.value;
        } else if (command == 2) {
            hdr.items.pop_front(2);
        } else if (command == 3) {
            hdr.answer.setValid();
            hdr.answer.value = hdr.items[index].data;
        } else if (command == 4) {
            hdr.items[index].data = hdr.command.value;
        } else if (command == 5) {
            hdr.others = hdr.items;
            hdr.items[0].setInvalid();
        } else if (command == 6) {
            hdr.either.item.setValid();
            hdr.either.item.data = 1;
            hdr.either.small.setValid();
            hdr.either.small.data = 2;
        } else if (command == 7) {
            hdr.first = hdr.items[0];
            hdr.second = hdr.items[3];
            hdr.answer.setValid();
            hdr.answer.value = hdr.first == hdr.items[0] ? 8w1 : 0;
            hdr.answer.more = hdr.first == hdr.items[1] ? 8w1 : 0;
        } else if (command == 8) {
            hdr.answer.setValid();
            hdr.answer.value = 5;
            hdr.answer.setInvalid();
            hdr.answer.setValid(); // all of it is 0 again
        } else if (command == 9) {
            hdr.copy = hdr.text;
        }
    }
}

control TestEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {}
}

control TestDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.answer);
        packet.emit(hdr.items);
        packet.emit(hdr.others);
        packet.emit(hdr.either);
        packet.emit(hdr.first);
        packet.emit(hdr.second);
        packet.emit(hdr.text);
        packet.emit(hdr.copy);
    }
}

V1Switch(TestParser(), NoVerify(), TestIngress(), TestEgress(), NoVerify(), TestDeparser()) main;
