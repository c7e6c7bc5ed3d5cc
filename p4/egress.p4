// Once for each copy of a packet: a result is addressed to the member that gets this copy.

control WiresumEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action address(mac_t mac, ip_t ip, bit<16> port, bit<16> own_port, bit<8> job) {
        hdr.ethernet.dst = mac;
        hdr.ethernet.src = meta.own_mac;
        hdr.ipv4.tos = 0;
        hdr.ipv4.id = 0;
        hdr.ipv4.flags = 2; // do not fragment
        hdr.ipv4.ttl = 64;
        hdr.ipv4.src = hdr.ipv4.dst; // it had been sent to the switch's own address
        hdr.ipv4.dst = ip;
        meta.is_rewritten = true;
        hdr.udp.src = own_port; // another than the switch's towards a parent, which tells leaves apart by it
        hdr.udp.dst = port;
        hdr.udp.checksum = 0; // none: the sum of all values is not worth its time
        hdr.wiresum.job = job;
    }

    action drop() {
        mark_to_drop(standard_metadata);
    }

    table members {
        key = {
            meta.worker.member: exact;
        }
        actions = {
            address;
            drop;
        }
        const default_action = drop();
        size = MEMBERS;
    }

    apply {
        if (standard_metadata.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.reason = meta.reason;
            hdr.packet_in.ingress_port = (bit<16>)standard_metadata.ingress_port;
            hdr.packet_in.argument = meta.tag;
            hdr.packet_out.setInvalid();
        } else if (meta.is_result) {
            if (standard_metadata.instance_type == REPLICATED) {
                meta.worker.member = (member_t)standard_metadata.egress_rid; // copies are numbered by member
            }
            members.apply();
        } else if (meta.is_flooded && standard_metadata.egress_port == standard_metadata.ingress_port) {
            drop(); // a multicast group has the port that the packet came from, too
        }
    }
}
