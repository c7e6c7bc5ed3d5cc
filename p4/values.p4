// The adders: one register for each value of a packet, as a pipeline's stages hold them.

control Values(inout headers_t hdr, in metadata_t meta) {
#define REGISTER(i) register<bit<32>>(CELLS) value_##i;
    EACH_VALUE(REGISTER)

    // One action for all, since BMv2 makes a table of each branch, and masks for "overwrite", "add modulo 2^32" and "only
    // read", since p4c makes jumps of each condition.
#define UPDATE(i) \
    value_##i.read(stored, meta.cell); \
    hdr.values.v##i = (stored & meta.keep) + (hdr.values.v##i & meta.take); \
    value_##i.write(meta.cell, hdr.values.v##i);

    action update() {
        bit<32> stored;
        EACH_VALUE(UPDATE)
    }

#define CLEAR(i) value_##i.write(meta.cell, 0);

    action clear() {
        EACH_VALUE(CLEAR)
    }

    apply {
        if (meta.is_clear) {
            clear();
        } else {
            update();
        }
    }
}
