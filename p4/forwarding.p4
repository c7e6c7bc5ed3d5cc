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
    }
}
