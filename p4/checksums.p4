// Checksums of what comes in and of what the switch itself sends. What is forwarded keeps the checksums that it has.

#define PSEUDO_HEADER hdr.ipv4.src, hdr.ipv4.dst, 8w0, hdr.ipv4.protocol, hdr.udp.length
#define UDP_FIELDS \
    hdr.udp.src, hdr.udp.dst, hdr.udp.length, hdr.udp.checksum, \
    hdr.wiresum.msg_type, hdr.wiresum.reserved, hdr.wiresum.size, hdr.wiresum.job, hdr.wiresum.tsi, \
    hdr.wiresum.version, hdr.wiresum.zero, hdr.wiresum.slot, hdr.exponents.e0, hdr.exponents.e1
#define IPV4_FIELDS \
    hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.length, hdr.ipv4.id, hdr.ipv4.flags, hdr.ipv4.fragment, \
    hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst
#define COMMA_VALUE(i) , hdr.values.v##i

control VerifyChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(
            hdr.ipv4.isValid() && hdr.ipv4.ihl == 5, {IPV4_FIELDS}, hdr.ipv4.checksum, HashAlgorithm.csum16);
        // Over data and its own checksum it comes to 0, also where 0xffff was sent in place of 0. A checksum of 0 says
        // that the sender computed none. A packet of a wrong length is left to the checks.
        verify_checksum(
            hdr.values.isValid() && hdr.udp.length == FULL_LENGTH && hdr.udp.checksum != 0,
            {PSEUDO_HEADER, UDP_FIELDS EACH_VALUE(COMMA_VALUE)}, meta.zero, HashAlgorithm.csum16);
        verify_checksum(
            hdr.exponents.isValid() && !hdr.values.isValid() && hdr.udp.length == SHORT_LENGTH && hdr.udp.checksum != 0,
            {PSEUDO_HEADER, UDP_FIELDS}, meta.zero, HashAlgorithm.csum16);
    }
}

control ComputeChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(meta.is_rewritten, {IPV4_FIELDS}, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}
