// Every operator at several widths, signed and not: the test computes the same in Python.
#include <core.p4>
#include <v1model.p4>

header operands_t {
    bit<8> a8;
    bit<8> b8;
    int<8> s8;
    int<8> t8;
    bit<72> a72;
    bit<72> b72;
    int<33> s33;
    bit<7> amount;
    int<40> s40;
    bit<128> a128;
    bit<128> b128;
}

header results_t {
    bit<8> add8;
    bit<8> sub8;
    bit<8> mul8;
    bit<8> and8;
    bit<8> or8;
    bit<8> xor8;
    bit<8> not8;
    bit<8> neg8;
    bit<8> left8;
    bit<8> right8;
    bit<8> add_sat8;
    bit<8> sub_sat8;
    int<8> sadd8;
    int<8> ssub8;
    int<8> smul8;
    int<8> sright8;
    int<8> sneg8;
    int<8> sadd_sat8;
    int<8> ssub_sat8;
    int<8> from_bit8;
    bit<8> from_int8;
    bit<72> add72;
    bit<72> mul72;
    bit<72> left72;
    bit<72> right72;
    int<33> sright33;
    bit<7> pad;
    bit<16> joined;
    bit<4> low_slice;
    bit<4> high_slice;
    bit<72> extended;
    int<40> sign_extended;
    bit<128> add128;
    bit<128> xor128;
    bit<8> compares; // a<b a<=b a>b a>=b s<t s<=t a==b s!=t
    bit<8> chosen;
}

struct headers_t {
    operands_t operands;
    results_t results;
}

struct metadata_t {}

parser TestParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.operands);
        transition accept;
    }
}

control NoVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control TestIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        hdr.results.setValid();
        bit<8> a = hdr.operands.a8;
        bit<8> b = hdr.operands.b8;
        int<8> s = hdr.operands.s8;
        int<8> t = hdr.operands.t8;
        bit<7> n = hdr.operands.amount;
        hdr.results.add8 = a + b;
        hdr.results.sub8 = a - b;
        hdr.results.mul8 = a * b;
        hdr.results.and8 = a & b;
        hdr.results.or8 = a | b;
        hdr.results.xor8 = a ^ b;
        hdr.results.not8 = ~a;
        hdr.results.neg8 = -a;
        hdr.results.left8 = a << n;
        hdr.results.right8 = a >> n;
        hdr.results.add_sat8 = a |+| b;
        hdr.results.sub_sat8 = a |-| b;
        hdr.results.sadd8 = s + t;
        hdr.results.ssub8 = s - t;
        hdr.results.smul8 = s * t;
        hdr.results.sright8 = s >> n;
        hdr.results.sneg8 = -s;
        hdr.results.sadd_sat8 = s |+| t;
        hdr.results.ssub_sat8 = s |-| t;
        hdr.results.from_bit8 = (int<8>)a;
        hdr.results.from_int8 = (bit<8>)s;
        hdr.results.add72 = hdr.operands.a72 + hdr.operands.b72;
        hdr.results.mul72 = hdr.operands.a72 * hdr.operands.b72;
        hdr.results.left72 = hdr.operands.a72 << n;
        hdr.results.right72 = hdr.operands.a72 >> n;
        hdr.results.sright33 = hdr.operands.s33 >> n;
        hdr.results.joined = a ++ b;
        hdr.results.low_slice = hdr.operands.a72[3:0];
        hdr.results.high_slice = hdr.operands.a72[71:68];
        hdr.results.extended = (bit<72>)a;
        hdr.results.sign_extended = (int<40>)s;
        hdr.results.add128 = hdr.operands.a128 + hdr.operands.b128;
        hdr.results.xor128 = hdr.operands.a128 ^ hdr.operands.b128;
        hdr.results.compares = (a < b ? 8w128 : 0) | (a <= b ? 8w64 : 0) | (a > b ? 8w32 : 0) | (a >= b ? 8w16 : 0)
            | (s < t ? 8w8 : 0) | (s <= t ? 8w4 : 0) | (a == b ? 8w2 : 0) | (s != t ? 8w1 : 0);
        hdr.results.chosen = (a > 100 && !(b == 7)) || a == 3 ? (bit<8>)(s > t ? s : t) : b;
        standard_metadata.egress_spec = 2;
    }
}

control TestEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {}
}

control TestDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.results);
    }
}

V1Switch(TestParser(), NoVerify(), TestIngress(), TestEgress(), NoVerify(), TestDeparser()) main;
