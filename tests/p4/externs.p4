// Registers, counters, hashes, checksums, random, digest, log, assert, truncate, exit: one command each.
#include <core.p4>
#include <v1model.p4>

header command_t {
    bit<8> command;
    bit<8> index;
    bit<32> value;
    bit<32> result;
    bit<16> checksum;
}

header tail_t {
    bit<16> words;
    bit<16> sum; // over this header and the payload
}

struct headers_t {
    command_t command;
    tail_t tail;
}

struct note_t {
    bit<8> index;
    bit<32> value;
}

struct metadata_t {
    bit<1> wrong;
}

parser TestParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.command);
        transition select(hdr.command.command) {
            20: tail;
            default: accept;
        }
    }

    state tail {
        packet.extract(hdr.tail);
        transition accept;
    }
}

control TestVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.command.command == 21, {hdr.command.command, hdr.command.index, hdr.command.value},
            hdr.command.checksum, HashAlgorithm.csum16);
    }
}

control TestIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    register<bit<32>>(4) cells;
    register<int<8>>(2) signed_cells;
    counter(4, CounterType.packets_and_bytes) counted;
    bit<32> old;
    int<8> small;
    bit<16> half;

    action leave() {
        exit;
    }

    action jumps() {
        if (hdr.command.index == 0) {
            hdr.command.result = 1;
            return;
        } else if (hdr.command.index == 1) {
            hdr.command.result = 2;
            if (hdr.command.value > 5) {
                hdr.command.result = 3;
                return;
            }
            hdr.command.value = 0;
        }
        hdr.command.result = hdr.command.result + 100;
    }

    apply {
        bit<8> command = hdr.command.command;
        standard_metadata.egress_spec = 2;
        old = 77;
        if (command == 1) {
            cells.read(old, (bit<32>)hdr.command.index);
            hdr.command.result = old;
            cells.write((bit<32>)hdr.command.index, old + hdr.command.value);
            counted.count((bit<32>)hdr.command.index);
        } else if (command == 2) {
            signed_cells.write(0, (int<8>)(bit<8>)hdr.command.value);
            signed_cells.read(small, 0);
            hdr.command.result = small < 0 ? 32w1 : 0;
        } else if (command == 3) {
            hash(hdr.command.result, HashAlgorithm.crc32, 32w0, {hdr.command.value, hdr.command.index}, 64w0x100000000);
        } else if (command == 4) {
            hash(half, HashAlgorithm.crc16, 16w0, {hdr.command.value, hdr.command.index}, 32w0x10000);
            hdr.command.result = (bit<32>)half;
        } else if (command == 5) {
            hash(half, HashAlgorithm.xor16, 16w10, {hdr.command.value, hdr.command.index}, 32w100);
            hdr.command.result = (bit<32>)half;
        } else if (command == 6) {
            hash(half, HashAlgorithm.csum16, 16w0, {hdr.command.value, hdr.command.index}, 32w0x10000);
            hdr.command.result = (bit<32>)half;
        } else if (command == 7) {
            hash(hdr.command.result, HashAlgorithm.identity, 32w0, {hdr.command.value}, 64w0x100000000);
        } else if (command == 8) {
            random(hdr.command.result, 32w10, 32w12);
        } else if (command == 9) {
            digest<note_t>(1, {hdr.command.index, hdr.command.value});
        } else if (command == 10) {
            log_msg("value {} at {}", {hdr.command.value, hdr.command.index});
        } else if (command == 11) {
            assert(hdr.command.value < 10);
        } else if (command == 12) {
            truncate(10);
        } else if (command == 13) {
            leave();
        } else if (command == 14) {
            jumps();
        } else if (command == 15) {
            hdr.command.result = (bit<32>)standard_metadata.packet_length;
        } else if (command == 16) {
            hdr.command.result = (bit<32>)standard_metadata.ingress_global_timestamp;
        } else if (command == 21) {
            hdr.command.result = (bit<32>)standard_metadata.checksum_error;
        }
        if (command == 13) {
            hdr.command.result = 99; // not reached
        }
    }
}

control TestEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {}
}

control TestCompute(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum_with_payload(hdr.tail.isValid(), {hdr.tail.words}, hdr.tail.sum, HashAlgorithm.csum16);
    }
}

control TestDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(TestParser(), TestVerify(), TestIngress(), TestEgress(), TestCompute(), TestDeparser()) main;
