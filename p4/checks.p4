// Who sent a packet, and whether it is in order: whatever is not must leave all registers alone.

control Checks(inout headers_t hdr, inout metadata_t meta) {
    bit<16> expected;
    bit<32> mask; // of the pool: its size less one

    apply {
        mask = (bit<32>)(meta.worker.slots - 1);
        expected = SHORT_LENGTH;
        if (hdr.wiresum.msg_type == MSG_VALUES) {
            expected = FULL_LENGTH;
        }
        if (!hdr.exponents.isValid()
            || (hdr.wiresum.msg_type != MSG_EXPONENTS && !hdr.values.isValid())
            || hdr.wiresum.size != SIZE_CODE
            || hdr.udp.length != expected
            || hdr.ipv4.length != expected + 20) {
            meta.event = Event.WRONG_SIZE;
        } else if (hdr.wiresum.job != meta.worker.job) {
            meta.event = Event.WRONG_JOB;
        } else if (hdr.wiresum.reserved != 0 || hdr.wiresum.zero != 0) {
            meta.event = Event.RESERVED_BITS;
        } else if ((bit<32>)hdr.wiresum.slot > mask) {
            meta.event = Event.OUTSIDE_POOL;
        } else if ((bit<32>)hdr.wiresum.slot != hdr.wiresum.tsi & mask
            || (hdr.wiresum.version == 1) != (hdr.wiresum.tsi & (bit<32>)meta.worker.slots != 0)) {
            meta.event = Event.WRONG_INDEX;
        }
    }
}
