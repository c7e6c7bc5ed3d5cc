// An Ethernet switch that learns: unknown addresses are flooded, and the control plane is told where senders are.

struct learned_t {
    mac_t mac;
    port_t port;
}

control Forwarding(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action known() {}

    action learn() {
        digest<learned_t>(1, {hdr.ethernet.src, standard_metadata.ingress_port});
    }

    table senders {
        key = {
            hdr.ethernet.src: exact;
            standard_metadata.ingress_port: exact;
        }
        actions = {
            known;
            learn;
        }
        const default_action = learn;
        size = 1024;
    }

    action forward(port_t port) {
        standard_metadata.egress_spec = port;
    }

    action flood() {
        standard_metadata.mcast_grp = FLOOD_GROUP;
        meta.is_flooded = true;
    }

    table destinations {
        key = {
            hdr.ethernet.dst: exact;
        }
        actions = {
            forward;
            flood;
        }
        const default_action = flood;
        size = 1024;
    }

    apply {
        senders.apply();
        destinations.apply();
        if (!meta.is_flooded && standard_metadata.egress_spec == standard_metadata.ingress_port) {
            // It was flooded to here, and its receiver has seen it. Sent back to a switch, it would move its sender there.
            mark_to_drop(standard_metadata);
        }
    }
}
