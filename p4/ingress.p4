// Where a packet goes: to the slots, to the switch's own services, or on.

control WiresumIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    ControlPlane() control_plane;
    Forwarding() forwarding;
    Services() services;
    Checks() checks;
    Slots() slots;

    action own(mac_t mac) {
        meta.is_mine = true;
        meta.own_mac = mac;
    }

    table own_arp { // the switch's own address, asked for
        key = {
            hdr.arp.target: exact;
        }
        actions = {
            own;
            NoAction;
        }
        const default_action = NoAction();
        size = 4;
    }

    table own_address { // sent to
        key = {
            hdr.ipv4.dst: exact;
        }
        actions = {
            own;
            NoAction;
        }
        const default_action = NoAction();
        size = 4;
    }

    action worker(
        member_t member, bit<8> job, bit<32> rank_bit, bit<8> ranks, bit<16> base, bit<16> pool_size, bit<16> group,
        port_t port, bit<1> is_leaf, member_t up, port_t up_port) {
        meta.worker = {
            member, job, rank_bit, ranks, base, pool_size, group, port, is_leaf == 1, up, up_port};
    }

    action parent(
        member_t member, bit<8> job, bit<8> ranks, bit<16> base, bit<16> pool_size, bit<16> group) {
        meta.is_from_parent = true;
        meta.worker = {member, job, 0, ranks, base, pool_size, group, 0, true, member, 0};
    }

    direct_counter(CounterType.packets_and_bytes) received;

    table workers { // the ranks of all jobs
        key = {
            hdr.ipv4.src: exact;
            hdr.udp.src: exact;
        }
        actions = {
            worker;
            NoAction;
        }
        const default_action = NoAction();
        counters = received;
        size = MEMBERS;
    }

    direct_counter(CounterType.packets_and_bytes) received_from_parent;

    table parents { // of the jobs in which this switch is a leaf
        key = {
            hdr.ipv4.src: exact;
            hdr.udp.dst: exact;
        }
        actions = {
            parent;
            NoAction;
        }
        const default_action = NoAction();
        counters = received_from_parent;
        size = 256;
    }

    counter(16 * MEMBERS, CounterType.packets) events; // by member and Event
    counter(8, CounterType.packets) drops;             // by Drop

    action count_event() {
        events.count((bit<32>)(meta.worker.member ++ (bit<4>)meta.event));
    }

    action answer_all() {
        events.count((bit<32>)(meta.worker.member ++ (bit<4>)Event.RESULT));
        standard_metadata.mcast_grp = meta.worker.group;
    }

    action send_up() {
        bit<4> event = (bit<4>)(meta.is_fresh ? Event.PARTIAL : Event.PARTIAL_AGAIN);
        events.count((bit<32>)(meta.worker.member ++ event));
        standard_metadata.egress_spec = meta.worker.up_port;
        meta.worker.member = meta.worker.up;
    }

    action answer_one() {
        events.count((bit<32>)(meta.worker.member ++ (bit<4>)Event.RETRANSMITTED));
        standard_metadata.egress_spec = meta.worker.port;
    }

    apply {
        if (hdr.packet_out.isValid()) {
            control_plane.apply(hdr, meta, standard_metadata);
        } else if (!hdr.ethernet.isValid()) {
            meta.drop = Drop.NO_HEADER;
        } else {
            if (hdr.arp.isValid()) {
                own_arp.apply();
            } else if (hdr.ipv4.isValid()) {
                own_address.apply();
            }
            if (!meta.is_mine) {
                forwarding.apply(hdr, meta, standard_metadata);
            } else if (!hdr.udp.isValid() || (hdr.udp.dst != DATA_PORT && hdr.udp.src != DATA_PORT)) {
                services.apply(hdr, meta, standard_metadata);
            } else if (standard_metadata.checksum_error == 1) {
                meta.drop = Drop.BAD_CHECKSUM;
            } else if (hdr.udp.dst != DATA_PORT) {
                meta.is_member = parents.apply().hit;
            } else {
                meta.is_member = workers.apply().hit;
            }
            if (meta.is_member) {
                checks.apply(hdr, meta);
            } else if (meta.is_mine && hdr.udp.isValid() && meta.drop == Drop.NONE
                && (hdr.udp.dst == DATA_PORT || hdr.udp.src == DATA_PORT)) {
                meta.drop = Drop.UNKNOWN_SOURCE;
            }
        }
        if (meta.is_clear || (meta.is_member && meta.event == Event.NONE)) {
            slots.apply(hdr, meta);
        }
        if (meta.is_clear && meta.cursor < meta.worker.slots << 1) {
            resubmit_preserving_field_list(1);
        } else if (meta.is_clear) {
            meta.reason = Reason.CLEARED;
            standard_metadata.egress_spec = CPU_PORT;
        } else if (meta.is_member) {
            if (meta.event != Event.NONE) {
                count_event();
            }
            if (!meta.is_result) {
                mark_to_drop(standard_metadata);
            } else if (!meta.is_from_parent && !meta.is_final) {
                send_up();
            } else if (meta.is_fresh) {
                answer_all();
            } else {
                answer_one();
            }
        } else if (meta.drop != Drop.NONE) {
            drops.count((bit<32>)(bit<3>)meta.drop);
            mark_to_drop(standard_metadata);
        }
    }
}
