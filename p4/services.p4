// What the switch itself answers besides sums: ARP for its own address, and ping.

control Services(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action back() {
        hdr.ethernet.dst = hdr.ethernet.src;
        hdr.ethernet.src = meta.own_mac;
        standard_metadata.egress_spec = standard_metadata.ingress_port;
    }

    action answer_arp() {
        ip_t own = hdr.arp.target;
        back();
        hdr.arp.operation = 2;
        hdr.arp.target_mac = hdr.arp.sender_mac;
        hdr.arp.target = hdr.arp.sender;
        hdr.arp.sender_mac = meta.own_mac;
        hdr.arp.sender = own;
    }

    action answer_ping() {
        ip_t own = hdr.ipv4.dst;
        back();
        hdr.ipv4.dst = hdr.ipv4.src;
        hdr.ipv4.src = own;
        hdr.ipv4.ttl = 64;
        meta.is_rewritten = true;
        // The type falls from 8 to 0, so that the one's complement sum falls, and the checksum grows, by 0x0800.
        bit<17> checksum = (bit<17>)hdr.icmp.checksum + 0x0800;
        hdr.icmp.checksum = checksum[15:0] + (bit<16>)checksum[16:16];
        hdr.icmp.type = 0;
    }

    action tell_control_plane() {
        standard_metadata.egress_spec = CPU_PORT;
        meta.reason = Reason.ARP_REPLY;
    }

    apply {
        if (hdr.arp.isValid() && hdr.arp.operation == 1) {
            answer_arp();
        } else if (hdr.arp.isValid() && hdr.arp.operation == 2) {
            tell_control_plane();
        } else if (hdr.icmp.isValid() && hdr.icmp.type == 8 && hdr.icmp.code == 0) {
            answer_ping();
        } else {
            meta.drop = Drop.NO_SERVICE;
        }
    }
}
