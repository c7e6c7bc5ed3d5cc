// The rules of the slots. Each register is read and written once for each packet, in the order newest, seen, count,
// final, exponents, values, and what it says is decided on the spot: that is what a pipeline of match-action stages can
// do. In a leaf of a tree of switches, a slot is final when the parent's result stands in it.

control Slots(inout headers_t hdr, inout metadata_t meta) {
    register<bit<32>>(SLOTS) newest; // chunk number of the slot's newest generation
    register<bit<32>>(CELLS) seen;   // a bit for each rank
    register<bit<8>>(CELLS) count;   // how many ranks
    register<bit<8>>(CELLS) final; // 1: the parent's result stands there
    register<bit<8>>(CELLS) e0;
    register<bit<8>>(CELLS) e1;
    Values() values;

    bool is_previous;

    action find_cell() {
        meta.slot = (slot_t)(meta.worker.base + (bit<16>)hdr.wiresum.slot);
        meta.cell = meta.slot << 1 | (cell_t)hdr.wiresum.version;
    }

    action update_newest() {
        bit<32> stored;
        newest.read(stored, meta.slot);
        bit<32> ahead = hdr.wiresum.tsi - stored;
        meta.is_new = ahead == (bit<32>)meta.worker.slots;
        meta.is_current = ahead == 0;
        is_previous = ahead == 0 - (bit<32>)meta.worker.slots;
        meta.is_stale = !meta.is_new && !meta.is_current && !is_previous;
        newest.write(meta.slot, meta.is_new ? hdr.wiresum.tsi : stored);
    }

    action update_seen() {
        bit<32> stored;
        seen.read(stored, meta.cell);
        bool was_seen = stored & meta.worker.rank_bit != 0;
        meta.is_fresh = meta.is_new || (meta.is_current && !was_seen);
        meta.is_known = meta.is_fresh || was_seen;
        meta.keep = meta.is_new ? 32w0 : 0xffffffff;
        meta.take = meta.is_fresh ? 32w0xffffffff : 0;
        seen.write(meta.cell, (stored & meta.keep) | (meta.worker.rank_bit & meta.take));
    }

    action update_count() {
        bit<8> stored;
        count.read(stored, meta.cell);
        stored = (stored & meta.keep[7:0]) + (1 & meta.take[7:0]);
        meta.is_complete = stored == meta.worker.ranks;
        count.write(meta.cell, stored);
    }

    action update_final() {
        bit<8> stored;
        final.read(stored, meta.cell);
        stored = stored & meta.keep[7:0];
        meta.is_final = stored == 1;
        final.write(meta.cell, stored);
    }

    // Signed numbers compare as unsigned ones do with their sign bits turned: BMv2 reads registers as unsigned.
#define SIGN 0x80

    action update_exponents() {
        bit<8> stored;
        e0.read(stored, meta.cell);
        bool is_larger = meta.is_new || (meta.is_fresh && (hdr.exponents.e0 ^ SIGN) > (stored ^ SIGN));
        hdr.exponents.e0 = is_larger ? hdr.exponents.e0 : stored;
        e0.write(meta.cell, hdr.exponents.e0);
        e1.read(stored, meta.cell);
        is_larger = meta.is_new || (meta.is_fresh && (hdr.exponents.e1 ^ SIGN) > (stored ^ SIGN));
        hdr.exponents.e1 = is_larger ? hdr.exponents.e1 : stored;
        e1.write(meta.cell, hdr.exponents.e1);
    }

    // A parent's result counts only for the newest generation, if that is complete and not final yet.
    action find_newest() {
        bit<32> stored;
        newest.read(stored, meta.slot);
        meta.is_current = stored == hdr.wiresum.tsi;
    }

    action find_count() {
        bit<8> stored;
        count.read(stored, meta.cell);
        meta.is_complete = stored == meta.worker.ranks;
    }

    action make_final() {
        bit<8> stored;
        final.read(stored, meta.cell);
        meta.is_fresh = stored == 0;
        meta.keep = meta.is_fresh ? 32w0 : 0xffffffff;
        meta.take = meta.is_fresh ? 32w0xffffffff : 0;
        final.write(meta.cell, 1);
    }

    action take_exponents() {
        e0.write(meta.cell, hdr.exponents.e0);
        e1.write(meta.cell, hdr.exponents.e1);
    }

    // Makes a cell of a pool as a new job must find it.
    action clear() {
        bit<16> slot = meta.cursor >> 1;
        meta.slot = (slot_t)(meta.worker.base + slot);
        meta.cell = meta.slot << 1 | (cell_t)(meta.cursor & 1);
        newest.write(meta.slot, (bit<32>)slot - (bit<32>)meta.worker.slots);
        seen.write(meta.cell, 0);
        count.write(meta.cell, 0);
        final.write(meta.cell, 0);
        e0.write(meta.cell, 0);
        e1.write(meta.cell, 0);
        meta.cursor = meta.cursor + 1;
    }

    apply {
        bool has_values = meta.is_clear;
        if (meta.is_clear) {
            clear();
        } else {
            find_cell();
            if (meta.is_from_parent) {
                find_newest();
                find_count();
                if (meta.is_current && meta.is_complete) {
                    make_final();
                }
                if (meta.is_fresh) {
                    take_exponents();
                    meta.is_result = true;
                    has_values = hdr.values.isValid();
                } else {
                    meta.event = Event.UNNEEDED;
                }
            } else {
                update_newest();
                if (meta.is_stale) {
                    meta.event = Event.STALE;
                } else {
                    update_seen();
                    update_count();
                    if (meta.worker.is_leaf) {
                        update_final();
                    } else {
                        meta.is_final = true;
                    }
                    update_exponents();
                    meta.event = is_previous ? Event.PREVIOUS : (meta.is_fresh ? Event.CONTRIBUTION : Event.DUPLICATE);
                    // Of a generation before the newest one, a leaf has only the parent's result to give.
                    meta.is_result = meta.is_complete && meta.is_known && (meta.is_final || !is_previous);
                    has_values = hdr.values.isValid();
                }
            }
        }
        if (has_values) {
            values.apply(hdr, meta);
        }
    }
}
